#include "client/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/cluster_target.h"
#include "client/past_api.h"
#include "client/remote_past.h"
#include "core/text.h"

namespace rubato::cli {

Session open_session(const ParsedCommand& parsed, const Shell& shell) {
  Session session;
  session.place = cluster_place(parsed, shell.env);
  session.api = shell.open_api(session.place);
  const Given* given = parsed.find("cluster");
  // From the variable, the next command finds it as this one did.
  if (given != nullptr && given->joint != '=') session.cluster_flag = " --cluster " + session.place.name;
  return session;
}

Session open_reading_session(const ParsedCommand& parsed, const Shell& shell) {
  const auto found = list_clusters(clusters_folder(shell.env));
  const std::string name = choose_past_cluster(found, parsed.value("cluster-name", parsed.value("cluster")));
  const bool open = std::ranges::any_of(found, [&](const auto& one) { return one.open && one.name == name; });
  const ClusterPlace place = place_of(shell.env, name);
  Session session;
  session.api = open ? nullptr : open_past_api(place);
  if (const std::string store = session.api ? past_store(place) : ""; !store.empty())
    session.past_where = " and " + store;
  if (!open && !session.api) {
    if (std::optional<RemotePast> past = open_remote_past(place, shell)) {
      session.api = std::move(past->api);
      session.past_where = " on " + past->host;
    }
  }
  if (!session.api) return open_session(parsed, shell);
  session.place = place;
  session.past = true;
  const Given* given = parsed.find("cluster");
  if (given != nullptr && given->joint != '=') session.cluster_flag = " --cluster " + place.name;
  shell.err(fmt::format("note: '{}' is down; this is what its files{} tell\n", place.name, session.past_where));
  return session;
}

Session open_named_session(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.positionals.empty()) return open_session(parsed, shell);
  Session session;
  const ClusterTarget target = find_cluster(parsed, shell, parsed.positionals.front());
  if (target.typed) require_up(target, false);
  session.place = target.place;
  session.api = shell.open_api(session.place);
  session.cluster_flag = " --cluster " + session.place.name;
  return session;
}

Style style_of(const Shell& shell) { return {.colour = shell.colour, .width = shell.width, .now = shell.now()}; }

std::string json_text(const nlohmann::json& document) {
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string require_word(const ParsedCommand& parsed, size_t index, std::string_view what, std::string_view usage) {
  if (parsed.positionals.size() > index && !parsed.positionals[index].empty()) return parsed.positionals[index];
  throw Error(ErrorCode::kUsage, fmt::format("{} is missing", what), "", fmt::format("write {}", usage));
}

void LiveLine::show(const std::string& text) {
  if (!shell_.live) return;
  shell_.err("\r\x1b[K" + fit(clean(text), shell_.width > 1 ? shell_.width - 1 : 79));
  shown_ = true;
}

void LiveLine::clear() {
  if (std::exchange(shown_, false)) shell_.err("\r\x1b[K");
}

void LiveBlock::show(const std::vector<std::string>& lines) {
  if (!shell_.live) return;
  clear();
  for (const std::string& line : lines) {
    shell_.err(fit(clean(line), shell_.width > 1 ? shell_.width - 1 : 79) + "\n");
  }
  shown_ = lines.size();
}

void LiveBlock::clear() {
  for (; shown_ > 0; --shown_) shell_.err("\x1b[1A\x1b[2K");
}

bool confirmed(const Shell& shell, const std::string& question) {
  if (!shell.asks) return true;
  shell.err(question + " [y/N] ");
  const std::string answer = to_lower(trim(shell.read_line()));
  return answer == "y" || answer == "yes";
}

}  // namespace rubato::cli

#include "cli/scale_commands.h"

#include <fmt/format.h>

#include <charconv>

#include "cli/cloud_commands.h"
#include "client/session.h"
#include "core/text.h"
#include "model/byte_amounts.h"
#include "model/resources.h"
#include "terminal/document.h"
#include "terminal/render_events.h"
#include "terminal/render_scale.h"
#include "terminal/values.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr int kCountMax = 1'000'000;

// "CPU=4,GPU=1,memory=8GiB" or the same with "xN" behind it.
json bundle_of(const Given& given, const std::string& text) {
  std::string amounts = text;
  int64_t count = 1;
  if (const size_t at = text.rfind('x'); at != std::string::npos && at > 0) {
    const std::optional<int> number = parse_int(std::string_view(text).substr(at + 1));
    if (number && *number > 0) {
      count = *number;
      amounts = text.substr(0, at);
    }
  }
  json resources = json::object();
  for (const std::string_view part : split(amounts, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0)
      throw bad_value(given, fmt::format("'{}' is not NAME=AMOUNT", part), "write CPU=4,GPU=1 or CPU=4x8");
    const std::string name(trim(part.substr(0, equals)));
    const std::string amount(trim(part.substr(equals + 1)));
    double value = 0;
    const auto [end, error] = std::from_chars(amount.data(), amount.data() + amount.size(), value);
    const bool number = error == std::errc() && end == amount.data() + amount.size();
    if (!number && !counted_in_bytes(name)) throw bad_value(given, fmt::format("'{}' is not a number", amount));
    resources[name] = number ? json(value) : json(amount);
  }
  (void)resources_from_json(resources);  // throws for names and amounts that mean nothing
  return {{"resources", std::move(resources)}, {"count", count}};
}

}  // namespace

json request_body(const ParsedCommand& parsed) {
  json bundles = json::array();
  // As Ray's request_resources: so many of one, wherever they fit.
  for (const auto& [flag, name] : {std::pair("cpus", "CPU"), std::pair("gpus", "GPU")}) {
    const Given* given = parsed.find(flag);
    if (given == nullptr) continue;
    const int count = int_value(*given, 0, kCountMax);
    if (count > 0) bundles.push_back({{"resources", {{name, 1}}}, {"count", count}});
  }
  if (const Given* given = parsed.find("bundle")) {
    for (const std::string& text : given->values) bundles.push_back(bundle_of(*given, text));
  }
  if (parsed.has("clear") && !bundles.empty())
    throw Error(ErrorCode::kUsage, "--clear takes nothing else", "", "drop it: a request replaces the one before");
  if (!parsed.has("clear") && bundles.empty() && !parsed.has("cpus") && !parsed.has("gpus")) {
    throw Error(ErrorCode::kUsage, "nothing is requested", "",
                "write rubato request --cpus 64 --gpus 8, or --bundle CPU=4,GPU=1x8, or --clear");
  }
  return {{"bundles", std::move(bundles)}};
}

int node_lost_command(const ParsedCommand& parsed, const Shell& shell) {
  require_word(parsed, 0, "the node", "rubato node lost NODE");
  const Session session = open_session(parsed, shell);
  const std::string& node = parsed.positionals.front();
  const json reply = post(*session.api, "nodes/" + url_part(node) + "/lost");
  if (parsed.has("json")) {
    shell.out(json_text(reply));
  } else {
    shell.err(fmt::format("{} is given up for dead; its jobs are formed anew\n", node));
  }
  return 0;
}

int drain_command(const ParsedCommand& parsed, const Shell& shell) {
  require_word(parsed, 0, "the node", "rubato drain NODE");
  const std::string& node = parsed.positionals.front();
  const std::string path = "nodes/" + url_part(node) + "/drain";
  const Given* const deadline = parsed.find("deadline");
  if (parsed.has("undo") && deadline != nullptr)
    throw Error(ErrorCode::kUsage, "--undo takes no deadline", "", "drop one of the two");
  json body = json::object();
  if (deadline != nullptr) body["deadline_s"] = to_seconds(duration_value(*deadline, 0s));
  const Session session = open_session(parsed, shell);
  const json reply = parsed.has("undo") ? remove(*session.api, path) : post(*session.api, path, body);
  if (parsed.has("json")) {
    shell.out(json_text(reply));
  } else if (parsed.has("undo")) {
    shell.err(fmt::format("{} is kept, and takes work again\n", node));
  } else {
    shell.err(
        fmt::format("{} drains: its jobs save and move, then it is removed\n  see   rubato why {}\n"
                    "  undo  rubato drain {} --undo\n",
                    node, node, node));
  }
  return 0;
}

int request_command(const ParsedCommand& parsed, const Shell& shell) {
  const json body = request_body(parsed);
  const Session session = open_session(parsed, shell);
  const json reply = post(*session.api, "requests", body);
  if (parsed.has("json")) {
    shell.out(json_text(reply));
  } else if (body["bundles"].empty()) {
    shell.err("requests cleared; nodes that nobody needs go after their idle time-out\n");
  } else {
    shell.err("requested; the cluster keeps room for it until rubato request --clear\n" +
              autoscaler_text(read_document<api::Autoscaler>(reply), style_of(shell)));
  }
  return 0;
}

int audit_command(const ParsedCommand& parsed, const Shell& shell) {
  if (!parsed.positionals.empty() && is_cluster_file(parsed.positionals.front())) {
    const ClusterTarget target = find_cluster(parsed, shell, parsed.positionals.front());
    if (is_cloud(target)) return audit_cloud(target, parsed, shell);
  }
  const Session session = open_named_session(parsed, shell);
  const json reply = get(*session.api, "audit");
  const auto audit = read_document<api::Audit>(reply);
  shell.out(parsed.has("json") ? json_text(reply) : audit_text(audit, style_of(shell)));
  return audit.leaked.empty() ? 0 : 1;
}

int why_last_command(const ParsedCommand& parsed, const Shell& shell) {
  if (!parsed.positionals.empty())
    throw Error(ErrorCode::kUsage, "--last is about the autoscaler, not about one job or node", "",
                "drop one of the two");
  int limit = 1;
  if (const Given* given = parsed.find("limit")) limit = int_value(*given, 1, 100);
  const Session session = open_session(parsed, shell);
  const json reply = get(*session.api, fmt::format("decisions?limit={}", limit));
  if (parsed.has("json")) {
    shell.out(json_text(reply));
    return 0;
  }
  std::string out;
  for (const api::ScaleDecision& one : read_document<api::ScaleDecisions>(reply).decisions)
    out += (out.empty() ? "" : "\n") + decision_text(one, style_of(shell));
  shell.out(out.empty() ? "the autoscaler has not decided anything yet\n" : out);
  return 0;
}

}  // namespace rubato::cli

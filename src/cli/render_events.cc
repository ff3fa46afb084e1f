#include "cli/render_events.h"

#include <fmt/format.h>

#include <array>

#include "cli/document.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

std::string age_of(const json& object, const char* key, const Look& look) {
  const auto time = time_in(object, key);
  return time ? age_text(look.now - *time) : "-";
}

Hue event_hue(std::string_view type) {
  const auto has = [&](std::string_view word) { return type.find(word) != std::string_view::npos; };
  if (has("fail") || has("lost")) return Hue::kRed;
  if (has("succeeded")) return Hue::kGreen;
  return Hue::kCyan;
}

// Ranks are told apart by colour; red is left for failures.
Hue rank_hue(int64_t rank) {
  constexpr std::array<Hue, 5> hues{Hue::kCyan, Hue::kGreen, Hue::kYellow, Hue::kMagenta, Hue::kBlue};
  return hues[static_cast<size_t>(rank < 0 ? 0 : rank) % hues.size()];
}

// A list of reasons, each with its place or time behind it.
std::string reasons(std::string_view heading, const json& list, const char* place_key, const Look& look) {
  if (list.empty()) return "";
  std::string out = "\n" + paint(heading, Hue::kBold, look.colour) + "\n";
  for (const json& one : list) {
    const std::string place = text_in(one, place_key);
    out += "  - " + text_in(one, "text");
    if (!place.empty()) out += paint(fmt::format("  ({})", place), Hue::kDim, look.colour);
    out += "\n";
  }
  return out;
}

// The last lines of a command's output are part of some events.
std::string one_line(const json& event) {
  std::vector<std::string> lines;
  const std::string text = raw_in(event, "text");
  for (const std::string_view line : split(text, '\n')) {
    if (!trim(line).empty()) lines.push_back(clean(trim(line)));
  }
  return join(lines, " | ");
}

}  // namespace

std::string event_line(const json& event, const Look& look) {
  std::string time = text_in(event, "time").substr(0, 19);
  if (time.size() == 19) time[10] = ' ';
  const std::string type = text_in(event, "type");
  const size_t before = 19 + 2 + std::max<size_t>(18, display_width(type)) + 2;
  const size_t room = look.width == 0 ? SIZE_MAX : look.width > before ? look.width - before : 20;
  return fmt::format("{}  {}  {}\n", paint(time, Hue::kDim, look.colour),
                     paint(pad(type, 18), event_hue(type), look.colour), fit(one_line(event), room));
}

std::string recent_events(const json& events, const Look& look) {
  std::string out;
  for (const json& event : events) {
    const size_t room = look.width == 0 ? SIZE_MAX : look.width > 11 ? look.width - 11 : 20;
    out += fmt::format("  {}  {}\n", paint(pad(age_of(event, "time", look), 7), Hue::kDim, look.colour),
                       fit(one_line(event), room));
  }
  return out;
}

std::string log_line(const json& entry, const LogLook& look) {
  std::string text = raw_in(entry, "text");
  if (!text.ends_with('\n')) text += '\n';
  if (!look.prefix) return text;
  const int64_t rank = int_in(entry, "rank", -1);
  const std::string who = rank < 0 ? text_in(entry, "node") : fmt::format("{}@{}", rank, text_in(entry, "node"));
  const std::string prefix = fmt::format("[{}]", who);
  return paint(prefix, raw_in(entry, "stream") == "err" ? Hue::kRed : rank_hue(rank), look.colour) + " " + text;
}

std::string queue_text(const json& queue) {
  const int64_t place = int_in(queue, "place");
  if (place <= 0) return "";
  if (place == 1) return fmt::format("it is the next of {}", int_in(queue, "of"));
  std::vector<std::string> ahead;
  for (const json& one : list_in(queue, "ahead")) {
    std::string about = text_in(one, "name");
    if (const std::string owner = text_in(one, "owner"); !owner.empty()) about += ", " + owner;
    if (const int64_t priority = int_in(one, "priority"); priority != 0)
      about += fmt::format(", priority {}", priority);
    ahead.push_back(fmt::format("{} ({})", text_in(one, "id"), about));
  }
  const int64_t more = place - 1 - static_cast<int64_t>(ahead.size());
  return fmt::format("place {} of {}; ahead: {}{}", place, int_in(queue, "of"), join(ahead, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string why_text(const json& why, const Look& look) {
  const std::string phase = text_in(why, "phase");
  std::string out = fmt::format("{}: {}\n", paint(text_in(why, "subject"), Hue::kBold, look.colour),
                                paint(phase, phase_hue(phase), look.colour));
  if (const std::string wanted = text_in(why, "wanted"); !wanted.empty()) out += "  wanted: " + wanted + "\n";
  if (const std::string queue = queue_text(object_in(why, "queue")); !queue.empty()) out += "  queue: " + queue + "\n";
  out += reasons("What stands against it", list_in(why, "against"), "where", look);
  out += reasons("What else there was", list_in(why, "others"), "where", look);
  out += reasons("What would change it", list_in(why, "changes"), "when", look);
  out += reasons("What happened to it", list_in(why, "history"), "when", look);
  const json& decision = object_in(why, "decision");
  if (decision.empty()) return out;
  const std::string text = text_in(decision, "text");
  return out + fmt::format("\n{}{}\n", text.empty() ? "" : text + " ",
                           paint(fmt::format("(decided {} ago, journal offset {})", age_of(decision, "time", look),
                                             int_in(decision, "offset")),
                                 Hue::kDim, look.colour));
}

}  // namespace rubato::cli

#include "terminal/render_events.h"

#include <fmt/format.h>

#include <array>

#include "core/text.h"
#include "core/time.h"
#include "terminal/document.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

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

struct Reason {
  std::string text;
  std::string place;  // in a file, or in time
};
Reason reason_of(const api::Obstacle& one) { return {one.text, one.where.value_or("")}; }
Reason reason_of(const api::Change& one) { return {one.text, one.when ? format_time(*one.when) : ""}; }

// A list of reasons, each with its place behind it.
template <class T>
std::string reasons(std::string_view heading, const std::vector<T>& list, const Style& look) {
  if (list.empty()) return "";
  std::string out = "\n" + paint(heading, Hue::kBold, look.colour) + "\n";
  for (const T& one : list) {
    const Reason reason = reason_of(one);
    out += "  - " + reason.text;
    if (!reason.place.empty()) out += paint(fmt::format("  ({})", reason.place), Hue::kDim, look.colour);
    out += "\n";
  }
  return out;
}

}  // namespace

std::string event_line(const api::Event& event, const Style& look) {
  std::string time = format_time(event.time).substr(0, 19);
  time[10] = ' ';
  const size_t before = 19 + 2 + std::max<size_t>(18, display_width(event.type)) + 2;
  const size_t room = look.width == 0 ? SIZE_MAX : look.width > before ? look.width - before : 20;
  return fmt::format("{}  {}  {}\n", paint(time, Hue::kDim, look.colour),
                     paint(pad(event.type, 18), event_hue(event.type), look.colour), fit(event.text, room));
}

std::string recent_events(const std::vector<api::Event>& events, const Style& look) {
  std::string out;
  for (const api::Event& event : events) {
    const size_t room = look.width == 0 ? SIZE_MAX : look.width > 11 ? look.width - 11 : 20;
    out += fmt::format("  {}  {}\n", paint(pad(age_text(look.now - event.time), 7), Hue::kDim, look.colour),
                       fit(event.text, room));
  }
  return out;
}

std::string log_line(const json& entry, const LogStyle& look) {
  std::string text = raw_in(entry, "text");
  if (!text.ends_with('\n')) text += '\n';
  if (!look.prefix) return text;
  const int64_t rank = int_in(entry, "rank", -1);
  const std::string who = rank < 0 ? text_in(entry, "node") : fmt::format("{}@{}", rank, text_in(entry, "node"));
  const std::string prefix = fmt::format("[{}]", who);
  return paint(prefix, raw_in(entry, "stream") == "err" ? Hue::kRed : rank_hue(rank), look.colour) + " " + text;
}

std::string queue_text(const api::QueuePlace& queue) {
  const int64_t place = queue.place.value_or(0), of = queue.of.value_or(0);
  if (place <= 0) return "";
  if (place == 1) return fmt::format("it is the next of {}", of);
  std::vector<std::string> ahead;
  for (const api::QueuedJob& one : queue.ahead.value_or(std::vector<api::QueuedJob>{})) {
    std::string about = one.name;
    if (!one.owner.empty()) about += ", " + one.owner;
    if (one.priority != 0) about += fmt::format(", priority {}", one.priority);
    ahead.push_back(fmt::format("{} ({})", one.id, about));
  }
  const int64_t more = place - 1 - static_cast<int64_t>(ahead.size());
  return fmt::format("place {} of {}; ahead: {}{}", place, of, join(ahead, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string why_text(const api::Why& why, const Style& look) {
  std::string out = fmt::format("{}: {}\n", paint(why.subject, Hue::kBold, look.colour),
                                paint(why.phase, phase_hue(why.phase), look.colour));
  if (!why.wanted.empty()) out += "  wanted: " + why.wanted + "\n";
  if (const std::string queue = queue_text(why.queue.value_or(api::QueuePlace{})); !queue.empty())
    out += "  queue: " + queue + "\n";
  out += reasons("What stands against it", why.against, look);
  out += reasons("What else there was", why.others.value_or(std::vector<api::Obstacle>{}), look);
  out += reasons("What would change it", why.changes, look);
  out += reasons("What happened to it", why.history.value_or(std::vector<api::Change>{}), look);
  const api::Decision& decision = why.decision;
  if (decision.offset == 0 && decision.text.empty()) return out;
  const std::string age = decision.time ? age_text(look.now - *decision.time) : "-";
  return out + fmt::format("\n{}{}\n", decision.text.empty() ? "" : decision.text + " ",
                           paint(fmt::format("(decided {} ago, journal offset {})", age, decision.offset), Hue::kDim,
                                 look.colour));
}

}  // namespace rubato::cli

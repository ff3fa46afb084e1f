#include "cli/up_progress.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/document.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr size_t kLiveNodes = 16;

// "3/6 setup": where it is on the way.
std::string step_words(const std::string& phase, const std::string& step) {
  static const std::vector<std::string> order = {"reachable", "files", "initialization", "setup", "agent", "joined"};
  if (phase == "up") return "6/6 joined";
  if (phase == "starting") return "5/6 agent";
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] == step) return fmt::format("{}/6 {}", i + 1, step);
  }
  return phase;
}

bool is_leaving(const std::string& phase) { return phase == "draining" || phase == "removing" || phase == "lost"; }

// Lines of somebody's output: each must not move the cursor, but they stay lines.
std::string clean_lines(const std::string& text) {
  std::vector<std::string> out;
  for (const std::string_view line : split(text, '\n')) out.push_back(clean(line));
  return join(out, "\n");
}

}  // namespace

std::string UpProgress::look(const json& status, const json& events, bool steps, const Look& look) {
  std::string out;
  if (!std::exchange(looked_, true)) {
    for (const json& node : list_in(status, "nodes")) {
      if (raw_in(node, "phase") == "requested") begun_before_.insert(raw_in(node, "id"));
    }
  }
  for (const json& event : list_in(events, "events")) {
    const std::string type = raw_in(event, "type");
    const bool failed =
        type == "node-failed" || (type == "node-refreshed" && !raw_in(object_in(event, "data"), "error").empty());
    if (!failed && type != "node-lost") continue;
    const json& data = object_in(event, "data");
    const std::string why = failed ? raw_in(data, "error") : raw_in(data, "reason");
    const std::string node = raw_in(event, "node");
    if (begun_before_.erase(node) == 0) failures_[node] = why;
    // The error of a set-up names the node and the step first: that is said once.
    const auto rest = strip_prefix(why, fmt::format("node {} failed", node));
    out += paint(fmt::format("  {} failed", clean(node)), Hue::kRed, look.colour) +
           clean_lines(rest ? std::string(*rest) : ": " + why) + "\n";
  }
  up_ = pending_ = 0;
  for (const json& node : list_in(status, "nodes")) {
    const std::string phase = raw_in(node, "phase");
    const bool updating = node.value("updating", false);
    up_ += phase == "up" ? 1 : 0;
    pending_ += (phase != "up" && !is_leaving(phase)) || updating ? 1 : 0;
    const std::string words = step_words(phase, raw_in(node, "step"));
    const std::string detail = phase == "up" ? "" : text_in(node, "detail");
    // A step is told once, and each time that it has to be tried again.
    const std::string told = detail.starts_with("attempt ") ? words + detail : words;
    std::string& printed = steps_[raw_in(node, "id")];
    if (told == printed || (told == words && printed.starts_with(words))) continue;
    const bool first_sight = printed.empty() && phase == "up";
    printed = told;
    if (steps && !first_sight) {
      out += fmt::format("  {}  {}{}\n", pad(text_in(node, "id"), 12), words, detail.empty() ? "" : ": " + detail);
    }
  }
  return out;
}

std::vector<std::string> UpProgress::live(const json& status, const Look& look) const {
  std::vector<std::string> out;
  size_t more = 0;
  for (const json& node : list_in(status, "nodes")) {
    const std::string phase = raw_in(node, "phase");
    if (phase == "up" && !node.value("updating", false)) continue;
    if (out.size() == kLiveNodes) {
      ++more;
      continue;
    }
    const auto since = time_in(node, "since");
    const std::string detail = text_in(node, "detail");
    const std::string why = text_in(node, "why");
    std::string line =
        fmt::format("  {}  {}  {}", pad(text_in(node, "id"), 12), pad(step_words(phase, raw_in(node, "step")), 18),
                    since ? age_text(look.now - *since) : "");
    if (!detail.empty() || !why.empty()) line += "  " + (detail.empty() ? why : detail);
    out.push_back(std::move(line));
  }
  if (more > 0) out.push_back(fmt::format("  and {} more", more));
  return out;
}

std::string UpProgress::failures() const {
  std::vector<std::string> out;
  for (const auto& [node, why] : failures_) {
    const auto rest = strip_prefix(why, fmt::format("node {} failed at ", node));
    const auto step = rest ? split_once(*rest, ':') : std::nullopt;
    out.push_back(clean(node) + " failed" + (step ? " at " + clean(step->first) : ""));
  }
  return join(out, ", ");
}

}  // namespace rubato::cli

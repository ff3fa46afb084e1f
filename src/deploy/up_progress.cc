#include "deploy/up_progress.h"

#include <fmt/format.h>

#include <utility>

#include "cluster/event.h"
#include "core/text.h"
#include "terminal/document.h"

namespace rubato::cli {
namespace {

constexpr size_t kLiveNodes = 16;

// "3/6 setup": where it is on the way.
std::string step_text(const api::Node& node) {
  static const std::vector<std::string> order = {"reachable", "files", "initialization", "setup", "agent", "joined"};
  if (node.phase == "up") return "6/6 joined";
  if (node.phase == "starting") return "5/6 agent";
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] == node.step) return fmt::format("{}/6 {}", i + 1, node.step);
  }
  return node.phase;
}

bool is_leaving(const std::string& phase) { return phase == "draining" || phase == "removing" || phase == "lost"; }

// Lines of somebody's output: each must not move the cursor, but they stay lines.
std::string clean_lines(const std::string& text) {
  std::vector<std::string> out;
  for (const std::string_view line : split(text, '\n')) out.push_back(clean(line));
  return join(out, "\n");
}

}  // namespace

std::string UpProgress::take(const api::Status& status, const std::vector<api::Event>& events, bool steps,
                             const Style& look) {
  if (!std::exchange(begun_, true)) {
    for (const api::Node& node : status.nodes) {
      if (node.phase == "requested") begun_before_.insert(node.id);
    }
  }
  std::string out;
  for (const api::Event& event : events) {
    const std::string error = raw_in(event.data, "error");
    const bool failed = event.type == "node-failed" || (event.type == "node-refreshed" && !error.empty());
    if (!failed && event.type != "node-lost") continue;
    const std::string why = failed ? error : raw_in(event.data, "reason");
    const std::string node = event.node.value_or("");
    if (begun_before_.erase(node) == 0) failures_[node] = why;
    const int64_t code = int_in(event.data, "code");
    if (code == static_cast<int>(cluster::LaunchFailure::kNoCapacity) ||
        code == static_cast<int>(cluster::LaunchFailure::kQuota)) {
      scarce_.insert(node);
    }
    // The error of a set-up names the node and the step first: that is said once.
    const auto rest = strip_prefix(why, fmt::format("node {} failed", node));
    out += paint(fmt::format("  {} failed", node), Hue::kRed, look.colour) +
           clean_lines(rest ? std::string(*rest) : ": " + why) + "\n";
  }
  up_ = pending_ = 0;
  for (const api::Node& node : status.nodes) {
    up_ += node.phase == "up" ? 1 : 0;
    pending_ += (node.phase != "up" && !is_leaving(node.phase)) || node.updating ? 1 : 0;
    const std::string step = step_text(node);
    const std::string detail = node.phase == "up" ? "" : node.detail;
    // A step is told once, and each time that it has to be tried again.
    const std::string told = detail.starts_with("attempt ") ? step + detail : step;
    std::string& printed = steps_[node.id];
    if (told == printed || (told == step && printed.starts_with(step))) continue;
    const bool first_sight = printed.empty() && node.phase == "up";
    printed = told;
    if (steps && !first_sight)
      out += fmt::format("  {}  {}{}\n", pad(node.id, 12), step, detail.empty() ? "" : ": " + detail);
  }
  if (pending_ > 0) quiet_since_.reset();
  if (pending_ == 0 && !quiet_since_) quiet_since_ = look.now;
  quiet_ = quiet_since_ ? Duration(look.now - *quiet_since_) : 0s;
  return out;
}

std::vector<std::string> UpProgress::live(const api::Status& status, const Style& look) const {
  std::vector<std::string> out;
  size_t more = 0;
  for (const api::Node& node : status.nodes) {
    if (node.phase == "up" && !node.updating) continue;
    if (out.size() == kLiveNodes) {
      ++more;
      continue;
    }
    std::string line = fmt::format("  {}  {}  {}", pad(node.id, 12), pad(step_text(node), 18),
                                   node.since == WallTime{} ? "" : age_text(look.now - node.since));
    const std::string& about = node.detail.empty() ? node.why : node.detail;
    if (!about.empty()) line += "  " + about;
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

#include "reconcile/settings.h"

#include <fmt/format.h>

namespace rubato::reconcile {
namespace {

std::string text_of(int value) { return fmt::format("{}", value); }
std::string text_of(int64_t value) { return fmt::format("{}", value); }
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(bool value) { return value ? "on" : "off"; }
std::string text_of(Duration value) { return format_duration(value); }
std::string text_of(SpotPolicy value) { return std::string(to_string(value)); }
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "none";
}

class Differences {
 public:
  template <class T>
  void compare(const std::string& name, const T& before, const T& after) {
    if (before == after) return;
    out_.push_back({"setting", name, 0, fmt::format("{} → {}", text_of(before), text_of(after))});
  }
  void changed(const std::string& name, const std::string& why) { out_.push_back({"setting", name, 0, why}); }
  std::vector<PlannedChange> take() { return std::move(out_); }

 private:
  std::vector<PlannedChange> out_;
};

}  // namespace

std::vector<PlannedChange> setting_changes(const ClusterSpec& before, const ClusterSpec& after) {
  Differences out;
  const Scaling& old = before.scaling;
  const Scaling& now = after.scaling;
  // Without a limit of its own a cluster may have as many as its types: theirs are told elsewhere.
  if (!before.max_where.empty() && !after.max_where.empty())
    out.compare("max_workers of the cluster", before.max_workers, after.max_workers);
  out.compare("idle_timeout", old.idle_timeout, now.idle_timeout);
  out.compare("upscaling_speed", old.upscaling_speed, now.upscaling_speed);
  out.compare("initial_workers", old.initial_workers, now.initial_workers);
  out.compare("target_utilization_fraction", old.target_utilization, now.target_utilization);
  out.compare("autoscaling_mode aggressive", old.aggressive, now.aggressive);
  out.compare("spot", old.spot, now.spot);
  out.compare("on_demand_base", old.on_demand_base, now.on_demand_base);
  out.compare("price_cap", old.price_cap, now.price_cap);
  out.compare("budget_per_hour", old.budget_per_hour, now.budget_per_hour);
  out.compare("budget", old.budget, now.budget);
  out.compare("launch_concurrency", old.launch_concurrency, now.launch_concurrency);
  out.compare("lease", before.lease, after.lease);
  out.compare("consolidate_after", old.consolidate_after, now.consolidate_after);
  for (const auto& [name, type] : after.types) {
    const auto was = before.types.find(name);
    if (was == before.types.end()) {
      if (type.min_workers == 0) out.changed("node type " + name, "new");
      continue;
    }
    out.compare("idle_timeout of " + name, was->second.idle_timeout, type.idle_timeout);
    out.compare("priority of " + name, was->second.priority, type.priority);
    if (was->second.offerings != type.offerings) out.changed("zones and prices of " + name, "changed");
  }
  for (const auto& [name, type] : before.types) {
    if (!after.types.contains(name)) out.changed("node type " + name, "no longer in the file");
  }
  return out.take();
}

}  // namespace rubato::reconcile

#include "reconcile/autoscale.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "policy/scale.h"
#include "reconcile/consolidate.h"
#include "reconcile/scale_input.h"

namespace rubato::reconcile {

using cluster::Event;
using cluster::later;
using cluster::Node;
using cluster::NodeRemoving;
using cluster::NodeRequested;
using cluster::Reasons;
using cluster::ScaleHeld;
using cluster::State;
using cluster::Wake;
using policy::ScaleLimit;
using policy::ScalePlan;
using policy::ScaleReason;

namespace {

constexpr size_t kNamedMax = 5;

// Where the file says it.
std::string where_of(const ClusterSpec& spec, ScaleLimit limit, const std::string& type) {
  const auto known = spec.types.find(type);
  switch (limit) {
    case ScaleLimit::kTypeMax:
      return known == spec.types.end() ? "" : known->second.max_where;
    case ScaleLimit::kTooLarge:
      return known == spec.types.end() ? "" : known->second.resources_where;
    case ScaleLimit::kMax:
      return spec.max_where;
    case ScaleLimit::kUpscalingSpeed:
      return spec.scaling.speed_where;
    case ScaleLimit::kConcurrency:
      return spec.scaling.concurrency_where;
    case ScaleLimit::kSpotPolicy:
      return spec.scaling.spot_where;
    case ScaleLimit::kPriceCap:
      return spec.scaling.cap_where;
    case ScaleLimit::kBudget:
      return spec.scaling.budget_where;
    default:
      return "";
  }
}

const ScaleReason* reason_of(const ScalePlan& plan, ScaleReason::Kind kind, const std::string& subject) {
  for (const ScaleReason& reason : plan.reasons) {
    if (reason.kind == kind && reason.subject == subject) return &reason;
  }
  return nullptr;
}

// The plan has one reason for each launch, in the same order.
Reasons launch_reasons(const State& state, const ScalePlan& plan, size_t index) {
  const policy::PlannedLaunch& launch = plan.launches[index];
  Reasons out;
  out.wanted = launch.why;
  size_t at = 0;
  for (const ScaleReason& reason : plan.reasons) {
    if (reason.kind != ScaleReason::Kind::kLaunch || at++ != index) continue;
    if (!reason.text.empty()) out.wanted = reason.text;
    out.changes = reason.changes;
    for (const ScaleReason::Against& one : reason.against)
      out.others.push_back({one.whole(), where_of(*state.spec, one.limit, one.type)});
  }
  return out;
}

// For whom: "min_workers of 'n' is 2", "room for 4 waiting bundles (job j-1)".
std::string launch_reason(const State& state, const policy::ScaleInput& input, const ScalePlan& plan, size_t index) {
  const policy::PlannedLaunch& launch = plan.launches[index];
  if (launch.for_minimum)
    return fmt::format("min_workers of '{}' is {}", launch.type, state.spec->types.at(launch.type).min_workers);
  std::set<std::string> names;
  for (const policy::Placement& one : plan.placements) {
    const bool here = one.on == policy::Placement::On::kLaunch && one.index == index && one.gang >= 0;
    if (here && names.size() <= kNamedMax) names.insert(input.gangs[static_cast<size_t>(one.gang)].name);
  }
  if (names.empty()) return launch.why;
  const bool more = names.size() > kNamedMax;
  if (more) names.erase(std::prev(names.end()));
  return fmt::format("{} ({}{})", launch.why, join(std::vector<std::string>(names.begin(), names.end()), ", "),
                     more ? " and others" : "");
}

void add_launches(const State& state, const policy::ScaleInput& input, const ScalePlan& plan,
                  std::vector<Event>& events) {
  std::map<std::string, uint64_t> next = state.next_node;
  for (size_t index = 0; index < plan.launches.size(); ++index) {
    const policy::PlannedLaunch& launch = plan.launches[index];
    const NodeType& type = state.spec->types.at(launch.type);
    NodeRequested request;
    request.type = type.name;
    request.hash = launch_hash(*state.spec, type);
    request.runtime = type.runtime;
    request.why = launch_reason(state, input, plan, index);
    request.offering.zone = launch.zone;
    request.offering.market = launch.market;
    for (const Offering& one : offerings_of(type)) {
      if (one.zone == launch.zone && one.market == request.offering.market)
        request.offering.price_per_hour = price_of(state, type, one);
    }
    request.reasons = launch_reasons(state, plan, index);
    for (int i = 0; i < launch.count; ++i) {
      request.node = NodeId{fmt::format("{}-{}", node_stem(type), ++next[type.name])};
      events.emplace_back(request);
    }
  }
}

void add_removals(const State& state, const ScalePlan& plan, WallTime now, std::vector<Event>& events) {
  for (const policy::PlannedTermination& one : plan.terminations) {
    const auto it = state.nodes.find(one.id);
    if (it == state.nodes.end() || it->second.head || it->second.idle_since == WallTime{}) continue;
    const Node& node = it->second;
    const Duration timeout = idle_timeout(*state.spec, node.type);
    NodeRemoving removing;
    removing.node = node.id;
    removing.reason = fmt::format("nothing to do for {}", format_duration(now - node.idle_since));
    removing.reasons.wanted =
        fmt::format("no node without work for longer than {} (idle_timeout)", format_duration(timeout));
    if (const ScaleReason* reason = reason_of(plan, ScaleReason::Kind::kTerminate, node.id.value)) {
      for (const ScaleReason::Against& against : reason->against)
        removing.reasons.others.push_back({against.whole(), where_of(*state.spec, against.limit, node.type)});
      removing.reasons.changes = reason->changes;
    }
    events.emplace_back(std::move(removing));
  }
}

// The demand that gets no node, and what it is up against: each limit once.
Reasons held_reasons(const State& state, const ScalePlan& plan) {
  Reasons out;
  std::vector<std::string> wanted;
  int64_t more = 0;
  for (const policy::Unfulfilled& one : plan.unfulfilled) {
    if (wanted.size() < kNamedMax) {
      const std::string what = fmt::format("{}×{}", one.count, describe(one.each));
      wanted.push_back(one.gang.empty() ? what : fmt::format("{} ({})", what, one.gang));
    } else {
      ++more;
    }
    const bool known = std::ranges::any_of(out.against, [&](const auto& other) { return other.text == one.why; });
    if (known || out.against.size() >= kNamedMax) continue;
    // What no type holds is for the only type's size to answer, where there is one only.
    const auto& types = state.spec->types;
    const std::string type = one.type.empty() && types.size() == 1 ? types.begin()->first : one.type;
    out.against.push_back({one.why, where_of(*state.spec, one.limit, type)});
  }
  // A type whose min_workers cannot be had is no demand, but waits all the same.
  for (const ScaleReason& reason : plan.reasons) {
    if (reason.kind != ScaleReason::Kind::kUnfulfilled || !state.spec->types.contains(reason.subject)) continue;
    wanted.push_back(fmt::format("min_workers of '{}'", reason.subject));
    out.against.push_back({reason.text, state.spec->types.at(reason.subject).min_where});
  }
  out.wanted = join(wanted, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
  for (const ScaleReason& reason : plan.reasons) {
    if (reason.kind != ScaleReason::Kind::kUnfulfilled) continue;
    for (const ScaleReason::Against& one : reason.against) {
      if (out.others.size() == kNamedMax) break;
      out.others.push_back({one.whole(), where_of(*state.spec, one.limit, one.type)});
    }
    for (const std::string& change : reason.changes) {
      if (out.changes.size() < kNamedMax && std::ranges::count(out.changes, change) == 0) out.changes.push_back(change);
    }
  }
  return out;
}

std::vector<std::string> kinds(const Reasons& reasons) {
  std::vector<std::string> places;
  for (const Reasons::Obstacle& one : reasons.against) places.push_back(one.where);
  return places;
}

// Numbers in it change all the time; which limit binds seldom does.
void add_held(const State& state, const ScalePlan& plan, WallTime now, Wake& wake, std::vector<Event>& events) {
  const Reasons reasons = held_reasons(state, plan);
  if (cluster::digest(reasons) == state.held_digest || (state.held_at == 0 && reasons.against.empty())) return;
  const WallTime again = later(state.held_time, kHeldAgain);
  const bool same_kind = !reasons.against.empty() && kinds(reasons) == kinds(state.held);
  if (state.held_at != 0 && same_kind && now < again) {
    wake.by(again);
    return;
  }
  events.emplace_back(ScaleHeld{reasons});
}

}  // namespace

std::vector<Event> advance_scale(const State& state, WallTime now, Wake& wake) {
  std::vector<Event> events;
  if (!state.spec || state.shutting_down) return events;
  const policy::ScaleInput input = scale_input(state, now, wake);
  const ScalePlan plan = policy::plan_scale(input);
  add_launches(state, input, plan, events);
  add_removals(state, plan, now, events);
  add_held(state, plan, now, wake, events);
  const bool quiet = events.empty() && plan.unfulfilled.empty() && input.launching.empty() && input.gangs.empty() &&
                     input.demands.empty();
  if (quiet) {
    if (std::optional<Event> event = consolidate(state, now, wake)) events.push_back(std::move(*event));
  }
  return events;
}

Duration scale_every(const State& state) {
  // A tenth of a second; a second and more where a plan takes tens of milliseconds.
  return 100ms + 100us * static_cast<int64_t>(state.nodes.size() + state.queued.size());
}

std::vector<Event> advance_scale_when_due(const State& state, PlanMemory& memory, WallTime now, Wake& wake) {
  if (memory.answers(state, now)) {
    if (memory.due) wake.by(*memory.due);
    return {};
  }
  const WallTime next = later(memory.at, scale_every(state));
  if (memory.seen != UINT64_MAX && now < next) {
    wake.by(next);
    return {};
  }
  Wake due;
  std::vector<Event> events = advance_scale(state, now, due);
  memory.seen = state.scale_changes;
  memory.at = now;
  memory.due = due.at;
  if (due.at) wake.by(*due.at);
  return events;
}

}  // namespace rubato::reconcile

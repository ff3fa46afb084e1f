#include "policy/scale_explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/text.h"

namespace rubato::policy {
namespace {

using Kind = ScaleReason::Kind;

std::string bundles_text(int64_t count) { return fmt::format("{} {}", count, count == 1 ? "bundle" : "bundles"); }

std::string offering_text(const PlannedLaunch& launch) {
  std::string text(launch.market == Market::kSpot ? "spot" : "on demand");
  if (!launch.zone.empty()) text += " in " + launch.zone;
  return text;
}

// What a group of new nodes holds.
struct Load {
  int64_t bundles = 0;
  std::vector<double> total, largest;  // by dimension; `largest` is of several bundles
  bool wanted = false;                 // some are there for min_workers or a request
};

Load load_of(const ScaleProblem& problem, const Draft& draft, const std::vector<size_t>& nodes) {
  Load load;
  load.total.assign(problem.dimensions.size(), 0);
  load.largest = load.total;
  const auto add = [&](std::span<const double> need, int64_t count) {
    load.bundles += count;
    for (size_t dim = 0; dim < need.size(); ++dim) {
      load.total[dim] += need[dim] * static_cast<double>(count);
      load.largest[dim] = std::max(load.largest[dim], need[dim]);
    }
  };
  const Work& work = draft.work(problem);
  for (const size_t at : nodes) {
    const PackNode& node = draft.packing.nodes[at];
    load.wanted |= node.wanted;
    for (const Pick& pick : node.picks) add(work.shapes.of(pick.shape), pick.count);
    for (const GangSeat& seat : node.seats) {
      const Gang& gang = problem.input.gangs[static_cast<size_t>(seat.gang)];
      add(problem.dimensions.amounts(gang.bundles[seat.bundles].each), seat.count);
    }
  }
  return load;
}

// Why another type was not taken for the same bundles.
ScaleReason::Against why_not_type(const ScaleProblem& problem, const Draft& draft, size_t own, size_t type,
                                  const Load& load, double cost) {
  const Supply& supply = draft.packing.supply;
  const std::string& name = supply.name(type);
  const auto refused = [&](ScaleLimit limit, std::string text) {
    return ScaleReason::Against{limit, name, name, std::move(text)};
  };
  const std::vector<double>& room = problem.rooms[type];
  for (size_t dim = 0; dim < room.size(); ++dim) {
    if (load.largest[dim] <= room[dim]) continue;
    std::vector<double> lacks(room.size(), 0);
    lacks[dim] = load.largest[dim];
    return refused(ScaleLimit::kTooLarge,
                   fmt::format("too small, a bundle needs {}", describe(problem.dimensions.resources(lacks))));
  }
  const auto price = supply.usual_price(type);
  if (!price || !supply.price(type)) return refused(supply.limit(type), supply.limit_text(type));
  if (const int64_t lower = supply.type(type).priority, higher = supply.type(own).priority; lower < higher) {
    return refused(ScaleLimit::kDearer,
                   fmt::format("its priority {} is below {} of {}", lower, higher, supply.name(own)));
  }
  double nodes = 1;
  for (size_t dim = 0; dim < room.size(); ++dim) {
    if (load.total[dim] > 0) nodes = std::max(nodes, std::ceil(load.total[dim] / room[dim] - 1e-9));
  }
  const double least = nodes * *price;
  if (least > cost + 1e-9) {
    return refused(ScaleLimit::kDearer, fmt::format("at least {:.0f} of them, {}/h", nodes, dollars(least)));
  }
  return refused(ScaleLimit::kDearer,
                 fmt::format("no cheaper; {:.0f} of them ({}/h) have the room on paper only", nodes, dollars(least)));
}

// What max_workers would have to be; worked out only where that takes no time.
std::string without_max_workers(const ScaleProblem& problem, const Draft& draft) {
  constexpr size_t kWorkMax = 200'000;  // shapes x nodes
  ScaleInput lifted = problem.input;
  size_t nodes = problem.nodes.size() + 1;
  for (const ScaleFull& one : problem.input.full) nodes += static_cast<size_t>(one.count);
  if (problem.work.counts.size() * nodes <= kWorkMax) {
    lifted.max_workers = std::numeric_limits<int>::max();
    const ScaleProblem other(lifted);
    const Draft enough = best_draft(other);
    if (enough.left < draft.left) {
      return fmt::format("max_workers of {}: {} more, the launches would cost {}/h", enough.packing.supply.workers(),
                         enough.packing.supply.workers() - problem.input.max_workers, dollars(enough.cost));
    }
  }
  return fmt::format("max_workers above {}", problem.input.max_workers);
}

std::vector<std::string> changes_for(const ScaleProblem& problem, const Draft& draft, const Unfulfilled& one) {
  const Supply& supply = draft.packing.supply;
  const Binding binding = binding_limit(supply, problem.rooms, problem.dimensions.amounts(one.each));
  switch (one.limit) {
    case ScaleLimit::kTooLarge:
      return {fmt::format("a node type with at least {}", describe(one.each))};
    case ScaleLimit::kMax:
      return {without_max_workers(problem, draft)};
    case ScaleLimit::kTypeMax:
      if (!binding.type) return {};
      return {fmt::format("max_workers of {} above {}", supply.name(*binding.type),
                          supply.type(*binding.type).max_workers)};
    case ScaleLimit::kUpscalingSpeed:
      return {"nothing: it goes on when the launches under way are up", "a higher upscaling_speed"};
    case ScaleLimit::kConcurrency:
      return {"nothing: it goes on when the launches under way are up", "a higher launch_concurrency"};
    case ScaleLimit::kBlocked:
      return {"nothing: it is tried again", "another zone, market or node type"};
    case ScaleLimit::kOfferingLimit:
      return {"a higher limit at the provider", "another zone, market or node type"};
    case ScaleLimit::kSpotPolicy:
      return {"spot: prefer"};
    case ScaleLimit::kPriceCap:
      return {"a higher price_cap"};
    case ScaleLimit::kBudget:
      if (!binding.type) return {};
      return {fmt::format("budget_per_hour of {} or more",
                          dollars(supply.cost() + supply.usual_price(*binding.type).value_or(0)))};
    case ScaleLimit::kNone:
    case ScaleLimit::kDearer:
      break;
  }
  return {};
}

}  // namespace

std::string dollars(double amount) {
  if (amount >= 1000) return fmt::format("${:.0f}", amount);
  if (amount >= 1) return fmt::format("${:.2f}", amount);
  return fmt::format("${:.3g}", amount);
}

ScaleReason why_launch(const ScaleProblem& problem, const Draft& draft, const PlannedLaunch& launch,
                       const std::vector<size_t>& nodes) {
  const Load load = load_of(problem, draft, nodes);
  const double cost = launch.count * launch.price_per_hour;
  ScaleReason reason{.kind = Kind::kLaunch, .subject = launch.type};
  reason.text = fmt::format("{} x {} {} at {}/h{}: {}", launch.count, launch.type, offering_text(launch),
                            dollars(launch.price_per_hour), launch.estimated ? " (estimated)" : "", launch.why);
  const Supply& supply = draft.packing.supply;
  const size_t own = *supply.find(launch.type);
  reason.against = supply.refusals(own);
  if (load.bundles == 0) return reason;
  for (size_t type = 0; type < supply.types(); ++type) {
    if (type == own || supply.type(type).max_workers == 0) continue;
    reason.against.push_back(why_not_type(problem, draft, own, type, load, cost));
  }
  return reason;
}

std::vector<ScaleReason> why_unfulfilled(const ScaleProblem& problem, const Draft& draft,
                                         const std::vector<Unfulfilled>& unfulfilled) {
  struct Group {
    const Unfulfilled* first = nullptr;
    int64_t bundles = 0;
    std::set<Resources> sizes;
  };
  std::map<std::tuple<ScaleLimit, std::string, std::string>, Group> groups;
  for (const Unfulfilled& one : unfulfilled) {
    Group& group = groups[{one.limit, one.why, one.gang}];
    if (group.first == nullptr) group.first = &one;
    group.bundles += one.count;
    group.sizes.insert(one.each);
  }
  std::vector<ScaleReason> out;
  for (const auto& [key, group] : groups) {
    const Unfulfilled& one = *group.first;
    ScaleReason reason{.kind = Kind::kUnfulfilled, .subject = describe(one.each)};
    reason.text =
        fmt::format("{}{}{} {}: {}", bundles_text(group.bundles),
                    group.sizes.size() > 1 ? fmt::format(" of {} sizes", group.sizes.size()) : "",
                    one.gang.empty() ? "" : " of " + one.gang, group.bundles == 1 ? "waits" : "wait", one.why);
    const std::vector<double> need = problem.dimensions.amounts(one.each);
    const Supply& supply = draft.packing.supply;
    for (size_t type = 0; type < supply.types(); ++type) {
      if (supply.type(type).max_workers == 0) continue;
      const bool small = !fits(need, problem.rooms[type]);
      if (!small && supply.limit(type) == ScaleLimit::kNone) continue;  // it is no obstacle
      reason.against.push_back({small ? ScaleLimit::kTooLarge : supply.limit(type), supply.name(type),
                                supply.name(type), small ? "too small" : supply.limit_text(type)});
    }
    reason.changes = changes_for(problem, draft, one);
    out.push_back(std::move(reason));
  }
  return out;
}

ScaleReason why_min_workers(const ScaleProblem& problem, const Binding& binding) {
  const std::string& type = problem.supply.name(*binding.type);
  return {.kind = Kind::kUnfulfilled,
          .subject = type,
          .text = fmt::format("{} workers of {} are wanted, but {}", least_workers(problem.input, type), type,
                              binding.text),
          .against = {{binding.limit, type, "", binding.text}}};
}

ScaleReason why_cost(const ScalePlan& plan) {
  ScaleReason reason{.kind = Kind::kCost, .subject = "cluster"};
  reason.text = fmt::format("the launches cost {}/h, the cluster then {}/h{}", dollars(plan.cost_per_hour),
                            dollars(plan.cluster_cost_per_hour), plan.estimated ? "; some prices are estimated" : "");
  if (plan.estimated) reason.changes.emplace_back("prices that are given: price_per_hour of the node types");
  return reason;
}

}  // namespace rubato::policy

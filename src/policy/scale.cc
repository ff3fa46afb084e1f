#include "policy/scale.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "core/error.h"
#include "policy/scale_explain.h"
#include "policy/scale_outcome.h"

namespace rubato::policy {
namespace {

[[noreturn]] void refuse(std::string message) { throw Error(ErrorCode::kUsage, std::move(message)); }

void check_bundles(const std::vector<Bundles>& list, std::string_view what) {
  constexpr int64_t kMost = 1'000'000'000;
  for (const Bundles& one : list) {
    if (one.count < 0 || one.count > kMost) refuse(fmt::format("{} {} are too many, or too few", one.count, what));
  }
}

void check(const ScaleInput& input) {
  if (!input.head_type.empty() && !input.types.contains(input.head_type)) {
    refuse(fmt::format("the head's type '{}' is not among the node types", input.head_type));
  }
  if (input.max_workers < 0) refuse("max_workers is negative");
  if (!(input.upscaling_speed >= 0)) refuse("upscaling_speed is negative");
  for (const auto& [name, type] : input.types) {
    if (type.min_workers < 0 || type.max_workers < 0) refuse(fmt::format("a limit of {} is negative", name));
    if (type.price_per_hour && !(*type.price_per_hour >= 0)) refuse(fmt::format("the price of {} is negative", name));
    std::set<std::pair<std::string, Market>> seen;
    for (const Offering& one : type.offerings) {
      if (!seen.emplace(one.zone, one.market).second) refuse(fmt::format("{} has an offering twice", name));
      if (one.price_per_hour && !(*one.price_per_hour >= 0)) refuse(fmt::format("a price of {} is negative", name));
    }
  }
  for (const ScaleLaunching& one : input.launching) {
    if (one.count < 0) refuse("a number of launching nodes is negative");
  }
  for (const ScaleFull& one : input.full) {
    if (one.count < 0) refuse("a number of full nodes is negative");
  }
  if (!input.full.empty() && (input.legacy || !input.requests.empty())) refuse("full nodes are needed one by one");
  if (input.legacy && !(input.legacy->target_utilization_fraction > 0)) {
    refuse("target_utilization_fraction must be above 0");
  }
  check_bundles(input.demands, "demands");
  check_bundles(input.requests, "requests");
  for (const Gang& gang : input.gangs) check_bundles(gang.bundles, "bundles of a gang");
}

// The same type, offering and kind of reason together.
using LaunchGroups = std::map<std::tuple<std::string, std::string, Market>, std::vector<size_t>>;

LaunchGroups group_launches(const Draft& draft, const Outcome& outcome) {
  LaunchGroups groups;
  const Supply& supply = draft.packing.supply;
  for (size_t at = 0; at < draft.packing.nodes.size(); ++at) {
    if (!outcome.launched[at]) continue;
    const PackNode& node = draft.packing.nodes[at];
    const Offering& offering = supply.offering(node.type, node.offering);
    groups[{supply.name(node.type), offering.zone, offering.market}].push_back(at);
  }
  return groups;
}

// "2 for min_workers, room for 10 waiting bundles"
void explain_launch(const Draft& draft, const std::vector<size_t>& nodes, const std::vector<int64_t>& bundles,
                    PlannedLaunch& launch) {
  int wanted = 0, requested = 0;
  int64_t waiting = 0;
  for (const size_t at : nodes) {
    if (draft.packing.nodes[at].wanted) ++(draft.requested[at] ? requested : wanted);
    waiting += bundles[at];
  }
  std::string& text = launch.why;
  const auto add = [&](std::string part) { text += (text.empty() ? "" : ", ") + std::move(part); };
  if (wanted > 0) add(fmt::format("{} for min_workers", wanted));
  if (requested > 0) add(fmt::format("{} for an explicit request", requested));
  if (waiting > 0) add(fmt::format("room for {} waiting {}", waiting, waiting == 1 ? "bundle" : "bundles"));
  launch.for_minimum = wanted == launch.count && waiting == 0;
}

class PlanWriter {
 public:
  PlanWriter(const ScaleProblem& problem, const Draft& draft)
      : problem_(problem), draft_(draft), outcome_(outcome_of(problem, draft)) {}

  ScalePlan write() {
    write_launches();
    write_placements();
    write_unfulfilled();
    IdleDecisions idle = decide_idle(problem_, draft_, outcome_);
    plan_.terminations = std::move(idle.terminations);
    plan_.reasons.insert(plan_.reasons.end(), idle.reasons.begin(), idle.reasons.end());
    write_cost();
    return std::move(plan_);
  }

 private:
  void write_launches() {
    const Supply& supply = draft_.packing.supply;
    std::vector<int64_t> bundles(draft_.packing.nodes.size(), 0);
    for (const Seated& one : outcome_.seated) bundles[one.node] += one.count;
    launch_of_.resize(draft_.packing.nodes.size());
    for (const auto& [key, nodes] : group_launches(draft_, outcome_)) {
      const PackNode& first = draft_.packing.nodes[nodes.front()];
      PlannedLaunch launch{.type = std::get<0>(key), .zone = std::get<1>(key), .market = std::get<2>(key)};
      launch.count = static_cast<int>(nodes.size());
      launch.price_per_hour = first.price;
      launch.estimated = supply.estimated(first.type, first.offering);
      explain_launch(draft_, nodes, bundles, launch);
      for (size_t at = 0; at < nodes.size(); ++at)
        launch_of_[nodes[at]] = {plan_.launches.size(), static_cast<int>(at)};
      plan_.cost_per_hour += launch.count * launch.price_per_hour;
      plan_.estimated |= launch.estimated;
      plan_.reasons.push_back(why_launch(problem_, draft_, launch, nodes));
      plan_.launches.push_back(std::move(launch));
    }
  }

  void write_placements() {
    for (const Seated& one : outcome_.seated) {
      if (outcome_.deferred[one.node] != ScaleLimit::kNone) continue;
      const PackNode& node = draft_.packing.nodes[one.node];
      Placement placement{.index = node.index, .ordinal = node.ordinal};
      placement.gang = one.gang;
      placement.bundles = one.bundles;
      placement.count = one.count;
      switch (node.origin) {
        case PackNode::Origin::kThere:
          break;
        case PackNode::Origin::kComing:
          placement.on = Placement::On::kLaunching;
          break;
        case PackNode::Origin::kOpened:
          placement.on = Placement::On::kLaunch;
          std::tie(placement.index, placement.ordinal) = launch_of_[one.node];
          break;
      }
      plan_.placements.push_back(placement);
    }
  }

  void write_unfulfilled() {
    std::vector<Unfulfilled>& out = plan_.unfulfilled;
    const Supply& supply = draft_.packing.supply;
    const Work& work = draft_.work(problem_);
    const auto left_over = [&](const Shapes& shapes, size_t shape, int64_t count, std::string gang) {
      Binding binding = binding_limit(supply, problem_.rooms, shapes.of(shape));
      out.push_back({problem_.dimensions.resources(shapes.of(shape)), count, binding.limit, type_of(binding),
                     std::move(binding.text), std::move(gang)});
    };
    for (size_t shape = 0; shape < draft_.request_left.size(); ++shape) {
      if (const int64_t left = draft_.request_left[shape]) left_over(problem_.requests.shapes, shape, left, "request");
    }
    for (const GangFailure& failure : draft_.failures) {
      const Gang& gang = problem_.input.gangs[failure.gang];
      const std::string name = gang.name.empty() ? fmt::format("gang {}", failure.gang + 1) : gang.name;
      for (const Bundles& one : gang.bundles) {
        if (one.count == 0) continue;
        const Binding& binding = failure.binding;
        out.push_back({one.each, one.count, binding.limit, type_of(binding), binding.text, name});
      }
    }
    for (size_t shape = 0; shape < work.counts.size(); ++shape) {
      if (const int64_t left = draft_.packing.stock.left(shape)) left_over(work.shapes, shape, left, "");
    }
    write_deferred();
    for (ScaleReason& reason : why_unfulfilled(problem_, draft_, out)) plan_.reasons.push_back(std::move(reason));
    write_deferred_nodes();
    for (const Binding& binding : draft_.min_failures) plan_.reasons.push_back(why_min_workers(problem_, binding));
  }

  std::string type_of(const Binding& binding) const {
    return binding.type ? draft_.packing.supply.name(*binding.type) : std::string();
  }

  // What was packed into nodes that have to wait; equal bundles together.
  void write_deferred() {
    const ScaleInput& input = problem_.input;
    std::map<std::tuple<Resources, ScaleLimit, size_t, std::string>, int64_t> counts;
    for (const Seated& one : outcome_.seated) {
      const ScaleLimit limit = outcome_.deferred[one.node];
      if (limit == ScaleLimit::kNone) continue;
      const bool demand = one.gang < 0;
      const Gang* const gang = demand ? nullptr : &input.gangs[static_cast<size_t>(one.gang)];
      const Resources& each = demand ? input.demands[one.bundles].each : gang->bundles[one.bundles].each;
      counts[{each, limit, draft_.packing.nodes[one.node].type, demand ? "" : gang->name}] += one.count;
    }
    for (const auto& [key, count] : counts) {
      const auto& [each, limit, type, gang] = key;
      const std::string& name = draft_.packing.supply.name(type);
      plan_.unfulfilled.push_back({each, count, limit, name, deferral(limit, name), gang});
    }
  }

  std::string deferral(ScaleLimit limit, const std::string& type) const {
    if (limit == ScaleLimit::kConcurrency) {
      return fmt::format("launch_concurrency is {}", *problem_.input.launch_concurrency);
    }
    return fmt::format("upscaling_speed: at most {} of {} are launched at a time", pending_max(problem_.input, type),
                       type);
  }

  // Nodes that min_workers or a request call for, but not now.
  void write_deferred_nodes() {
    std::map<std::pair<size_t, ScaleLimit>, int> counts;
    for (size_t at = 0; at < draft_.packing.nodes.size(); ++at) {
      const PackNode& node = draft_.packing.nodes[at];
      if (node.wanted && outcome_.deferred[at] != ScaleLimit::kNone) ++counts[{node.type, outcome_.deferred[at]}];
    }
    for (const auto& [key, count] : counts) {
      const std::string& type = draft_.packing.supply.name(key.first);
      const std::string why = deferral(key.second, type);
      plan_.reasons.push_back({.kind = ScaleReason::Kind::kUnfulfilled,
                               .subject = type,
                               .text = fmt::format("{} more of {} are wanted, but {}", count, type, why),
                               .against = {{key.second, type, "", why}}});
    }
  }

  void write_cost() {
    plan_.cluster_cost_per_hour = problem_.supply.cost() + plan_.cost_per_hour;
    std::map<std::string, const ScaleNode*> nodes;
    if (!plan_.terminations.empty()) {
      for (const ScaleNode& node : problem_.input.nodes) nodes[node.id.value] = &node;
    }
    for (const PlannedTermination& one : plan_.terminations) {
      const ScaleNode& node = *nodes.at(one.id.value);
      plan_.cluster_cost_per_hour -= problem_.supply.price_of(node.type, node.zone, node.market);
    }
    plan_.reasons.push_back(why_cost(plan_));
  }

  const ScaleProblem& problem_;
  const Draft& draft_;
  Outcome outcome_;
  std::vector<std::pair<size_t, int>> launch_of_;  // by node of the packing
  ScalePlan plan_;
};

}  // namespace

std::map<std::string, int> ScalePlan::launches_by_type() const {
  std::map<std::string, int> out;
  for (const PlannedLaunch& one : launches) out[one.type] += one.count;
  return out;
}

ScalePlan plan_scale(const ScaleInput& input) {
  check(input);
  const ScaleProblem problem(input);
  const Draft draft = best_draft(problem);
  return PlanWriter(problem, draft).write();
}

}  // namespace rubato::policy

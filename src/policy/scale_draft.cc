#include "policy/scale_draft.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rubato::policy {
namespace {

constexpr double kSame = 1e-9;

// Used / total of the scarcest resource.
double busiest(const Resources& total, const Resources& available) {
  double most = 0;
  for (const auto& [name, amount] : total.amounts()) {
    const auto used = static_cast<double>(std::max<int64_t>(0, amount - available.of(name)));
    most = std::max(most, used / static_cast<double>(amount));
  }
  return most;
}

int legacy_target(const ScaleInput& input, const LegacyScaling& legacy) {
  double used = 0;
  for (const ScaleNode& node : input.nodes) {
    const auto type = input.types.find(node.type);
    if (type == input.types.end() || !node.available) continue;
    used += busiest(type->second.resources, *node.available);
  }
  // Sums of thirds and tenths: 0.1 + 0.7 must not call for one node more than 0.8.
  int workers = static_cast<int>(std::ceil(used / legacy.target_utilization_fraction - kSame)) - 1;
  if (legacy.bringup || (legacy.aggressive && used > 0)) workers = std::max(workers, legacy.initial_workers);
  return workers;
}

bool all_free(const ScaleNode& node, const Resources& total) { return !node.available || *node.available == total; }

// Idle nodes beyond the limits take no more work. The longest idle go first.
std::vector<char> nodes_over(const ScaleInput& input) {
  std::map<std::string, int> of_type;
  int all = 0;
  std::vector<size_t> idle;
  for (size_t at = 0; at < input.nodes.size(); ++at) {
    const ScaleNode& node = input.nodes[at];
    if (node.head) continue;
    ++all;
    ++of_type[node.type];
    if (node.leaving) continue;
    const auto type = input.types.find(node.type);
    const bool free = type == input.types.end() ? !node.available : all_free(node, type->second.resources);
    if (free && node.keep.empty()) idle.push_back(at);
  }
  for (const ScaleFull& one : input.full) {
    all += one.count;
    of_type[one.type] += one.count;
  }
  for (const ScaleLaunching& one : input.launching) {
    all += one.count;
    of_type[one.type] += one.count;
  }
  std::sort(idle.begin(), idle.end(), [&](size_t a, size_t b) {
    const ScaleNode &x = input.nodes[a], &y = input.nodes[b];
    return x.idle != y.idle ? x.idle > y.idle : x.id < y.id;
  });
  // Those that leave already are on their way below the limit.
  for (const ScaleNode& node : input.nodes) {
    if (node.head || !node.leaving) continue;
    --all;
    --of_type[node.type];
  }
  std::vector<char> over(input.nodes.size(), false);
  for (const size_t at : idle) {
    const std::string& name = input.nodes[at].type;
    const auto type = input.types.find(name);
    const int most = type == input.types.end() ? 0 : type->second.max_workers;
    // The cluster's limit takes none that min_workers of its type keeps.
    const bool spare = of_type[name] > least_workers(input, name);
    if (of_type[name] <= most && (all <= input.max_workers || !spare)) continue;
    over[at] = true;
    --of_type[name];
    --all;
  }
  return over;
}

// In use before idle, so that idle nodes can go; the cheap ones first, so that work that needs no GPU is not put
// beside one.
void sort_for_filling(std::vector<PackNode>& nodes, const ScaleInput& input) {
  const auto key = [&](const PackNode& node) {
    const bool there = node.origin == PackNode::Origin::kThere;
    const Duration idle = there ? input.nodes[node.index].idle : Duration::max();
    return std::tuple(!there, idle > Duration{}, node.price, idle);
  };
  std::sort(nodes.begin(), nodes.end(), [&](const PackNode& a, const PackNode& b) {
    if (key(a) != key(b)) return key(a) < key(b);
    if (a.origin == PackNode::Origin::kThere) return input.nodes[a.index].id < input.nodes[b.index].id;
    return std::tuple(a.type, a.index, a.ordinal) < std::tuple(b.type, b.index, b.ordinal);
  });
}

Work make_work(const ScaleInput& input, const Dimensions& dimensions, bool with_gangs) {
  WorkBuilder builder(dimensions);
  for (size_t index = 0; with_gangs && index < input.gangs.size(); ++index) {
    const Gang& gang = input.gangs[index];
    const int number = static_cast<int>(index);
    if (gang.strategy == GangStrategy::kStrictSpread) continue;
    if (gang.strategy == GangStrategy::kStrictPack) {
      builder.add(sum_of(gang), {number, WorkSource::kWhole, 1});
      continue;
    }
    for (size_t at = 0; at < gang.bundles.size(); ++at) {
      builder.add(gang.bundles[at].each, {number, at, gang.bundles[at].count});
    }
  }
  for (size_t at = 0; at < input.demands.size(); ++at) {
    builder.add(input.demands[at].each, {-1, at, input.demands[at].count});
  }
  return builder.build();
}

Work make_requests(const ScaleInput& input, const Dimensions& dimensions) {
  WorkBuilder builder(dimensions);
  for (size_t at = 0; at < input.requests.size(); ++at) {
    builder.add(input.requests[at].each, {-1, at, input.requests[at].count});
  }
  return builder.build();
}

}  // namespace

int least_workers(const ScaleInput& input, const std::string& type) {
  const auto found = input.types.find(type);
  if (found == input.types.end()) return 0;
  int least = found->second.min_workers;
  if (input.legacy && input.legacy->worker_type == type) {
    least = std::max(least, std::min(found->second.max_workers, legacy_target(input, *input.legacy)));
  }
  return least;
}

ScaleProblem::ScaleProblem(const ScaleInput& in)
    : input(in),
      dimensions(in),
      supply(in),
      over(nodes_over(in)),
      work(make_work(in, dimensions, true)),
      requests(make_requests(in, dimensions)) {
  for (size_t type = 0; type < supply.types(); ++type) rooms.push_back(dimensions.amounts(supply.type(type).resources));
  for (size_t at = 0; at < in.nodes.size(); ++at) {
    const ScaleNode& node = in.nodes[at];
    const auto type = supply.find(node.type);
    if (!type || node.leaving || over[at]) continue;
    PackNode out{.index = at, .type = *type, .price = supply.price_of(node.type, node.zone, node.market)};
    out.room = node.available ? dimensions.amounts(*node.available) : rooms[*type];
    nodes.push_back(std::move(out));
  }
  for (size_t at = 0; at < in.launching.size(); ++at) {
    const ScaleLaunching& one = in.launching[at];
    const auto type = supply.find(one.type);
    if (!type) continue;
    PackNode out{.origin = PackNode::Origin::kComing, .index = at, .type = *type, .fresh = true};
    out.price = supply.price_of(one.type, one.zone, one.market);
    out.room = rooms[*type];
    for (out.ordinal = 0; out.ordinal < one.count; ++out.ordinal) nodes.push_back(out);
  }
  sort_for_filling(nodes, in);
  aside.resize(dimensions.size(), 0);
  for (const ScaleFull& one : in.full) {
    const std::vector<double> left = dimensions.amounts(one.left);
    for (size_t dim = 0; dim < left.size(); ++dim) aside[dim] = std::max(aside[dim], left[dim]);
  }
  if (!in.gangs.empty()) demands = make_work(in, dimensions, false);
}

Draft::Draft(const ScaleProblem& problem)
    : packing(problem.supply, Stock(problem.work.shapes, problem.work.counts, kStockCells), problem.rooms) {}

void weigh_draft(const ScaleProblem& problem, Draft& draft) {
  std::vector<double> left = draft.packing.stock.total();
  draft.left_bundles = draft.packing.stock.left();
  const auto add = [&](std::span<const double> need, int64_t count) {
    draft.left_bundles += count;
    for (size_t dim = 0; dim < left.size(); ++dim) left[dim] += need[dim] * static_cast<double>(count);
  };
  for (const GangFailure& failure : draft.failures) {
    for (const Bundles& one : problem.input.gangs[failure.gang].bundles) {
      add(problem.dimensions.amounts(one.each), one.count);
    }
  }
  for (size_t shape = 0; shape < draft.request_left.size(); ++shape) {
    add(problem.requests.shapes.of(shape), draft.request_left[shape]);
  }
  const std::vector<double> values = draft.packing.values({.dual = 0}, left);
  draft.left = std::inner_product(left.begin(), left.end(), values.begin(), 0.0);
  draft.cost = draft.packing.opened_cost();
}

}  // namespace rubato::policy

#include "policy/scale_draft.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "policy/scale_outcome.h"

namespace rubato::policy {
namespace {

// The cells of a stock: so many keep a hundred thousand shapes within 2 % of the linear program's bound.
constexpr size_t kCells = 600;
// Small problems are packed in several styles; one style of a large one is good enough, and takes long enough.
constexpr double kSmall = 50'000;      // cells x bundles / 8
constexpr size_t kWishesMax = 50'000;  // gangs x nodes
constexpr int kSettleRounds = 8;
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
    : packing(problem.supply, Stock(problem.work.shapes, problem.work.counts, kCells), problem.rooms) {}

namespace {

class Drafter {
 public:
  Drafter(const ScaleProblem& problem, const Draft& start) : problem_(problem), start_(start) {}

  Draft make(const DraftStyle& style) const {
    Draft draft = start_;
    draft.style = style;
    if (style.requests_first) serve_requests(draft);
    if (problem_.input.gangs.empty()) {
      draft.packing.pack(style.pack);
    } else if (surely_short(draft)) {
      serve_gang_by_gang(draft);
    } else {
      Draft together = draft;
      if (!style.heed_wishes) serve_together(together);
      if (style.heed_wishes || gang_is_short(together)) {
        serve_gang_by_gang(draft);
      } else {
        draft = std::move(together);
      }
    }
    if (!style.requests_first) serve_requests(draft);
    draft.requested.resize(draft.packing.nodes.size(), false);
    weigh(draft);
    return draft;
  }

 private:
  // Requests ask what nodes can hold, not what is free there.
  void serve_requests(Draft& draft) const {
    if (problem_.requests.counts.empty()) return;
    Packing whole(draft.packing.supply, Stock(problem_.requests.shapes, problem_.requests.counts, kCells),
                  problem_.rooms);
    for (const PackNode& node : draft.packing.nodes) {
      PackNode all = node;
      all.room = problem_.rooms[node.type];
      all.picks.clear();
      all.seats.clear();
      all.fresh = node.fresh && node.picks.empty();
      whole.nodes.push_back(std::move(all));
    }
    const size_t before = whole.nodes.size();
    whole.pack(draft.style.pack);
    draft.requested.assign(whole.nodes.size(), false);
    for (size_t at = 0; at < whole.nodes.size(); ++at) draft.requested[at] = !whole.nodes[at].picks.empty();
    draft.request_left = whole.stock.counts();
    draft.packing.supply = whole.supply;
    for (size_t at = before; at < whole.nodes.size(); ++at) {
      PackNode node = whole.nodes[at];
      node.room = problem_.rooms[node.type];
      node.picks.clear();
      node.fresh = true;
      node.wanted = true;
      draft.packing.nodes.push_back(std::move(node));
    }
  }

  // All demands and gangs at once. It is the cheapest way, and right when no gang is left with a part.
  void serve_together(Draft& draft) const {
    GangSeater seater(problem_.dimensions, problem_.rooms, draft.style.pack, kCells, false);
    for (size_t at = 0; at < problem_.input.gangs.size(); ++at) {
      const Gang& gang = problem_.input.gangs[at];
      if (gang.strategy != GangStrategy::kStrictSpread) continue;
      if (auto binding = seater.seat(draft.packing, gang, static_cast<int>(at)))
        draft.failures.push_back({at, *binding});
    }
    draft.packing.pack(draft.style.pack);
  }

  // Some gang has no room though it had all that is there to itself.
  bool surely_short(const Draft& draft) const {
    GangSeater seater(problem_.dimensions, problem_.rooms, draft.style.pack, kCells, false);
    return std::ranges::any_of(problem_.input.gangs, [&](const Gang& gang) {
      const bool strict = gang.strategy == GangStrategy::kStrictPack || gang.strategy == GangStrategy::kStrictSpread;
      return !strict && seater.no_room(draft.packing, gang);
    });
  }

  // What is left is taken from the demands first.
  bool gang_is_short(const Draft& draft) const {
    const Work& work = problem_.work;
    for (size_t shape = 0; shape < work.counts.size(); ++shape) {
      if (draft.packing.stock.left(shape) == 0) continue;
      int64_t of_demands = 0;
      for (const WorkSource& source : work.of(shape)) of_demands += source.gang < 0 ? source.count : 0;
      if (draft.packing.stock.left(shape) > of_demands) return true;
    }
    return false;
  }

  void serve_gang_by_gang(Draft& draft) const {
    draft.gangs_apart = true;
    draft.packing.stock = Stock(problem_.demands.shapes, problem_.demands.counts, kCells);
    GangSeater seater(problem_.dimensions, problem_.rooms, draft.style.pack, kCells, draft.style.heed_wishes);
    for (size_t at = 0; at < problem_.input.gangs.size(); ++at) {
      auto binding = seater.seat(draft.packing, problem_.input.gangs[at], static_cast<int>(at));
      if (binding) draft.failures.push_back({at, *binding});
    }
    draft.packing.pack(draft.style.pack);
  }

  void weigh(Draft& draft) const {
    std::vector<double> left = draft.packing.stock.total();
    for (const GangFailure& failure : draft.failures) {
      for (const Bundles& one : problem_.input.gangs[failure.gang].bundles) {
        const auto need = problem_.dimensions.amounts(one.each);
        for (size_t dim = 0; dim < left.size(); ++dim) left[dim] += need[dim] * static_cast<double>(one.count);
      }
    }
    for (size_t shape = 0; shape < draft.request_left.size(); ++shape) {
      const auto need = problem_.requests.shapes.of(shape);
      for (size_t dim = 0; dim < left.size(); ++dim) {
        left[dim] += need[dim] * static_cast<double>(draft.request_left[shape]);
      }
    }
    const std::vector<double> values = draft.packing.values({.dual = 0}, left);
    draft.left = std::inner_product(left.begin(), left.end(), values.begin(), 0.0);
    draft.cost = draft.packing.opened_cost();
  }

  const ScaleProblem& problem_;
  const Draft& start_;
};

bool better(const Draft& a, const Draft& b) {
  if (std::abs(a.left - b.left) > kSame * (1 + b.left)) return a.left < b.left;
  if (std::abs(a.cost - b.cost) > kSame) return a.cost < b.cost;
  if (a.style.heed_wishes != b.style.heed_wishes) return a.style.heed_wishes;
  return a.packing.nodes.size() < b.packing.nodes.size();
}

// Nodes that are there, coming, and those that min_workers calls for.
Draft start_draft(const ScaleProblem& problem) {
  Draft draft(problem);
  draft.packing.nodes = problem.nodes;
  draft.packing.aside = problem.aside;
  for (size_t type = 0; type < problem.supply.types(); ++type) {
    int least = least_workers(problem.input, problem.supply.name(type));
    // One that leaves counts against the limits until it is gone, but it is not one of those that stay.
    for (const ScaleNode& node : problem.input.nodes)
      least += node.leaving && !node.head && node.type == problem.supply.name(type) ? 1 : 0;
    while (draft.packing.supply.workers(type) < least) {
      if (!draft.packing.open(type)) {
        draft.min_failures.push_back({draft.packing.supply.limit(type), draft.packing.supply.limit_text(type), type});
        break;
      }
      draft.packing.nodes.back().wanted = true;
    }
  }
  return draft;
}

// The ids of the idle nodes that go with this draft.
std::set<NodeId> let_go(const ScaleProblem& problem, const Draft& draft) {
  std::set<NodeId> out;
  for (PlannedTermination& one : decide_idle(problem, draft, outcome_of(problem, draft)).terminations)
    out.insert(std::move(one.id));
  return out;
}

// Of a draft's beginning, what the next decision finds: nodes that go take no work any more.
Draft without(const ScaleProblem& problem, const Draft& start, const std::set<NodeId>& gone) {
  Draft out = start;
  std::erase_if(out.packing.nodes, [&](const PackNode& node) {
    return node.origin == PackNode::Origin::kThere && gone.contains(problem.input.nodes[node.index].id);
  });
  return out;
}

// `next`, and the nodes that the draft opened after `start`, as if they were coming, empty. What it opened in vain is
// dropped.
Draft as_if_coming(const ScaleProblem& problem, const Draft& draft, const Draft& start, Draft next) {
  next.packing.supply = draft.packing.supply;
  for (size_t at = start.packing.nodes.size(); at < draft.packing.nodes.size(); ++at) {
    PackNode node = draft.packing.nodes[at];
    if (node.picks.empty() && node.seats.empty() && !draft.requested[at]) {
      next.packing.supply.close(node.type, node.offering);
      continue;
    }
    node.room = problem.rooms[node.type];
    node.picks.clear();
    node.seats.clear();
    node.fresh = true;
    next.packing.nodes.push_back(std::move(node));
  }
  return next;
}

// Whether a gang cares how it sits, in a problem that is small enough to try.
bool some_wish(const ScaleProblem& problem) {
  const auto some = std::count_if(problem.input.gangs.begin(), problem.input.gangs.end(), has_wish);
  return some > 0 && static_cast<size_t>(some) * (problem.nodes.size() + 10) <= kWishesMax;
}

// The best of the styles that are worth their time.
Draft choose(const ScaleProblem& problem, const Draft& start) {
  const Drafter drafter(problem, start);
  Draft best = drafter.make({});
  const auto consider = [&](const DraftStyle& style) {
    Draft other = drafter.make(style);
    if (better(other, best)) best = std::move(other);
  };
  const size_t cells = std::min(kCells, problem.work.counts.size());
  const auto bundles = std::accumulate(problem.work.counts.begin(), problem.work.counts.end(), int64_t{0});
  const bool small = static_cast<double>(cells) * static_cast<double>(bundles) / 8 <= kSmall;
  if (small && (best.cost > start.packing.opened_cost() || best.left > 0)) {
    for (const double dual : {0.9, 0.5, 0.0}) consider({.pack = {.dual = dual}});
  }
  if (!problem.requests.counts.empty() && best.cost > 0) consider({.requests_first = false});
  if (best.left > 0 && best.packing.supply.workers() >= problem.input.max_workers) {
    // The number of nodes is what is short: larger ones may be worth their price.
    for (const double slot : small ? std::vector{0.1, 1.0, 10.0, 1000.0} : std::vector{10.0}) {
      consider({.pack = {.slot_price = slot}});
    }
  }
  if (some_wish(problem)) {
    DraftStyle heeding = best.style;
    heeding.heed_wishes = true;
    consider(heeding);
  }
  return best;
}

// A second decision fills fresh nodes as this one opened them, bundle for bundle; but not so when some were there
// before the first was opened, when limits were met, or gangs and requests chose theirs with fewer to choose from.
bool packs_the_same_again(const ScaleProblem& problem, const Draft& draft, const Draft& start) {
  if (draft.packing.nodes.size() == start.packing.nodes.size()) return true;
  if (draft.left > 0 || !problem.input.gangs.empty() || !problem.requests.counts.empty()) return false;
  return std::none_of(start.packing.nodes.begin(), start.packing.nodes.end(),
                      [](const PackNode& node) { return node.fresh; });
}

// Packing anew what was packed may need one node more, or one idle node less. It is decided now rather than in the next
// decision.
Draft settle(const ScaleProblem& problem, Draft draft, Draft start) {
  if (packs_the_same_again(problem, draft, start)) return draft;
  for (int round = 0; round < kSettleRounds; ++round) {
    const std::set<NodeId> gone = let_go(problem, draft);
    Draft stay = without(problem, start, gone);
    const Draft next_start = as_if_coming(problem, draft, start, stay);
    Draft next = choose(problem, next_start);
    const size_t opened = draft.packing.nodes.size() - start.packing.nodes.size();
    const size_t kept = next_start.packing.nodes.size() - stay.packing.nodes.size();
    const bool more = next.packing.nodes.size() > next_start.packing.nodes.size();
    const bool more_go = let_go(problem, next) != gone;
    if (more || more_go || kept < opened) {
      draft = std::move(next);
      start = std::move(stay);
    }
    if (!more && !more_go) break;
  }
  return draft;
}

}  // namespace

Draft best_draft(const ScaleProblem& problem) {
  const Draft start = start_draft(problem);
  return settle(problem, choose(problem, start), start);
}

}  // namespace rubato::policy

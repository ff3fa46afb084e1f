// Which draft becomes the plan: several styles, exchanged and dropped nodes, Ray's ways; then one that does not flap.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "policy/scale_again.h"
#include "policy/scale_draft.h"
#include "policy/scale_first_fit.h"
#include "policy/scale_layout.h"
#include "policy/scale_outcome.h"

namespace rubato::policy {
namespace {

// Small problems are packed in several styles; one style of a large one is good enough, and takes long enough.
constexpr double kSmall = 50'000;      // cells x bundles / 8
constexpr size_t kWishesMax = 50'000;  // gangs x nodes
constexpr int64_t kTiny = 60;          // bundles: every candidate is refined, not only the best
constexpr int kSettleRounds = 8;
constexpr double kAlike = 1e-9;

// Drops and exchanges nodes that were opened after `first`; what had no room for want of nodes may have some now.
void refine_draft(const ScaleProblem& problem, Draft& draft, size_t first) {
  draft.requested.resize(draft.packing.nodes.size(), false);
  const auto from = refine_packing(problem, draft.work(problem).shapes, draft.packing, first, draft.requested);
  if (!from) return;
  std::vector<char> requested;
  for (const size_t at : *from) requested.push_back(at == LayoutNode::kNew ? false : draft.requested[at]);
  draft.requested = std::move(requested);
  if (draft.packing.stock.left() == 0) return;
  // So that the room beside what is on a node is filled, too.
  for (PackNode& node : draft.packing.nodes) node.fresh = node.fresh && node.picks.empty();
  draft.packing.pack(draft.style.pack);
  draft.requested.resize(draft.packing.nodes.size(), false);
}

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
    if (style.refine) refine_draft(problem_, draft, start_.packing.nodes.size());
    if (!style.requests_first) {
      serve_requests(draft);
      // Nodes for requests are free otherwise: what waits may have room there.
      if (draft.packing.stock.left() > 0) draft.packing.pack(style.pack);
    }
    draft.requested.resize(draft.packing.nodes.size(), false);
    weigh_draft(problem_, draft);
    return draft;
  }

 private:
  // Requests ask what nodes can hold, not what is free there.
  void serve_requests(Draft& draft) const {
    if (problem_.requests.counts.empty()) return;
    Packing whole(draft.packing.supply, Stock(problem_.requests.shapes, problem_.requests.counts, kStockCells),
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
    if (draft.style.refine) refine_packing(problem_, problem_.requests.shapes, whole, before, {});
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
    GangSeater seater(problem_.dimensions, problem_.rooms, draft.style.pack, kStockCells, false);
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
    GangSeater seater(problem_.dimensions, problem_.rooms, draft.style.pack, kStockCells, false);
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
    draft.packing.stock = Stock(problem_.demands.shapes, problem_.demands.counts, kStockCells);
    GangSeater seater(problem_.dimensions, problem_.rooms, draft.style.pack, kStockCells, draft.style.heed_wishes);
    for (size_t at = 0; at < problem_.input.gangs.size(); ++at) {
      auto binding = seater.seat(draft.packing, problem_.input.gangs[at], static_cast<int>(at));
      if (binding) draft.failures.push_back({at, *binding});
    }
    draft.packing.pack(draft.style.pack);
  }

  const ScaleProblem& problem_;
  const Draft& start_;
};

bool better(const Draft& a, const Draft& b) {
  if (a.left_bundles != b.left_bundles) return a.left_bundles < b.left_bundles;
  if (std::abs(a.cost - b.cost) > kAlike) return a.cost < b.cost;
  if (std::abs(a.left - b.left) > kAlike * (1 + b.left)) return a.left < b.left;
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

bool opens_the_same(const Draft& draft, const std::vector<Draft>& others) {
  return std::any_of(others.begin(), others.end(), [&](const Draft& other) {
    for (size_t type = 0; type < draft.packing.supply.types(); ++type) {
      if (draft.packing.supply.workers(type) != other.packing.supply.workers(type)) return false;
    }
    return draft.left_bundles == other.left_bundles;
  });
}

// As Ray would do it, where that takes no time.
std::vector<Draft> first_fit_drafts(const ScaleProblem& problem, const Draft& start) {
  const bool coming = std::any_of(start.packing.nodes.begin(), start.packing.nodes.end(), [](const PackNode& node) {
    return node.origin != PackNode::Origin::kThere && !node.wanted;
  });
  std::vector<Draft> out;
  for (const FirstFitRule rule : {FirstFitRule::kInOrder, FirstFitRule::kByScore}) {
    if (!first_fit_is_quick(problem, start, rule)) continue;
    for (const bool apart : {false, true}) {
      if (apart && !coming) continue;
      bool tied = false;
      for (const FirstFitTie tie :
           {FirstFitTie::kCheapest, FirstFitTie::kDearest, FirstFitTie::kFirst, FirstFitTie::kLast}) {
        if (tie != FirstFitTie::kCheapest && !tied) break;
        auto draft = first_fit_draft(problem, start, {.rule = rule, .coming_apart = apart, .tie = tie, .tied = &tied});
        if (draft && !opens_the_same(*draft, out)) out.push_back(std::move(*draft));
      }
    }
  }
  return out;
}

// Beside the best style: the same with nodes exchanged, and Ray's ways.
Draft exchange(const ScaleProblem& problem, const Draft& start, Draft best) {
  const Drafter drafter(problem, start);
  const auto consider = [&](Draft other) {
    if (better(other, best)) best = std::move(other);
  };
  if (can_refine(problem, best.packing) || !problem.requests.counts.empty()) {
    DraftStyle refined = best.style;
    refined.refine = true;
    consider(drafter.make(refined));
  }
  const auto bundles = std::accumulate(problem.work.counts.begin(), problem.work.counts.end(), int64_t{0});
  for (Draft& one : first_fit_drafts(problem, start)) {
    Draft other = one;
    const bool worthwhile = bundles <= kTiny || better(one, best);
    consider(std::move(one));
    if (!worthwhile) continue;
    other.style.refine = true;
    refine_draft(problem, other, start.packing.nodes.size());
    weigh_draft(problem, other);
    consider(std::move(other));
  }
  return best;
}

// max_workers is what binds: all are open, or the last gang got none of those that it would need.
bool short_of_nodes(const ScaleProblem& problem, const Draft& draft) {
  return draft.packing.supply.workers() >= problem.input.max_workers ||
         std::any_of(draft.failures.begin(), draft.failures.end(),
                     [](const GangFailure& failure) { return failure.binding.limit == ScaleLimit::kMax; });
}

// The best of the styles that are worth their time.
Draft choose(const ScaleProblem& problem, const Draft& start) {
  const Drafter drafter(problem, start);
  Draft best = drafter.make({});
  const auto consider = [&](const DraftStyle& style) {
    Draft other = drafter.make(style);
    if (better(other, best)) best = std::move(other);
  };
  const size_t cells = std::min(kStockCells, problem.work.counts.size());
  const auto bundles = std::accumulate(problem.work.counts.begin(), problem.work.counts.end(), int64_t{0});
  const bool small = static_cast<double>(cells) * static_cast<double>(bundles) / 8 <= kSmall;
  if (small && (best.cost > start.packing.opened_cost() || best.left > 0)) {
    for (const double dual : {0.9, 0.5, 0.0}) consider({.pack = {.dual = dual}});
  }
  if (!problem.requests.counts.empty() && best.cost > 0) consider({.requests_first = false});
  if (best.left > 0 && short_of_nodes(problem, best)) {
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
  const bool buys = best.left_bundles > 0 || best.cost > start.packing.opened_cost() + kAlike;
  if (buys && may_exchange(problem.input, problem.supply)) best = exchange(problem, start, std::move(best));
  return best;
}

// A second decision fills fresh nodes as this one opened them, bundle for bundle; but not so when some were there
// before the first was opened, when limits were met, or gangs and requests chose theirs with fewer to choose from.
bool packs_the_same_again(const ScaleProblem& problem, const Draft& draft, const Draft& start) {
  if (draft.packing.nodes.size() == start.packing.nodes.size()) return true;
  if (draft.style.refine || draft.style.first_fit) return false;
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

// Nothing speaks against what was found again, if it costs no more and leaves no more waiting.
bool no_worse(const Draft& again, const Draft& best) {
  if (again.left_bundles == best.left_bundles && std::abs(again.cost - best.cost) <= kAlike &&
      again.packing.opened() < best.packing.opened()) {
    return true;
  }
  return !better(best, again);
}

// With `again`, what earlier decisions may have found counts, too.
Draft decide(const ScaleProblem& problem, const Draft& start, bool again);

Draft find_again(const ScaleProblem& problem, const Draft& start, Draft best) {
  const auto wants_more = [&] {
    return best.left_bundles > 0 || best.packing.opened() > start.packing.opened() || !let_go(problem, best).empty();
  };
  if (problem.input.launching.empty() || !wants_more()) return best;
  for (const EarlierQuestion& earlier : earlier_questions(problem)) {
    if (!wants_more()) break;
    const ScaleProblem before(earlier.input);
    const Draft found = decide(before, start_draft(before), false);
    auto draft = found_again(problem, start, earlier, found);
    // One that opens nodes is no plan that is carried out already.
    const bool done = draft && draft->packing.opened() == start.packing.opened();
    if (done && no_worse(*draft, best)) best = std::move(*draft);
  }
  return best;
}

Draft decide(const ScaleProblem& problem, const Draft& start, bool again) {
  Draft chosen = choose(problem, start);
  if (again) chosen = find_again(problem, start, std::move(chosen));
  Draft settled = settle(problem, chosen, start);
  if (!better(chosen, settled) || !may_exchange(problem.input, problem.supply)) return settled;
  // What was found once is not found again by packing anew, and costs more. It is found again by asking the same again.
  if (problem.input.launching.empty() && is_asked_again(problem, chosen.packing.nodes.size()) &&
      let_go(problem, chosen).empty()) {
    return chosen;
  }
  // Else the dearer one is taken as long as Ray's way costs no less; if it does, Ray's way is taken, or in the end what
  // was found at first.
  std::vector<Draft> others = first_fit_drafts(problem, start);
  for (const Draft& other : others) {
    if (!better(other, settled)) continue;
    Draft again_settled = settle(problem, other, start);
    if (better(again_settled, settled)) settled = std::move(again_settled);
  }
  const bool dearer = std::any_of(others.begin(), others.end(), [&](const Draft& other) {
    return other.left_bundles < settled.left_bundles ||
           (other.left_bundles == settled.left_bundles && other.cost < settled.cost - kAlike);
  });
  return dearer ? chosen : settled;
}

}  // namespace

Draft best_draft(const ScaleProblem& problem) { return decide(problem, start_draft(problem), true); }

}  // namespace rubato::policy

#include "policy/scale_first_fit.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "model/byte_amounts.h"

namespace rubato::policy {
namespace {

constexpr double kQuickInOrder = 40'000;   // shapes x nodes
constexpr double kQuickByScore = 120'000;  // shapes x nodes x nodes
constexpr int64_t kQuickBundles = 3'000;

// Every resource that a node has or anybody asks for: Ray's score counts those that nobody uses, too.
class ResourceNames {
 public:
  explicit ResourceNames(const ScaleInput& input) {
    std::set<std::string, std::less<>> all;
    const auto add = [&](const Resources& resources) {
      for (const auto& [name, amount] : resources.amounts()) all.insert(name);
    };
    for (const auto& [name, type] : input.types) add(type.resources);
    for (const Bundles& one : input.demands) add(one.each);
    for (const Bundles& one : input.requests) add(one.each);
    for (const Gang& gang : input.gangs) {
      for (const Bundles& one : gang.bundles) add(one.each);
    }
    names_.assign(all.begin(), all.end());
  }

  size_t size() const { return names_.size(); }
  bool is_gpu(size_t at) const { return names_[at] == kGpu; }
  // As Ray counts: bytes of memory, whole ones of everything else.
  std::vector<double> amounts(const Resources& resources) const {
    std::vector<double> out;
    for (const std::string& name : names_) {
      const auto amount = static_cast<double>(resources.of(name));
      out.push_back(counted_in_bytes(name) ? amount : amount / 1000);
    }
    return out;
  }

 private:
  std::vector<std::string> names_;
};

// Bundles of one size.
struct FitItem {
  Resources each;
  std::vector<double> need;  // by name
  double sum = 0;
  int64_t count = 0;
  int apart = -1;               // a STRICT_SPREAD gang
  uint32_t shape = 0;           // of the demands or the requests, when there are no seats
  std::vector<GangSeat> seats;  // of one bundle
};

struct FitPlaced {
  size_t item = 0;
  int64_t count = 0;
};

struct FitNode {
  size_t at = 0;  // in the packing
  size_t type = 0;
  bool coming = false;
  // Twice: what waits counts what is free, requests count what the node has.
  std::vector<double> room[2];
  std::vector<char> asked[2];  // by name: something placed here needs it
  std::vector<int> apart;
  std::vector<std::pair<FitItem, int64_t>> placed[2];
};

using FitScore = std::tuple<bool, int, double, double>;  // GPU is of use, kinds of resources, least and mean use

enum FitView : size_t { kWaiting = 0, kRequested = 1 };

class FirstFitDrafter {
 public:
  FirstFitDrafter(const ScaleProblem& problem, const Draft& start, const FirstFitOptions& options)
      : problem_(problem), options_(options), names_(problem.input), draft_(start) {
    for (size_t type = 0; type < draft_.packing.supply.types(); ++type) {
      totals_.push_back(names_.amounts(draft_.packing.supply.type(type).resources));
    }
    draft_.style.first_fit = true;
    add_nodes();
  }

  std::optional<Draft> draft() {
    serve_requests();
    std::vector<FitItem> rest;
    const bool whole = options_.rule == FirstFitRule::kInOrder ? serve_spread_then(rest) : serve_gangs();
    if (!whole) return std::nullopt;
    const Work& demands = problem_.input.gangs.empty() ? problem_.work : problem_.demands;
    for (size_t shape = 0; shape < demands.counts.size(); ++shape) rest.push_back(item_of(demands, shape));
    std::vector<FitItem> left = place(std::move(rest), kWaiting);
    if (!note_left(left, demands)) return std::nullopt;
    return finish();
  }

 private:
  void add_nodes() {
    std::vector<size_t> order(draft_.packing.nodes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    // As Ray lists them: those that are there, those that are coming; those for min_workers last, or first.
    const bool in_order = options_.rule == FirstFitRule::kInOrder;
    const auto rank = [&](size_t at) {
      const PackNode& node = draft_.packing.nodes[at];
      const bool there = node.origin == PackNode::Origin::kThere;
      const int kind = there ? 0 : !node.wanted ? 1 : in_order ? 2 : -1;
      return std::tuple(kind, there ? node.index : node.type, node.ordinal, at);
    };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
    for (const size_t at : order) {
      const PackNode& node = draft_.packing.nodes[at];
      FitNode out = empty_node(node.type);
      out.at = at;
      out.coming = node.origin != PackNode::Origin::kThere && !node.wanted;
      if (node.origin == PackNode::Origin::kThere) {
        if (const auto& available = problem_.input.nodes[node.index].available) {
          out.room[kWaiting] = names_.amounts(*available);
        }
      }
      nodes_.push_back(std::move(out));
    }
  }

  FitNode empty_node(size_t type) const {
    FitNode out{.type = type};
    for (const FitView view : {kWaiting, kRequested}) {
      out.room[view] = totals_[type];
      out.asked[view].assign(names_.size(), false);
    }
    return out;
  }

  FitItem new_item(const Resources& each, int64_t count) const {
    FitItem out{.each = each, .need = names_.amounts(each), .count = count};
    out.sum = std::accumulate(out.need.begin(), out.need.end(), 0.0);
    return out;
  }

  FitItem item_of(const Work& work, size_t shape) const {
    FitItem out = new_item(problem_.dimensions.resources(work.shapes.of(shape)), work.counts[shape]);
    out.shape = static_cast<uint32_t>(shape);
    return out;
  }

  std::vector<FitItem> items_of(size_t index) const {
    const Gang& gang = problem_.input.gangs[index];
    const int number = static_cast<int>(index);
    std::vector<FitItem> out;
    if (gang.strategy == GangStrategy::kStrictPack) {
      out.push_back(new_item(sum_of(gang), 1));
      for (size_t at = 0; at < gang.bundles.size(); ++at) {
        out.back().seats.push_back({number, at, gang.bundles[at].count});
      }
    } else {
      for (size_t at = 0; at < gang.bundles.size(); ++at) {
        FitItem item = new_item(gang.bundles[at].each, gang.bundles[at].count);
        if (gang.strategy == GangStrategy::kStrictSpread) item.apart = number;
        item.seats = {{number, at, 1}};
        out.push_back(std::move(item));
      }
    }
    std::erase_if(out, [](const FitItem& item) { return item.count <= 0 || item.each.empty(); });
    return out;
  }

  // More kinds of resources first, then the larger sum.
  static bool goes_before(const FitItem& a, const FitItem& b) {
    const auto key = [](const FitItem& one) { return std::pair(one.each.amounts().size(), one.sum); };
    if (key(a) != key(b)) return key(a) > key(b);
    return a.each > b.each;
  }

  static bool has_room(const FitItem& item, const FitNode& node, FitView view) {
    for (size_t at = 0; at < item.need.size(); ++at) {
      if (item.need[at] > node.room[view][at]) return false;
    }
    return item.apart < 0 || std::find(node.apart.begin(), node.apart.end(), item.apart) == node.apart.end();
  }

  // As many of the item as fit. One by one, as Ray subtracts: sums of tenths drift, and what should just fit may not.
  // (What does not fit never seems to: amounts are whole thousandths.)
  static int64_t put_on(const FitItem& item, FitNode& node, FitView view) {
    int64_t count = 0;
    for (; count < item.count && has_room(item, node, view); ++count) {
      for (size_t at = 0; at < item.need.size(); ++at) node.room[view][at] -= item.need[at];
      if (item.apart >= 0) node.apart.push_back(item.apart);
    }
    if (count == 0) return 0;
    for (size_t at = 0; at < item.need.size(); ++at) {
      if (item.need[at] > 0) node.asked[view][at] = true;
    }
    node.placed[view].emplace_back(item, count);
    return count;
  }

  // Fills the node in the order of the items; false when none fits.
  static bool fill(FitNode& node, const std::vector<FitItem>& items, FitView view, std::vector<FitPlaced>& taken) {
    taken.clear();
    for (size_t at = 0; at < items.size(); ++at) {
      if (items[at].count == 0) continue;
      if (const int64_t count = put_on(items[at], node, view)) taken.push_back({at, count});
    }
    return !taken.empty();
  }

  // Ray's score of a node: the first autoscaler counts what all bundles ask for, the second what was put there.
  FitScore score(const FitNode& node, const std::vector<FitItem>& items, FitView view) const {
    const bool in_order = options_.rule == FirstFitRule::kInOrder;
    std::vector<char> asked = node.asked[view];
    for (const FitItem& item : items) {
      for (size_t at = 0; at < asked.size() && in_order && item.count > 0; ++at) asked[at] |= item.need[at] > 0;
    }
    bool gpu_node = false, gpu_asked = false;
    int kinds = 0, counted = 0;
    double least = std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t at = 0; at < names_.size(); ++at) {
      const double total = totals_[node.type][at];
      if (names_.is_gpu(at)) {
        gpu_node = total > 0;
        gpu_asked = asked[at];
      }
      if (total <= 0 || (in_order && total < 1)) continue;
      kinds += asked[at] ? 1 : 0;
      const double use = (total - node.room[view][at]) / total;
      const double value = total * use * use * use;
      least = std::min(least, value);
      sum += value;
      ++counted;
    }
    if (counted == 0) return {false, 0, 0, 0};
    return {!gpu_node || gpu_asked, kinds, least, sum / counted};
  }

  static bool some_left(const std::vector<FitItem>& items) {
    return std::any_of(items.begin(), items.end(), [](const FitItem& item) { return item.count > 0; });
  }

  static void count_down(std::vector<FitItem>& items, const std::vector<FitPlaced>& taken) {
    for (const FitPlaced& one : taken) items[one.item].count -= one.count;
  }

  // All items on nodes that are there, then on new ones. Returns what is left.
  std::vector<FitItem> place(std::vector<FitItem> items, FitView view) {
    std::sort(items.begin(), items.end(), goes_before);
    const auto now = [&](const FitNode& node) { return !options_.coming_apart || !node.coming; };
    if (options_.rule == FirstFitRule::kByScore) {
      place_by_score(items, view, now);
    } else {
      for (FitItem& item : items) {
        for (FitNode& node : nodes_) {
          if (item.count == 0) break;
          if (!now(node)) continue;
          item.count -= put_on(item, node, view);
        }
      }
    }
    if (options_.coming_apart) place_by_score(items, view, [](const FitNode& node) { return node.coming; });
    open_for(items, view);
    std::erase_if(items, [](const FitItem& item) { return item.count == 0; });
    return items;
  }

  template <class Which>
  void place_by_score(std::vector<FitItem>& items, FitView view, const Which& which) {
    std::vector<FitNode> candidates, others, done;
    for (FitNode& node : nodes_) (which(node) ? candidates : others).push_back(std::move(node));
    std::vector<FitPlaced> taken, best_taken;
    while (some_left(items) && !candidates.empty()) {
      std::optional<FitScore> best;
      FitNode best_node;
      size_t best_at = 0;
      for (size_t at = 0; at < candidates.size(); ++at) {
        FitNode trial = candidates[at];
        if (!fill(trial, items, view, taken)) continue;
        const FitScore one = score(trial, items, view);
        if (best && one <= *best) continue;
        best = one;
        best_at = at;
        best_node = std::move(trial);
        best_taken = taken;
      }
      if (!best) break;
      count_down(items, best_taken);
      done.push_back(std::move(best_node));
      candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(best_at));
    }
    nodes_ = std::move(done);
    for (std::vector<FitNode>* list : {&candidates, &others}) {
      for (FitNode& node : *list) nodes_.push_back(std::move(node));
    }
  }

  // Of equal scores the highest is taken.
  double tie_rank(size_t type, double price) const {
    switch (options_.tie) {
      case FirstFitTie::kCheapest:
        return -price;
      case FirstFitTie::kDearest:
        return price;
      case FirstFitTie::kFirst:
        return -static_cast<double>(type);
      case FirstFitTie::kLast:
        return static_cast<double>(type);
    }
    return 0;
  }

  void open_for(std::vector<FitItem>& items, FitView view) {
    Supply& supply = draft_.packing.supply;
    std::vector<FitPlaced> taken, best_taken;
    while (some_left(items)) {
      std::optional<std::pair<FitScore, double>> best;
      FitNode best_node;
      for (size_t type = 0; type < totals_.size(); ++type) {
        const auto price = supply.price(type);
        if (!price) continue;
        FitNode trial = empty_node(type);
        if (!fill(trial, items, view, taken)) continue;
        const std::pair one(score(trial, items, view), tie_rank(type, *price));
        if (best && best->first == one.first && options_.tied != nullptr) *options_.tied = true;
        if (best && one <= *best) continue;
        best = one;
        best_node = std::move(trial);
        best_taken = taken;
      }
      if (!best) return;
      best_node.at = draft_.packing.nodes.size();
      draft_.packing.open(best_node.type);
      draft_.packing.nodes.back().wanted = view == kRequested;
      count_down(items, best_taken);
      nodes_.push_back(std::move(best_node));
    }
  }

  struct Saved {
    std::vector<FitNode> nodes;
    Packing packing;
  };
  Saved save() const { return {nodes_, draft_.packing}; }
  void restore(Saved saved) {
    nodes_ = std::move(saved.nodes);
    draft_.packing = std::move(saved.packing);
  }

  void serve_requests() {
    const Work& work = problem_.requests;
    if (work.counts.empty()) return;
    std::vector<FitItem> items;
    for (size_t shape = 0; shape < work.counts.size(); ++shape) items.push_back(item_of(work, shape));
    Saved saved = save();
    const std::vector<FitItem> left = place(items, kRequested);
    draft_.request_left.assign(work.counts.size(), 0);
    if (!left.empty() && options_.rule == FirstFitRule::kByScore) {  // all or nothing
      restore(std::move(saved));
      draft_.request_left = work.counts;
      return;
    }
    for (const FitItem& item : left) draft_.request_left[item.shape] = item.count;
  }

  // One gang as a whole; nothing of it stays when a bundle has no place.
  void serve_gang(size_t index) {
    std::vector<FitItem> items = items_of(index);
    if (items.empty()) return;
    Saved saved = save();
    const std::vector<FitItem> left = place(std::move(items), kWaiting);
    if (left.empty()) return;
    fail_gang(index, left.front());
    restore(std::move(saved));
  }

  void fail_gang(size_t index, const FitItem& lacking) {
    const auto need = problem_.dimensions.amounts(lacking.each);
    draft_.failures.push_back({index, binding_limit(draft_.packing.supply, problem_.rooms, need)});
  }

  // The second autoscaler: gangs with constraints first, then the larger ones.
  bool serve_gangs() {
    std::vector<size_t> order(problem_.input.gangs.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto key = [&](size_t index) {
      const Gang& gang = problem_.input.gangs[index];
      int64_t bundles = 0;
      for (const Bundles& one : gang.bundles) bundles += one.count;
      const bool strict = gang.strategy == GangStrategy::kStrictPack || gang.strategy == GangStrategy::kStrictSpread;
      return std::pair(strict ? bundles : 0, bundles);
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) > key(b); });
    for (const size_t index : order) serve_gang(index);
    return in_turn();
  }

  // The first autoscaler: STRICT_SPREAD gangs, then the bundles of all others together with the demands.
  bool serve_spread_then(std::vector<FitItem>& rest) {
    for (size_t index = 0; index < problem_.input.gangs.size(); ++index) {
      if (problem_.input.gangs[index].strategy == GangStrategy::kStrictSpread) {
        serve_gang(index);
      } else {
        for (FitItem& item : items_of(index)) rest.push_back(std::move(item));
      }
    }
    return in_turn();
  }

  // Jobs have an order among them, which Ray does not know: it may stay unheeded only when all get their places.
  bool in_turn() const {
    const std::vector<Gang>& gangs = problem_.input.gangs;
    const auto is_job = [](const Gang& gang) { return gang.strategy == GangStrategy::kAnywhere; };
    return draft_.failures.empty() || std::none_of(gangs.begin(), gangs.end(), is_job);
  }

  // What is left of the demands, and whole gangs. False when a gang has a part of its bundles.
  bool note_left(const std::vector<FitItem>& left, const Work& demands) {
    std::vector<int64_t> counts(demands.counts.size(), 0);
    std::map<int, int64_t> gangs;
    for (const FitItem& item : left) {
      if (item.seats.empty()) {
        counts[item.shape] = item.count;
        continue;
      }
      const int gang = item.seats.front().gang;
      if (gangs[gang] == 0) fail_gang(static_cast<size_t>(gang), item);
      gangs[gang] += item.count;
    }
    for (const auto& [gang, count] : gangs) {
      int64_t all = 0;
      for (const FitItem& item : items_of(static_cast<size_t>(gang))) all += item.count;
      if (count < all) return false;
    }
    std::sort(draft_.failures.begin(), draft_.failures.end(),
              [](const GangFailure& a, const GangFailure& b) { return a.gang < b.gang; });
    draft_.gangs_apart = !problem_.input.gangs.empty();
    draft_.packing.stock = Stock(demands.shapes, std::move(counts), kStockCells);
    return in_turn();
  }

  Draft finish() {
    draft_.requested.assign(draft_.packing.nodes.size(), false);
    for (const FitNode& node : nodes_) {
      PackNode& out = draft_.packing.nodes[node.at];
      draft_.requested[node.at] = !node.placed[kRequested].empty();
      for (const auto& [item, count] : node.placed[kWaiting]) {
        const std::vector<double> need = problem_.dimensions.amounts(item.each);
        for (size_t dim = 0; dim < need.size(); ++dim) out.room[dim] -= need[dim] * static_cast<double>(count);
        if (item.seats.empty()) {
          out.picks.push_back({item.shape, count});
          continue;
        }
        for (GangSeat seat : item.seats) {
          seat.count *= count;
          out.seats.push_back(seat);
        }
        out.fresh = false;
      }
    }
    weigh_draft(problem_, draft_);
    return std::move(draft_);
  }

  const ScaleProblem& problem_;
  FirstFitOptions options_;
  ResourceNames names_;
  Draft draft_;
  std::vector<std::vector<double>> totals_;  // by type and name
  std::vector<FitNode> nodes_;               // in Ray's order
};

}  // namespace

bool first_fit_is_quick(const ScaleProblem& problem, const Draft& start, FirstFitRule rule) {
  size_t shapes = problem.work.counts.size() + problem.requests.counts.size();
  for (const Gang& gang : problem.input.gangs) shapes += gang.bundles.size();
  const auto nodes = static_cast<double>(start.packing.nodes.size() + problem.supply.types() + 4);
  const double cost = static_cast<double>(shapes) * nodes;
  const std::vector<int64_t>& counts = problem.work.counts;
  if (std::accumulate(counts.begin(), counts.end(), int64_t{0}) > kQuickBundles) return false;
  return rule == FirstFitRule::kInOrder ? cost <= kQuickInOrder : cost * nodes <= kQuickByScore;
}

std::optional<Draft> first_fit_draft(const ScaleProblem& problem, const Draft& start, const FirstFitOptions& options) {
  return FirstFitDrafter(problem, start, options).draft();
}

}  // namespace rubato::policy

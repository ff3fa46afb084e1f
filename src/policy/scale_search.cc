// Branch and bound: unit after unit, the heaviest first, on each node that has room and on a new node of each type. A
// branch ends when it costs as much as the best layout known: what is open, and at least the worth of what is left less
// the worth of the room that could take it (by the linear program's values no node is worth more than its price).
#include <algorithm>
#include <numeric>

#include "policy/scale_layout.h"

namespace rubato::policy {
namespace {

constexpr double kBetter = 1e-9;  // dollars

class LayoutSearch {
 public:
  LayoutSearch(Layout& layout, int64_t steps) : layout_(layout), steps_(steps), best_(layout.cost()) {}

  bool run() {
    const std::vector<LayoutNode> before = layout_.nodes;
    const Supply supply = layout_.supply;
    begin();
    descend(0, 0, 0);
    if (!found_) {
      layout_.nodes = before;
      layout_.supply = supply;
      return false;
    }
    apply();
    return true;
  }

 private:
  // All units are in hand, all removable nodes are given up.
  void begin() {
    std::vector<LayoutNode> kept;
    for (LayoutNode& node : layout_.nodes) {
      if (node.removable) {
        layout_.close(node);
        continue;
      }
      for (const uint32_t unit : node.units) layout_.take(unit, node);
      node.units.clear();
      kept.push_back(std::move(node));
    }
    layout_.nodes = std::move(kept);
    fixed_ = layout_.nodes.size();
    order_.resize(layout_.units.size());
    std::iota(order_.begin(), order_.end(), 0U);
    std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
      const LayoutUnit &x = layout_.units[a], &y = layout_.units[b];
      if (x.weight != y.weight) return x.weight > y.weight;
      if (x.need != y.need) return x.need > y.need;
      return std::pair(x.apart, a) < std::pair(y.apart, b);
    });
    const size_t dims = layout_.values.size();
    rest_worth_.assign(order_.size() + 1, 0);
    least_.assign((order_.size() + 1) * dims, std::numeric_limits<double>::infinity());
    for (size_t at = order_.size(); at-- > 0;) {
      const LayoutUnit& unit = layout_.units[order_[at]];
      rest_worth_[at] = rest_worth_[at + 1] + unit.worth;
      for (size_t dim = 0; dim < dims; ++dim) {
        least_[at * dims + dim] = std::min(least_[(at + 1) * dims + dim], unit.need[dim]);
      }
    }
    for (size_t type = 0; type < layout_.rooms->size(); ++type) {
      if (const auto price = layout_.supply.usual_price(type)) types_.push_back({*price, type});
    }
    std::sort(types_.begin(), types_.end());
  }

  // What the room that is open can take of the units from `at` on, at most.
  double room_worth(size_t at) const {
    const size_t dims = layout_.values.size();
    const double* const least = &least_[at * dims];
    double sum = 0;
    for (const LayoutNode& node : layout_.nodes) {
      double worth = 0;
      bool usable = true;
      for (size_t dim = 0; dim < dims && usable; ++dim) {
        usable = node.room[dim] >= least[dim];
        worth += layout_.values[dim] * node.room[dim];
      }
      if (usable) sum += worth;
    }
    return sum;
  }

  bool twin(size_t a, size_t b) const {
    const LayoutUnit &x = layout_.units[order_[a]], &y = layout_.units[order_[b]];
    return x.apart == y.apart && x.need == y.need;
  }

  // A node like this one was tried already for the same unit.
  bool seen_before(size_t at, size_t from, int apart) const {
    if (apart >= 0) return false;
    for (size_t other = from; other < at; ++other) {
      const LayoutNode &a = layout_.nodes[other], &b = layout_.nodes[at];
      if (a.room == b.room && a.type == b.type) return true;
    }
    return false;
  }

  // `from`: equal units take nodes in order, so that no arrangement is tried twice.
  void descend(size_t at, double cost, size_t from) {
    if (at == order_.size()) {
      best_ = cost;
      found_ = true;
      chosen_ = layout_.nodes;
      return;
    }
    steps_ -= static_cast<int64_t>(layout_.nodes.size() + types_.size());
    if (steps_ < 0 || cost + std::max(0.0, rest_worth_[at] - room_worth(at)) >= best_ - kBetter) return;
    const uint32_t unit = order_[at];
    const auto next_from = [&](size_t node) { return at + 1 < order_.size() && twin(at, at + 1) ? node : 0; };
    std::vector<std::pair<double, size_t>> hosts;
    for (size_t node = from; node < layout_.nodes.size(); ++node) {
      if (!layout_.fits_on(unit, layout_.nodes[node])) continue;
      if (seen_before(node, from, layout_.units[unit].apart)) continue;
      hosts.emplace_back(layout_.weigh(layout_.nodes[node].room), node);
    }
    std::sort(hosts.begin(), hosts.end());
    for (const auto& [left, node] : hosts) {
      if (steps_ < 0) return;
      layout_.put(unit, layout_.nodes[node]);
      descend(at + 1, cost, next_from(node));
      layout_.take(unit, layout_.nodes[node]);
      layout_.nodes[node].units.pop_back();
    }
    for (const auto& [usual, type] : types_) {
      const auto price = layout_.supply.price(type);
      if (!price || cost + *price >= best_ - kBetter) continue;
      if (steps_ < 0) return;
      LayoutNode node = layout_.open(type);
      if (layout_.fits_on(unit, node)) {
        layout_.put(unit, node);
        layout_.nodes.push_back(node);
        descend(at + 1, cost + *price, next_from(layout_.nodes.size() - 1));
        layout_.nodes.pop_back();
      }
      layout_.close(node);
    }
  }

  void apply() {
    for (size_t at = fixed_; at < chosen_.size(); ++at) {
      chosen_[at].price = *layout_.supply.price(chosen_[at].type);
      chosen_[at].offering = layout_.supply.open(chosen_[at].type);
    }
    layout_.nodes = std::move(chosen_);
  }

  Layout& layout_;
  int64_t steps_;
  double best_;
  bool found_ = false;
  size_t fixed_ = 0;
  std::vector<uint32_t> order_;
  std::vector<double> rest_worth_;  // of the units from here on
  std::vector<double> least_;       // by position and dimension: no unit from here on needs less
  std::vector<std::pair<double, size_t>> types_;
  std::vector<LayoutNode> chosen_;
};

}  // namespace

bool search_layout(Layout& layout, int64_t steps) {
  if (layout.cost() <= kBetter) return false;
  return LayoutSearch(layout, steps).run();
}

}  // namespace rubato::policy

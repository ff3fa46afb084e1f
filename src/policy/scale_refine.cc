// Refining: a few nodes are emptied, those that this plan opened are given up, and what was on them is packed anew:
// into the room of the others, and into the cheapest new nodes for the rest. What gets cheaper stays.
#include <algorithm>

#include "policy/scale_layout.h"

namespace rubato::policy {
namespace {

constexpr double kCheaper = 1e-9;   // dollars
constexpr size_t kTriplesMax = 12;  // removable nodes

// The cheapest new nodes for units that have no room elsewhere: the heaviest unit opens a node of each type in turn,
// the others fill it. Depth first; a branch ends when what is left is worth more than may be spent.
class NewNodes {
 public:
  NewNodes(Layout& layout, int64_t& steps) : layout_(layout), steps_(steps) {}

  // `units`: the heaviest first. False: it costs `budget` or more.
  bool cover(const std::vector<uint32_t>& units, double budget) {
    best_ = budget;
    found_ = false;
    extend(units, 0);
    return found_;
  }
  std::vector<LayoutNode>& nodes() { return chosen_; }  // as found; the supply is not asked for them yet

 private:
  void extend(const std::vector<uint32_t>& units, double cost) {
    if (units.empty()) {
      best_ = cost;
      chosen_ = open_;
      found_ = true;
      return;
    }
    double least = cost;
    for (const uint32_t unit : units) least += layout_.units[unit].worth;
    if (least >= best_ - kCheaper) return;
    for (size_t type = 0; type < layout_.rooms->size() && steps_ > 0; ++type) {
      const auto price = layout_.supply.price(type);
      if (!price || cost + *price >= best_ - kCheaper) continue;
      LayoutNode node{.type = type, .room = (*layout_.rooms)[type]};
      if (!layout_.fits_on(units.front(), node)) continue;
      std::vector<uint32_t> rest;
      for (const uint32_t unit : units) {
        if (layout_.fits_on(unit, node)) {
          layout_.put(unit, node);
        } else {
          rest.push_back(unit);
        }
      }
      steps_ -= static_cast<int64_t>(units.size());
      node.price = *price;
      node.removable = true;
      node.offering = layout_.supply.open(type);
      open_.push_back(node);
      extend(rest, cost + *price);
      open_.pop_back();
      layout_.close(node);
    }
  }

  Layout& layout_;
  int64_t& steps_;
  double best_ = 0;
  bool found_ = false;
  std::vector<LayoutNode> open_, chosen_;
};

class Refiner {
 public:
  Refiner(Layout& layout, int64_t steps) : layout_(layout), steps_(steps) {}

  bool run() {
    bool any = false;
    while (steps_ > 0 && round()) any = true;
    return any;
  }

 private:
  // Until the first exchange that pays.
  bool round() {
    std::vector<size_t> open, used;  // removable; others with something to move
    for (size_t at = 0; at < layout_.nodes.size(); ++at) {
      const LayoutNode& node = layout_.nodes[at];
      if (node.removable) {
        open.push_back(at);
      } else if (!node.units.empty()) {
        used.push_back(at);
      }
    }
    if (open.empty()) return false;
    for (const size_t one : open) {
      if (rebuild({one})) return true;
    }
    for (size_t a = 0; a < open.size(); ++a) {
      for (size_t b = a + 1; b < open.size(); ++b) {
        if (rebuild({open[a], open[b]})) return true;
      }
      for (const size_t other : used) {
        if (rebuild({open[a], other})) return true;
      }
    }
    if (open.size() <= kTriplesMax && triples(open, used)) return true;
    if (open.size() > 2 && rebuild(open)) return true;
    std::vector<size_t> all = open;
    all.insert(all.end(), used.begin(), used.end());
    return all.size() > 2 && rebuild(all);
  }

  bool triples(const std::vector<size_t>& open, const std::vector<size_t>& used) {
    for (size_t a = 0; a < open.size(); ++a) {
      for (size_t b = a + 1; b < open.size(); ++b) {
        for (size_t c = b + 1; c < open.size(); ++c) {
          if (rebuild({open[a], open[b], open[c]})) return true;
        }
        for (const size_t other : used) {
          if (rebuild({open[a], open[b], other})) return true;
        }
      }
    }
    return false;
  }

  bool rebuild(const std::vector<size_t>& chosen) {
    if (steps_ <= 0) return false;
    double budget = 0;
    std::vector<uint32_t> pool;
    std::vector<LayoutNode> before;
    for (const size_t at : chosen) {
      LayoutNode& node = layout_.nodes[at];
      before.push_back(node);
      pool.insert(pool.end(), node.units.begin(), node.units.end());
      for (const uint32_t unit : node.units) layout_.take(unit, node);
      node.units.clear();
      if (!node.removable) continue;
      budget += node.price;
      layout_.close(node);
      gone_.push_back(at);
    }
    std::stable_sort(pool.begin(), pool.end(), [&](uint32_t a, uint32_t b) {
      const double x = layout_.units[a].weight, y = layout_.units[b].weight;
      return x != y ? x > y : a < b;
    });
    std::vector<std::pair<uint32_t, size_t>> placed;
    const std::vector<uint32_t> rest = fill_room(pool, placed);
    NewNodes fresh(layout_, steps_);
    const bool cheaper = budget > kCheaper && fresh.cover(rest, budget);
    if (cheaper) {
      commit(fresh.nodes());
    } else {
      undo(chosen, before, placed);
    }
    gone_.clear();
    return cheaper;
  }

  bool is_gone(size_t at) const { return std::find(gone_.begin(), gone_.end(), at) != gone_.end(); }

  // Each unit where it leaves the least room. Returns those that fit nowhere.
  std::vector<uint32_t> fill_room(const std::vector<uint32_t>& pool, std::vector<std::pair<uint32_t, size_t>>& placed) {
    std::vector<uint32_t> rest;
    for (const uint32_t unit : pool) {
      size_t best = LayoutNode::kNew;
      double least = 0;
      for (size_t at = 0; at < layout_.nodes.size(); ++at) {
        if (!layout_.fits_on(unit, layout_.nodes[at]) || is_gone(at)) continue;
        const double left = layout_.weigh(layout_.nodes[at].room);
        if (best != LayoutNode::kNew && left >= least) continue;
        best = at;
        least = left;
      }
      steps_ -= static_cast<int64_t>(layout_.nodes.size());
      if (best == LayoutNode::kNew) {
        rest.push_back(unit);
      } else {
        layout_.put(unit, layout_.nodes[best]);
        placed.emplace_back(unit, best);
      }
    }
    return rest;
  }

  void commit(std::vector<LayoutNode>& fresh) {
    std::vector<LayoutNode> nodes;
    for (size_t at = 0; at < layout_.nodes.size(); ++at) {
      if (!is_gone(at)) nodes.push_back(std::move(layout_.nodes[at]));
    }
    for (LayoutNode& node : fresh) {
      node.price = *layout_.supply.price(node.type);
      node.offering = layout_.supply.open(node.type);
      nodes.push_back(std::move(node));
    }
    layout_.nodes = std::move(nodes);
  }

  void undo(const std::vector<size_t>& chosen, std::vector<LayoutNode>& before,
            const std::vector<std::pair<uint32_t, size_t>>& placed) {
    for (size_t at = placed.size(); at-- > 0;) {
      LayoutNode& node = layout_.nodes[placed[at].second];
      layout_.take(placed[at].first, node);
      node.units.pop_back();
    }
    // In the reverse order, so that each offering comes back as it was.
    for (size_t at = chosen.size(); at-- > 0;) {
      if (before[at].removable) layout_.supply.reopen(before[at].type, before[at].offering);
      layout_.nodes[chosen[at]] = std::move(before[at]);
    }
  }

  Layout& layout_;
  int64_t steps_;
  std::vector<size_t> gone_;
};

}  // namespace

bool refine_layout(Layout& layout, int64_t steps) { return Refiner(layout, steps).run(); }

}  // namespace rubato::policy

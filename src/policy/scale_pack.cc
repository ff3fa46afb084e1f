#include "policy/scale_pack.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace rubato::policy {
namespace {

constexpr double kFree = 1e-6;  // dollars: the least that a node may cost, so that its room is worth something
constexpr double kSameRoom = 1e-9;
// What the linear program values at nothing is still worth a little, to break ties.
constexpr double kTieBreak = 0.01;

}  // namespace

std::vector<double> Packing::values(const PackStyle& style, const std::vector<double>& wanted) const {
  const size_t dims = wanted.size();
  std::vector<double> alone(dims, std::numeric_limits<double>::infinity());
  std::vector<PricedRoom> offers;
  for (size_t type = 0; type < rooms_->size(); ++type) {
    const auto price = supply.usual_price(type);
    if (!price) continue;
    const std::vector<double>& room = (*rooms_)[type];
    offers.push_back({room, std::max(*price, kFree) + style.slot_price});
    for (size_t dim = 0; dim < dims; ++dim) {
      if (room[dim] > 0) alone[dim] = std::min(alone[dim], offers.back().price / room[dim]);
    }
  }
  std::vector<double> out = resource_values(offers, wanted);
  for (size_t dim = 0; dim < dims; ++dim) {
    // Only nodes that are there have it: their whole room is as good as a dollar.
    if (alone[dim] == std::numeric_limits<double>::infinity()) {
      double largest = std::max(1.0, aside.empty() ? 0.0 : aside[dim]);
      for (const PackNode& node : nodes) largest = std::max(largest, node.room[dim]);
      alone[dim] = 1 / largest;
    }
    out[dim] = style.dual * out[dim] + (1 + kTieBreak - style.dual) * alone[dim];
  }
  return out;
}

void Packing::pack(const PackStyle& style) {
  if (stock.left() == 0) return;
  stock.set_values(values(style, stock.total()));
  fill_used();
  if (stock.left() == 0) return;
  stock.set_values(values(style, stock.total()));
  fill_fresh(style);
  const Depot market{
      .price = [this](size_t type) { return supply.price(type); },
      .take =
          [this](size_t type, PackNode& filled) {
            filled.price = *supply.price(type);
            filled.offering = supply.open(type);
            nodes.push_back(filled);
          },
  };
  fill_from(market, style);
}

void Packing::fill_used() {
  std::vector<PackNode*> begun;  // coming or new, with seats of gangs on them
  for (PackNode& node : nodes) {
    if (stock.left() == 0) return;
    if (node.fresh) continue;
    if (node.origin == PackNode::Origin::kThere) {
      stock.fill(node.room, node.picks);
    } else {
      begun.push_back(&node);
    }
  }
  // In an order of their own: what is new now is coming in the next decision, and must be filled alike.
  std::stable_sort(begun.begin(), begun.end(), [](const PackNode* a, const PackNode* b) {
    return std::tie(a->price, a->type, a->room) < std::tie(b->price, b->type, b->room);
  });
  for (PackNode* node : begun) stock.fill(node->room, node->picks);
}

void Packing::fill_fresh(const PackStyle& style) {
  // By type, the cheapest last: they are taken from the end.
  std::vector<std::vector<size_t>> by_type(supply.types());
  for (size_t at = nodes.size(); at-- > 0;) {
    if (nodes[at].fresh && nodes[at].picks.empty()) by_type[nodes[at].type].push_back(at);
  }
  for (auto& list : by_type) {
    std::stable_sort(list.begin(), list.end(), [&](size_t a, size_t b) { return nodes[a].price > nodes[b].price; });
  }
  const Depot fresh{
      .price = [&](size_t type) -> std::optional<double> {
        if (by_type[type].empty()) return std::nullopt;
        return nodes[by_type[type].back()].price;
      },
      .take =
          [&](size_t type, PackNode& filled) {
            PackNode& node = nodes[by_type[type].back()];
            node.room = filled.room;
            node.picks = filled.picks;
            by_type[type].pop_back();
          },
  };
  fill_from(fresh, style);
}

// The best known first; those never tried before all others.
size_t Packing::most_promising(const std::vector<Trial>& trials) {
  size_t best = trials.size();
  for (size_t type = 0; type < trials.size(); ++type) {
    if (trials[type].out) continue;
    if (!trials[type].tried) return type;
    if (best == trials.size() || trials[type].use > trials[best].use + kSameRoom ||
        (trials[type].use > trials[best].use - kSameRoom && trials[type].worth > trials[best].worth + kSameRoom)) {
      best = type;
    }
  }
  return best;
}

// Types of a lower priority get what those of a higher one cannot hold, or no longer have nodes for.
void Packing::fill_from(const Depot& depot, const PackStyle& style) {
  for (const int64_t priority : supply.priorities()) fill_with(priority, depot, style);
}

// Again and again the type whose next node would be used best. A type is tried anew only when its last trial says that
// it could be the best one; most of the time that is the one that was just taken.
//
// Types that the depot does not have change nothing for the others. So when all that was opened comes back as fresh
// nodes, they are filled in the same order with the same bundles, and nothing is opened again.
void Packing::fill_with(int64_t priority, const Depot& depot, const PackStyle& style) {
  std::vector<Trial> trials(supply.types());
  for (size_t type = 0; type < trials.size(); ++type) trials[type].out = supply.type(type).priority != priority;
  PackNode node{.origin = PackNode::Origin::kOpened};
  while (stock.left() > 0) {
    const size_t type = most_promising(trials);
    if (type == trials.size()) break;
    Trial& trial = trials[type];
    const auto price = depot.price(type);
    if (!price) {
      trial.out = true;
      continue;
    }
    node.room = (*rooms_)[type];
    node.picks.clear();
    const double worth = stock.fill(node.room, node.picks);
    if (node.picks.empty()) {
      trial.out = true;  // the stock only shrinks: it will never hold anything
      continue;
    }
    trial = {.use = worth / (std::max(*price, kFree) + style.slot_price), .worth = worth, .tried = true};
    if (most_promising(trials) != type) {
      stock.put_back(node.picks);
      continue;
    }
    node.type = type;
    depot.take(type, node);
  }
}

bool Packing::open(size_t type) {
  const auto price = supply.price(type);
  if (!price) return false;
  PackNode node{.origin = PackNode::Origin::kOpened, .type = type, .price = *price, .fresh = true};
  node.offering = supply.open(type);
  node.room = (*rooms_)[type];
  nodes.push_back(std::move(node));
  return true;
}

void Packing::close_last() {
  supply.close(nodes.back().type, nodes.back().offering);
  nodes.pop_back();
}

double Packing::opened_cost() const {
  double sum = 0;
  for (const PackNode& node : nodes) sum += node.origin == PackNode::Origin::kOpened ? node.price : 0;
  return sum;
}

size_t Packing::opened() const {
  return static_cast<size_t>(std::count_if(
      nodes.begin(), nodes.end(), [](const PackNode& node) { return node.origin == PackNode::Origin::kOpened; }));
}

}  // namespace rubato::policy

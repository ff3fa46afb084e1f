#include "policy/scale_pack.h"

#include <algorithm>
#include <limits>

namespace rubato::policy {
namespace {

constexpr double kFree = 1e-6;  // dollars: the least that a node may cost, so that its room is worth something
constexpr double kSame = 1e-9;

}  // namespace

// Dollars per unit. A unit that the linear program values at nothing is still worth a little, to break ties.
std::vector<double> Packing::values(const PackStyle& style, bool with_nodes) const {
  std::vector<double> wanted = stock.total();
  const size_t dims = wanted.size();
  std::vector<double> alone(dims, std::numeric_limits<double>::infinity());
  std::vector<double> largest(dims, 0.0);
  std::vector<PricedRoom> offers;
  for (size_t type = 0; type < rooms_->size(); ++type) {
    const auto price = supply.price(type);
    if (!price) continue;
    const std::vector<double>& room = (*rooms_)[type];
    offers.push_back({room, std::max(*price, kFree) + style.slot_price});
    for (size_t dim = 0; dim < dims; ++dim) {
      if (room[dim] > 0) alone[dim] = std::min(alone[dim], offers.back().price / room[dim]);
    }
  }
  if (with_nodes) {
    for (const PackNode& node : nodes) {
      for (size_t dim = 0; dim < dims; ++dim) {
        wanted[dim] -= std::min(wanted[dim], node.room[dim]);
        largest[dim] = std::max(largest[dim], node.room[dim]);
      }
    }
  }
  std::vector<double> out = resource_values(offers, wanted);
  for (size_t dim = 0; dim < dims; ++dim) {
    if (alone[dim] == std::numeric_limits<double>::infinity()) alone[dim] = 1 / std::max(1.0, largest[dim]);
    out[dim] = style.dual * out[dim] + (1.01 - style.dual) * alone[dim];
  }
  return out;
}

void Packing::fill_nodes(const PackStyle& style) {
  stock.set_values(values(style, true));
  for (PackNode& node : nodes) {
    if (stock.left() == 0) break;
    stock.fill(node.room, node.picks);
  }
}

// The best known first; those never tried before all others.
size_t Packing::most_promising(const std::vector<Trial>& trials) const {
  size_t best = trials.size();
  for (size_t type = 0; type < trials.size(); ++type) {
    if (trials[type].out) continue;
    if (!trials[type].tried) return type;
    if (best == trials.size() || trials[type].use > trials[best].use + kSame ||
        (trials[type].use > trials[best].use - kSame && trials[type].worth > trials[best].worth + kSame)) {
      best = type;
    }
  }
  return best;
}

// Again and again the type whose next node would be used best. A type is tried anew only when its last trial says that
// it could be the best one; most of the time that is the one that was just opened.
void Packing::open_nodes(const PackStyle& style) {
  if (stock.left() == 0) return;
  stock.set_values(values(style, false));
  std::vector<Trial> trials(supply.types());
  PackNode node;
  while (stock.left() > 0) {
    const size_t type = most_promising(trials);
    if (type == trials.size()) break;
    Trial& trial = trials[type];
    const auto price = supply.price(type);
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
    node.price = *price;
    node.offering = supply.open(type);
    opened.push_back(node);
  }
}

double Packing::opened_cost() const {
  double sum = 0;
  for (const PackNode& node : opened) sum += node.price;
  return sum;
}

double Packing::worth_left() const {
  double sum = 0;
  for (size_t shape = 0; shape < stock.counts().size(); ++shape) {
    sum += stock.worth(shape) * static_cast<double>(stock.left(shape));
  }
  return sum;
}

}  // namespace rubato::policy

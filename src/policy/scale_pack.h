// Packing: bundles into nodes that are there, then into new ones at the least cost.
#pragma once

#include <vector>

#include "policy/scale_stock.h"
#include "policy/scale_supply.h"
#include "policy/scale_value.h"

namespace rubato::policy {

struct PackNode {
  size_t type = 0;           // of the Supply
  size_t offering = 0;       // of an opened node
  double price = 0;          // of an opened node
  std::vector<double> room;  // what is still free
  std::vector<Pick> picks;
};

// How to choose among node types.
struct PackStyle {
  double dual = 1;        // how far to trust the linear program's values; 0: each resource as if it were bought alone
  double slot_price = 0;  // dollars that a node costs besides its price: for clusters near max_workers
};

// One packing under way; a value, so that several styles can start from the same point.
class Packing {
 public:
  // `rooms`: what an empty node of each type of the supply has, by dimension.
  Packing(Supply supply, Stock stock, const std::vector<std::vector<double>>& rooms)
      : supply(std::move(supply)), stock(std::move(stock)), rooms_(&rooms) {}

  Supply supply;
  Stock stock;
  std::vector<PackNode> nodes;   // there or coming; in the order in which they are to be filled
  std::vector<PackNode> opened;  // new

  void fill_nodes(const PackStyle& style);
  void open_nodes(const PackStyle& style);

  double opened_cost() const;
  double worth_left() const;

 private:
  struct Trial {
    double use = 0;  // worth of what fits per dollar
    double worth = 0;
    bool tried = false;
    bool out = false;
  };
  std::vector<double> values(const PackStyle& style, bool all_nodes) const;
  size_t most_promising(const std::vector<Trial>& trials) const;

  const std::vector<std::vector<double>>* rooms_;
};

}  // namespace rubato::policy

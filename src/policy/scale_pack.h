// Packing: bundles into nodes that are there, then into new ones at the least cost.
#pragma once

#include <functional>
#include <vector>

#include "policy/scale_amounts.h"
#include "policy/scale_stock.h"
#include "policy/scale_supply.h"
#include "policy/scale_value.h"

namespace rubato::policy {

// A bundle of a gang that has its place for good.
struct GangSeat {
  int gang = 0;
  size_t bundles = 0;
  int64_t count = 0;
};

struct PackNode {
  enum class Origin { kThere, kComing, kOpened };
  Origin origin = Origin::kThere;
  size_t index = 0;     // in the input's nodes or launching nodes
  int ordinal = 0;      // of a launching node
  size_t type = 0;      // of the Supply
  size_t offering = 0;  // of an opened node
  double price = 0;
  bool fresh = false;   // coming or new, and empty: it is filled as a new node would be
  bool wanted = false;  // opened for min_workers or a request: whatever the demands are
  Amounts room;         // what is still free
  std::vector<Pick> picks;
  std::vector<GangSeat> seats;
};

// How to choose among node types.
struct PackStyle {
  double dual = 1;        // how far to trust the linear program's values; 0: each resource as if it were bought alone
  double slot_price = 0;  // dollars that a node costs besides its price: for clusters near max_workers
};

using Rooms = std::vector<std::vector<double>>;  // what an empty node of each type of the supply has, by dimension

// One packing under way; a value, so that several styles can start from the same point.
class Packing {
 public:
  Packing(Supply supply_in, Stock stock_in, const Rooms& rooms)
      : supply(std::move(supply_in)), stock(std::move(stock_in)), rooms_(&rooms) {}

  Supply supply;
  Stock stock;
  std::vector<PackNode> nodes;  // those in use in the order in which they are to be filled
  std::vector<double> aside;    // by dimension: the most that is free on a node that is not among these

  // Fills nodes in use, then fresh ones, then new ones. What is left in the stock fits on no node that can be had.
  void pack(const PackStyle& style);

  // A new node with nothing on it yet; false when there is none to be had.
  bool open(size_t type);
  void close_last();  // the node that was opened last

  double opened_cost() const;
  size_t opened() const;

  // Dollars per unit of each dimension, for `wanted` in all. They depend on the file alone, not on how many nodes there
  // are: so the next decision values things as this one.
  std::vector<double> values(const PackStyle& style, const std::vector<double>& wanted) const;

 private:
  struct Trial {
    double use = 0;  // worth of what fits per dollar
    double worth = 0;
    bool tried = false;
    bool out = false;
  };
  // Where the next node of a type comes from.
  struct Depot {
    std::function<std::optional<double>(size_t type)> price;
    std::function<void(size_t type, PackNode& filled)> take;
  };
  void fill_used();
  void fill_fresh(const PackStyle& style);
  void fill_from(const Depot& depot, const PackStyle& style);
  void fill_with(int64_t priority, const Depot& depot, const PackStyle& style);
  static size_t most_promising(const std::vector<Trial>& trials);

  const Rooms* rooms_;
};

}  // namespace rubato::policy

// Layout: a small packing unit by unit, so that units can change places and nodes can be exchanged. What is found is
// written back into the packing.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "policy/scale_draft.h"

namespace rubato::policy {

// What sits on one node as a whole: a bundle, or all bundles of a STRICT_PACK gang.
struct LayoutUnit {
  static constexpr uint32_t kSeats = std::numeric_limits<uint32_t>::max();
  Amounts need;
  double weight = 0;        // dollars that it is roughly worth: the heavy ones are placed first
  double worth = 0;         // by the linear program: all units together cost at least this
  int apart = -1;           // a STRICT_SPREAD gang: no two of its units share a node
  uint32_t shape = kSeats;  // of the packing's stock, or it is these seats of a gang:
  std::vector<GangSeat> seats;
};

struct LayoutNode {
  static constexpr size_t kNew = std::numeric_limits<size_t>::max();
  size_t from = kNew;  // in the packing
  size_t type = 0;
  size_t offering = 0;
  double price = 0;
  bool removable = false;  // opened by this plan for what waits, and nothing else holds it
  Amounts room;
  std::vector<uint32_t> units;
};

struct Layout {
  Supply supply;
  const Rooms* rooms = nullptr;
  std::vector<LayoutUnit> units;
  std::vector<LayoutNode> nodes;
  std::vector<double> values;   // what a unit of each dimension is worth, for LayoutUnit::worth
  std::vector<double> weights;  // the same for LayoutUnit::weight

  double cost() const;  // of the removable nodes
  double weigh(const Amounts& amounts) const;
  bool fits_on(size_t unit, const LayoutNode& node) const;
  void put(size_t unit, LayoutNode& node) const;
  void take(size_t unit, LayoutNode& node) const;  // the unit stays in the node's list
  LayoutNode open(size_t type);                    // there must be one in the supply
  void close(const LayoutNode& node) { supply.close(node.type, node.offering); }
};

// `shapes` are those of the packing's stock. Nodes before `first`, wanted ones and those in `held` stay as they are;
// but what this plan put on them may move.
Layout read_layout(const ScaleProblem& problem, const Shapes& shapes, const Packing& packing, size_t first,
                   const std::vector<char>& held);

// Returns where each node of the packing was before, kNew for new ones.
std::vector<size_t> write_layout(const Layout& layout, Packing& packing);

// Exchanges and drops nodes until nothing gets cheaper, within so many steps (a step: one look whether a unit fits).
// True when something did.
bool refine_layout(Layout& layout, int64_t steps);

// The cheapest of all layouts if it is found within so many steps, else the best that was found. True when it is
// cheaper than what was given.
bool search_layout(Layout& layout, int64_t steps);

// All of the above, where the packing is small enough. Returns where each node was before, as write_layout does;
// nullopt when nothing gets cheaper.
std::optional<std::vector<size_t>> refine_packing(const ScaleProblem& problem, const Shapes& shapes, Packing& packing,
                                                  size_t first, const std::vector<char>& held);

// Whether nodes may be exchanged at all: not where an order among node types or markets goes before the price.
bool may_exchange(const ScaleInput& input, const Supply& supply);

// Whether refine_packing does anything: large packings are left as they are.
bool can_refine(const ScaleProblem& problem, const Packing& packing);

}  // namespace rubato::policy

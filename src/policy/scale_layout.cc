#include "policy/scale_layout.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "policy/scale_value.h"

namespace rubato::policy {
namespace {

// What may be spent on a packing: so many looks whether a unit fits somewhere take a millisecond or two.
constexpr int64_t kUnitsMax = 400;
constexpr int64_t kRefineSteps = 100'000;
constexpr int64_t kSearchUnitsMax = 60;
constexpr int64_t kSearchSteps = 150'000;
constexpr size_t kLayoutNodesMax = 1'000;
constexpr double kOrderDual = 0.5;  // half the linear program's values, half as if each resource were bought alone

double dot_product(const Amounts& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The seats of a node as units: a STRICT_PACK gang is one, every other bundle is its own.
void add_seat_units(const ScaleProblem& problem, const PackNode& node, Layout& out, LayoutNode& to) {
  std::map<int, std::vector<GangSeat>> whole;
  const auto add = [&](LayoutUnit unit) {
    to.units.push_back(static_cast<uint32_t>(out.units.size()));
    out.units.push_back(std::move(unit));
  };
  for (const GangSeat& seat : node.seats) {
    const Gang& gang = problem.input.gangs[static_cast<size_t>(seat.gang)];
    if (gang.strategy == GangStrategy::kStrictPack) {
      whole[seat.gang].push_back(seat);
      continue;
    }
    LayoutUnit unit{.need = problem.dimensions.amounts(gang.bundles[seat.bundles].each)};
    if (gang.strategy == GangStrategy::kStrictSpread) unit.apart = seat.gang;
    unit.seats = {{seat.gang, seat.bundles, 1}};
    for (int64_t at = 0; at < seat.count; ++at) add(unit);
  }
  for (auto& [gang, seats] : whole) {
    LayoutUnit unit{.need = problem.dimensions.amounts(sum_of(problem.input.gangs[static_cast<size_t>(gang)]))};
    unit.seats = std::move(seats);
    add(std::move(unit));
  }
}

void set_values(Layout& layout, const Packing& packing) {
  std::vector<double> wanted(layout.rooms->empty() ? 0 : layout.rooms->front().size(), 0.0);
  for (const LayoutNode& node : layout.nodes) {
    if (!node.removable) continue;
    for (const uint32_t unit : node.units) {
      for (size_t dim = 0; dim < wanted.size(); ++dim) wanted[dim] += layout.units[unit].need[dim];
    }
  }
  std::vector<PricedRoom> offers;
  for (size_t type = 0; type < layout.rooms->size(); ++type) {
    if (const auto price = layout.supply.usual_price(type)) offers.push_back({(*layout.rooms)[type], *price});
  }
  layout.values = resource_values(offers, wanted);
  layout.weights = packing.values({.dual = kOrderDual}, wanted);
  for (LayoutUnit& unit : layout.units) {
    unit.worth = dot_product(unit.need, layout.values);
    unit.weight = dot_product(unit.need, layout.weights);
  }
}

}  // namespace

double Layout::cost() const {
  double sum = 0;
  for (const LayoutNode& node : nodes) sum += node.removable ? node.price : 0;
  return sum;
}

double Layout::weigh(const Amounts& amounts) const { return dot_product(amounts, weights); }

bool Layout::fits_on(size_t unit, const LayoutNode& node) const {
  const Amounts& need = units[unit].need;
  for (size_t dim = 0; dim < need.size(); ++dim) {
    if (need[dim] > node.room[dim]) return false;
  }
  if (units[unit].apart < 0) return true;
  return std::none_of(node.units.begin(), node.units.end(),
                      [&](uint32_t other) { return units[other].apart == units[unit].apart; });
}

void Layout::put(size_t unit, LayoutNode& node) const {
  for (size_t dim = 0; dim < node.room.size(); ++dim) node.room[dim] -= units[unit].need[dim];
  node.units.push_back(static_cast<uint32_t>(unit));
}

void Layout::take(size_t unit, LayoutNode& node) const {
  for (size_t dim = 0; dim < node.room.size(); ++dim) node.room[dim] += units[unit].need[dim];
}

LayoutNode Layout::open(size_t type) {
  LayoutNode node{.type = type, .price = *supply.price(type), .removable = true, .room = (*rooms)[type]};
  node.offering = supply.open(type);
  return node;
}

Layout read_layout(const ScaleProblem& problem, const Shapes& shapes, const Packing& packing, size_t first,
                   const std::vector<char>& held) {
  Layout out{.supply = packing.supply, .rooms = &problem.rooms};
  for (size_t at = 0; at < packing.nodes.size(); ++at) {
    const PackNode& node = packing.nodes[at];
    LayoutNode to{.from = at, .type = node.type, .offering = node.offering, .price = node.price, .room = node.room};
    to.removable =
        at >= first && node.origin == PackNode::Origin::kOpened && !node.wanted && (at >= held.size() || !held[at]);
    for (const Pick& pick : node.picks) {
      const auto need = shapes.of(pick.shape);
      LayoutUnit unit{.need = std::vector<double>(need.begin(), need.end()), .shape = pick.shape};
      for (int64_t some = 0; some < pick.count; ++some) {
        to.units.push_back(static_cast<uint32_t>(out.units.size()));
        out.units.push_back(unit);
      }
    }
    add_seat_units(problem, node, out, to);
    out.nodes.push_back(std::move(to));
  }
  set_values(out, packing);
  return out;
}

std::vector<size_t> write_layout(const Layout& layout, Packing& packing) {
  std::vector<PackNode> nodes;
  std::vector<size_t> from;
  for (const LayoutNode& node : layout.nodes) {
    PackNode out{.origin = PackNode::Origin::kOpened, .fresh = true};
    if (node.from != LayoutNode::kNew) out = packing.nodes[node.from];
    out.type = node.type;
    out.offering = node.offering;
    out.price = node.price;
    out.room = node.room;
    out.picks.clear();
    out.seats.clear();
    std::map<uint32_t, int64_t> picks;
    for (const uint32_t at : node.units) {
      const LayoutUnit& unit = layout.units[at];
      if (unit.shape != LayoutUnit::kSeats) ++picks[unit.shape];
      out.seats.insert(out.seats.end(), unit.seats.begin(), unit.seats.end());
    }
    for (const auto& [shape, count] : picks) out.picks.push_back({shape, count});
    if (!out.seats.empty()) out.fresh = false;
    from.push_back(node.from);
    nodes.push_back(std::move(out));
  }
  packing.nodes = std::move(nodes);
  packing.supply = layout.supply;
  return from;
}

bool may_exchange(const ScaleInput& input, const Supply& supply) {
  return supply.priorities().size() <= 1 && (input.on_demand_base == 0 || input.spot == SpotPolicy::kNever);
}

namespace {

int64_t units_of(const Packing& packing) {
  int64_t units = 0;
  for (const PackNode& node : packing.nodes) {
    for (const Pick& pick : node.picks) units += pick.count;
    for (const GangSeat& seat : node.seats) units += seat.count;
  }
  return units;
}

}  // namespace

bool can_refine(const ScaleProblem& problem, const Packing& packing) {
  return packing.nodes.size() <= kLayoutNodesMax && may_exchange(problem.input, packing.supply) &&
         units_of(packing) <= kUnitsMax;
}

std::optional<std::vector<size_t>> refine_packing(const ScaleProblem& problem, const Shapes& shapes, Packing& packing,
                                                  size_t first, const std::vector<char>& held) {
  if (!can_refine(problem, packing)) return std::nullopt;
  const int64_t units = units_of(packing);
  Layout layout = read_layout(problem, shapes, packing, first, held);
  bool cheaper = refine_layout(layout, kRefineSteps);
  if (units <= kSearchUnitsMax) cheaper |= search_layout(layout, kSearchSteps);
  if (!cheaper) return std::nullopt;
  return write_layout(layout, packing);
}

}  // namespace rubato::policy

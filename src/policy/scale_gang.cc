#include "policy/scale_gang.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace rubato::policy {
namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

void add_to(std::span<double> room, std::span<const double> need, double times) {
  for (size_t dim = 0; dim < room.size(); ++dim) room[dim] += need[dim] * times;
}

}  // namespace

Binding binding_limit(const Supply& supply, const Rooms& rooms, std::span<const double> need) {
  Binding best{ScaleLimit::kTooLarge, "no node type is large enough", std::nullopt};
  for (size_t type = 0; type < rooms.size(); ++type) {
    if (!fits(need, rooms[type])) continue;
    const ScaleLimit limit = supply.limit(type);
    // A type without workers, as the head's often is, is no alternative while another one is.
    const bool none = supply.type(type).max_workers == 0;
    if (steps_away(limit) + (none ? 5 : 0) >= steps_away(best.limit)) continue;
    best = {limit, supply.limit_text(type), type};
  }
  return best;
}

std::optional<Binding> GangSeater::seat(Packing& packing, const Gang& gang, int index) {
  std::vector<Whole> parts;
  switch (gang.strategy) {
    case GangStrategy::kPack:
    case GangStrategy::kSpread:
      return seat_anyhow(packing, gang, index);
    case GangStrategy::kStrictPack:
      parts.push_back({dimensions_.amounts(sum_of(gang)), {}});
      for (size_t at = 0; at < gang.bundles.size(); ++at) {
        parts[0].seats.push_back({index, at, gang.bundles[at].count});
      }
      return seat_apart(packing, std::move(parts));
    case GangStrategy::kStrictSpread:
      for (size_t at = 0; at < gang.bundles.size(); ++at) {
        const Whole one{dimensions_.amounts(gang.bundles[at].each), {{index, at, 1}}};
        // More than there may be nodes cannot be apart; one too many says so.
        const int64_t most = packing.supply.workers_max() + static_cast<int64_t>(packing.nodes.size()) + 1;
        parts.insert(parts.end(), static_cast<size_t>(std::min(gang.bundles[at].count, most)), one);
      }
      return seat_apart(packing, std::move(parts));
  }
  return std::nullopt;
}

size_t GangSeater::cheapest_for(const Packing& packing, std::span<const double> need) const {
  size_t best = kNowhere;
  for (size_t type = 0; type < rooms_.size(); ++type) {
    const auto price = packing.supply.price(type);
    if (!price || !fits(need, rooms_[type])) continue;
    if (best == kNowhere || *price < *packing.supply.price(best)) best = type;
  }
  return best;
}

// Each part on a node of its own: the tightest that holds it, the worthiest part first.
std::optional<Binding> GangSeater::seat_apart(Packing& packing, std::vector<Whole> parts) const {
  std::vector<double> total(dimensions_.size(), 0.0);
  for (const Whole& part : parts) add_to(total, part.need, 1);
  const std::vector<double> values = packing.values(style_, total);
  const auto worth = [&](std::span<const double> amounts) {
    return std::inner_product(amounts.begin(), amounts.end(), values.begin(), 0.0);
  };
  std::stable_sort(parts.begin(), parts.end(),
                   [&](const Whole& a, const Whole& b) { return worth(a.need) > worth(b.need); });
  std::vector<bool> taken(packing.nodes.size(), false);
  std::vector<std::pair<size_t, bool>> chosen;  // the node of each part, and whether it was fresh
  const auto undo = [&] {
    for (size_t at = chosen.size(); at-- > 0;) {
      PackNode& node = packing.nodes[chosen[at].first];
      add_to(node.room, parts[at].need, 1);
      node.seats.resize(node.seats.size() - parts[at].seats.size());
      node.fresh = chosen[at].second;
    }
    while (packing.nodes.size() > taken.size()) packing.close_last();
  };
  for (const Whole& part : parts) {
    size_t best = kNowhere;
    // Those that are there first; of equal ones, the same whatever their order.
    std::tuple<bool, double, double, size_t> least{true, std::numeric_limits<double>::infinity(), 0, 0};
    for (size_t at = 0; at < taken.size(); ++at) {
      const PackNode& node = packing.nodes[at];
      if (taken[at] || !fits(part.need, node.room)) continue;
      const std::tuple left(node.origin != PackNode::Origin::kThere, worth(node.room), node.price, node.type);
      if (left >= least) continue;
      best = at;
      least = left;
    }
    if (best == kNowhere) {
      const size_t type = cheapest_for(packing, part.need);
      if (type == kNowhere) {
        Binding binding = binding_limit(packing.supply, rooms_, part.need);
        undo();
        return binding;
      }
      packing.open(type);
      best = packing.nodes.size() - 1;
    } else {
      taken[best] = true;
    }
    PackNode& node = packing.nodes[best];
    chosen.emplace_back(best, node.fresh);
    add_to(node.room, part.need, -1);
    node.seats.insert(node.seats.end(), part.seats.begin(), part.seats.end());
    node.fresh = false;
  }
  return std::nullopt;
}

std::optional<Binding> GangSeater::no_room(const Packing& packing, const Gang& gang) {
  if (gang.bundles.size() != 1 || gang.bundles.front().each.empty()) return std::nullopt;
  const std::vector<double> need = dimensions_.amounts(gang.bundles.front().each);
  if (cheapest_for(packing, need) != kNowhere) return std::nullopt;
  int64_t left = gang.bundles.front().count;
  // Gangs only take: what had no room has none now.
  const auto [least, first] = without_room_.try_emplace(need, std::numeric_limits<int64_t>::max());
  if (left >= least->second) return binding_limit(packing.supply, rooms_, need);
  for (const PackNode& node : packing.nodes) {
    if (left <= 0) return std::nullopt;
    double fit = static_cast<double>(left);
    for (size_t dim = 0; dim < need.size(); ++dim) {
      if (need[dim] > 0) fit = std::min(fit, std::floor(node.room[dim] / need[dim]));
    }
    left -= static_cast<int64_t>(fit);
  }
  if (left <= 0) return std::nullopt;
  least->second = gang.bundles.front().count;
  return binding_limit(packing.supply, rooms_, need);
}

// Wherever there is room, at the least cost: as demands are packed, but for this gang alone.
std::optional<Binding> GangSeater::seat_anyhow(Packing& packing, const Gang& gang, int index) {
  if (std::optional<Binding> binding = no_room(packing, gang)) return binding;
  WorkBuilder builder(dimensions_);
  for (size_t at = 0; at < gang.bundles.size(); ++at) {
    builder.add(gang.bundles[at].each, {index, at, gang.bundles[at].count});
  }
  const Work work = builder.build();
  Stock own(work.shapes, work.counts, cells_max_);
  const size_t before = packing.nodes.size();
  std::swap(packing.stock, own);
  packing.pack(style_);
  std::swap(packing.stock, own);

  std::optional<Binding> binding;
  for (size_t shape = 0; shape < work.counts.size() && !binding; ++shape) {
    if (own.left(shape) > 0) binding = binding_limit(packing.supply, rooms_, work.shapes.of(shape));
  }
  std::vector<uint32_t> source(work.first.begin(), work.first.end() - 1);
  std::vector<int64_t> used(work.counts.size(), 0);
  for (PackNode& node : packing.nodes) {
    for (const Pick& pick : node.picks) {
      if (binding) {
        add_to(node.room, work.shapes.of(pick.shape), static_cast<double>(pick.count));
        continue;
      }
      for (int64_t left = pick.count; left > 0;) {
        const WorkSource& from = work.sources[source[pick.shape]];
        const int64_t some = std::min(left, from.count - used[pick.shape]);
        node.seats.push_back({index, from.bundles, some});
        left -= some;
        used[pick.shape] += some;
        if (used[pick.shape] == from.count) {
          ++source[pick.shape];
          used[pick.shape] = 0;
        }
      }
    }
    if (!binding && !node.picks.empty()) node.fresh = false;
    node.picks.clear();
  }
  if (!binding) return std::nullopt;
  while (packing.nodes.size() > before) packing.close_last();
  return binding;
}

}  // namespace rubato::policy

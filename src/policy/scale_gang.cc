#include "policy/scale_gang.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace rubato::policy {
namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();
constexpr double kNoDearer = 1e-9;  // dollars

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

bool has_wish(const Gang& gang) {
  constexpr int64_t kLargest = 1000;  // above that, how its bundles sit says little, and takes long to arrange
  if (gang.strategy != GangStrategy::kPack && gang.strategy != GangStrategy::kSpread) return false;
  int64_t bundles = 0;
  for (const Bundles& one : gang.bundles) bundles += one.count;
  return bundles > 1 && bundles <= kLargest;
}

std::optional<Binding> GangSeater::seat(Packing& packing, const Gang& gang, int index) {
  switch (gang.strategy) {
    case GangStrategy::kPack:
    case GangStrategy::kSpread:
      return heed_ && has_wish(gang) ? seat_as_wished(packing, gang, index) : seat_anyhow(packing, gang, index);
    case GangStrategy::kAnywhere:
      return seat_anyhow(packing, gang, index);
    case GangStrategy::kStrictPack:
      return seat_apart(packing, {whole(gang, index)});
    case GangStrategy::kStrictSpread:
      return seat_apart(packing, one_by_one(packing, gang, index));
  }
  return std::nullopt;
}

GangSeater::Whole GangSeater::whole(const Gang& gang, int index) const {
  Whole out{dimensions_.amounts(sum_of(gang)), {}};
  for (size_t at = 0; at < gang.bundles.size(); ++at) out.seats.push_back({index, at, gang.bundles[at].count});
  return out;
}

std::vector<GangSeater::Whole> GangSeater::one_by_one(const Packing& packing, const Gang& gang, int index) const {
  std::vector<Whole> parts;
  for (size_t at = 0; at < gang.bundles.size(); ++at) {
    const Whole one{dimensions_.amounts(gang.bundles[at].each), {{index, at, 1}}};
    // More than there may be nodes cannot be apart; one too many says so.
    const int64_t most = packing.supply.launches_max() + static_cast<int64_t>(packing.nodes.size()) + 1;
    parts.insert(parts.end(), static_cast<size_t>(std::min(gang.bundles[at].count, most)), one);
  }
  return parts;
}

// A wish is worth no money: what opens dearer nodes than room alone would is not done.
std::optional<Binding> GangSeater::seat_as_wished(Packing& packing, const Gang& gang, int index) {
  const bool together = gang.strategy == GangStrategy::kPack;
  Packing anyhow = packing, wished = packing;
  const std::optional<Binding> binding = seat_anyhow(anyhow, gang, index);
  std::vector<Whole> parts;
  if (together) {
    parts.push_back(whole(gang, index));
  } else {
    parts = one_by_one(packing, gang, index);
  }
  const bool done = !seat_apart(wished, parts);
  if (done && (binding || wished.opened_cost() <= anyhow.opened_cost() + kNoDearer)) {
    packing = std::move(wished);
    return std::nullopt;
  }
  if (binding) return binding;
  std::optional<Packing> even;
  if (!together) even = spread_out(packing, anyhow, std::move(parts));
  packing = even ? std::move(*even) : std::move(anyhow);
  return std::nullopt;
}

// As far apart as the nodes that `seated` has allow: each part goes where there are the fewest of them. nullopt when
// that leaves a part without a place, or a new node without a part.
std::optional<Packing> GangSeater::spread_out(const Packing& packing, const Packing& seated,
                                              std::vector<Whole> parts) const {
  Packing out = packing;
  out.supply = seated.supply;
  for (size_t at = packing.nodes.size(); at < seated.nodes.size(); ++at) {
    PackNode node = seated.nodes[at];
    node.room = rooms_[node.type];
    node.seats.clear();
    out.nodes.push_back(std::move(node));
  }
  const auto size = [](const Whole& part) { return std::accumulate(part.need.begin(), part.need.end(), 0.0); };
  std::stable_sort(parts.begin(), parts.end(), [&](const Whole& a, const Whole& b) { return size(a) > size(b); });
  std::vector<int> have(out.nodes.size(), 0);
  for (const Whole& part : parts) {
    size_t best = kNowhere;
    // Those in use before idle ones. Of new ones the same whatever their order: they are coming in the next decision.
    const auto rank = [&](size_t at) {
      const PackNode& node = out.nodes[at];
      const bool there = node.origin == PackNode::Origin::kThere;
      return std::make_tuple(have[at], !there, there ? at : 0, node.price, node.type, std::cref(node.room));
    };
    for (size_t at = 0; at < out.nodes.size(); ++at) {
      if (fits(part.need, out.nodes[at].room) && (best == kNowhere || rank(at) < rank(best))) best = at;
    }
    if (best == kNowhere) return std::nullopt;
    ++have[best];
    add_to(out.nodes[best].room, part.need, -1);
    out.nodes[best].seats.insert(out.nodes[best].seats.end(), part.seats.begin(), part.seats.end());
    out.nodes[best].fresh = false;
  }
  for (size_t at = packing.nodes.size(); at < have.size(); ++at) {
    if (have[at] == 0) return std::nullopt;
  }
  return out;
}

size_t GangSeater::cheapest_for(const Packing& packing, std::span<const double> need) const {
  size_t best = kNowhere;
  for (size_t type = 0; type < rooms_.size(); ++type) {
    const auto price = packing.supply.price(type);
    if (!price || !fits(need, rooms_[type])) continue;
    const auto rank = [&](size_t one) {
      return std::pair(-packing.supply.type(one).priority, *packing.supply.price(one));
    };
    if (best == kNowhere || rank(type) < rank(best)) best = type;
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

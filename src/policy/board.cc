#include "policy/board.h"

#include <algorithm>

#include "core/error.h"

namespace rubato::policy {

using cluster::NodePhase;
using cluster::Seat;

namespace {

// Most nodes and workers name few resources.
std::optional<size_t> find_name(const std::vector<std::string>& names, std::string_view name) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
  }
  return std::nullopt;
}

}  // namespace

Board::Board(const cluster::State& state, bool with_leaving) : state_(state) {
  for (const auto& [size, nodes] : state.index.sizes()) {
    for (const auto& [name, amount] : size.amounts()) {
      if (!find_name(names_, name)) names_.push_back(name);
    }
  }
  nodes_.reserve(state.index.rooms().size());
  free_.reserve(state.index.rooms().size() * names_.size());
  for (const auto& [id, room] : state.index.rooms()) {
    const Resources& free = with_leaving ? room.soon : room.now;
    if (free.empty()) continue;
    const uint32_t number = append(id);
    for (const auto& [name, amount] : free.amounts()) this->room(number, *find_name(names_, name)) = amount;
  }
  in_order_ = nodes_.size();
}

uint32_t Board::append(const NodeId& node) {
  nodes_.push_back(&node);
  free_.resize(nodes_.size() * names_.size());
  return static_cast<uint32_t>(nodes_.size() - 1);
}

std::optional<uint32_t> Board::number_of(const NodeId& node) const {
  const auto end = nodes_.begin() + static_cast<std::ptrdiff_t>(in_order_);
  const auto it =
      std::ranges::lower_bound(nodes_.begin(), end, node, {}, [](const NodeId* id) -> const NodeId& { return *id; });
  if (it != end && **it == node) return static_cast<uint32_t>(it - nodes_.begin());
  const auto late = late_.find(node);
  return late == late_.end() ? std::nullopt : std::optional(late->second);
}

std::optional<uint32_t> Board::admit(const NodeId& id) {
  if (const auto known = number_of(id)) return known;
  const auto node = state_.nodes.find(id);
  if (node == state_.nodes.end() || !node->second.usable()) return std::nullopt;
  const uint32_t number = append(node->first);
  late_.emplace(id, number);
  for (auto& [each, shape] : shapes_) shape.fits.push_back(0);
  return number;
}

int64_t Board::fits_on(const Shape& shape, uint32_t node) const {
  if (!shape.possible) return 0;
  int64_t least = Resources().times_in(Resources());  // of nothing, a large number fits
  for (const auto& [name, amount] : shape.needs) least = std::min(least, free_[node * names_.size() + name] / amount);
  return least;
}

Board::Shape& Board::shape(const Resources& each) {
  const auto found = shapes_.find(each);
  if (found != shapes_.end()) return found->second;
  // Of nothing, some fits on a node without room as well.
  for (auto node = state_.nodes.begin(); each.empty() && node != state_.nodes.end(); ++node) admit(node->first);
  Shape& shape = shapes_[each];
  for (const auto& [name, amount] : each.amounts()) {
    if (const auto index = find_name(names_, name)) {
      shape.needs.emplace_back(*index, amount);
    } else {
      shape.possible = false;
    }
  }
  shape.fits.resize(nodes_.size());
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    const int64_t fits = fits_on(shape, node);
    shape.fits[node] = fits;
    if (fits <= 0) continue;
    std::vector<uint32_t>& bucket = shape.by_fits[fits];
    bucket.insert(place_in(bucket, node), node);
    shape.capacity += fits;
  }
  return shape;
}

int64_t Board::capacity(const Resources& each) { return shape(each).capacity; }

int64_t Board::capacity(const Resources& each, const std::set<NodeId>& shunned) {
  const Shape& index = shape(each);
  int64_t capacity = index.capacity;
  for (const NodeId& id : shunned) {
    if (const auto node = number_of(id)) capacity -= std::max<int64_t>(0, index.fits[*node]);
  }
  return capacity;
}

std::vector<uint32_t>::iterator Board::place_in(std::vector<uint32_t>& bucket, uint32_t node) const {
  // Most come in order.
  if (bucket.empty() || precedes(bucket.back(), node)) return bucket.end();
  return std::ranges::lower_bound(bucket, node, [this](uint32_t a, uint32_t b) { return precedes(a, b); });
}

void Board::change(uint32_t node, const Resources& amount, bool taking) {
  for (const auto& [name, each] : amount.amounts()) {
    const auto index = find_name(names_, name);
    if (!index) continue;
    int64_t& here = room(node, *index);
    here += taking ? -each : each;
    CHECK(here >= 0);
  }
  for (auto& [each, shape] : shapes_) {
    const int64_t before = std::max<int64_t>(0, shape.fits[node]);
    const int64_t now = std::max<int64_t>(0, fits_on(shape, node));
    if (before == now) continue;
    if (before > 0) {
      const auto bucket = shape.by_fits.find(before);
      bucket->second.erase(place_in(bucket->second, node));
      if (bucket->second.empty()) shape.by_fits.erase(bucket);
    }
    if (now > 0) {
      std::vector<uint32_t>& bucket = shape.by_fits[now];
      bucket.insert(place_in(bucket, node), node);
    }
    shape.fits[node] = now;
    shape.capacity += now - before;
  }
}

void Board::seat(const NodeId& node, int count, std::vector<Seat>& seats) const {
  for (Seat& seat : seats) {
    if (seat.node == node) {
      seat.workers += count;
      return;
    }
  }
  seats.push_back(Seat{node, state_.nodes.at(node).agent, count});
}

int Board::take_some(const Resources& each, int count, const std::set<NodeId>& shunned, std::vector<Seat>& seats) {
  Shape& index = shape(each);
  int taken = 0;
  const auto take_on = [&](uint32_t node) {
    const int here = static_cast<int>(std::min<int64_t>(index.fits[node], count - taken));
    seat(id_of(node), here, seats);
    change(node, times(each, here), true);
    taken += here;
  };
  // First where it sits already.
  const std::vector<Seat> own = seats;
  for (const Seat& mine : own) {
    if (taken >= count) return taken;
    const auto node = number_of(mine.node);
    if (node && index.fits[*node] > 0) take_on(*node);
  }
  const auto wanted = [&](uint32_t node) { return shunned.empty() || !shunned.contains(id_of(node)); };
  while (taken < count) {
    // The tightest node that holds all the rest, else the roomiest.
    std::optional<uint32_t> best;
    for (auto it = index.by_fits.lower_bound(count - taken); it != index.by_fits.end() && !best; ++it) {
      const auto node = std::ranges::find_if(it->second, wanted);
      if (node != it->second.end()) best = *node;
    }
    for (auto it = index.by_fits.rbegin(); it != index.by_fits.rend() && !best; ++it) {
      const auto node = std::find_if(it->second.rbegin(), it->second.rend(), wanted);
      if (node != it->second.rend()) best = *node;
    }
    if (!best) return taken;
    take_on(*best);
  }
  return taken;
}

bool Board::take(const Resources& each, int count, const std::set<NodeId>& shunned, std::vector<Seat>& seats) {
  if (shape(each).capacity < count) return false;
  std::vector<Seat> trial = seats;
  const int taken = take_some(each, count, shunned, trial);
  if (taken == count) {
    seats = std::move(trial);
    return true;
  }
  // Shunned nodes were counted in the capacity: undo.
  for (const Seat& seat : trial) {
    int before = 0;
    for (const Seat& old : seats) {
      if (old.node == seat.node) before = old.workers;
    }
    if (seat.workers > before) give_back(seat.node, times(each, seat.workers - before));
  }
  return false;
}

void Board::give_back(const NodeId& id, const Resources& amount) {
  if (const auto node = admit(id)) change(*node, amount, false);
}

void Board::give_back_last(const Resources& each, std::vector<Seat>& seats) {
  Seat& last = seats.back();
  give_back(last.node, each);
  if (--last.workers == 0) seats.pop_back();
}

void Board::give_back(const Resources& each, const std::vector<Seat>& seats) {
  for (const Seat& seat : seats) give_back(seat.node, times(each, seat.workers));
}

bool Board::occupy(const Resources& each, const std::vector<Seat>& seats) {
  bool all = true;
  const Shape& index = shape(each);
  for (const Seat& seat : seats) {
    const auto node = number_of(seat.node);
    const int64_t fits = node ? std::min<int64_t>(std::max<int64_t>(0, index.fits[*node]), seat.workers) : 0;
    if (fits > 0) change(*node, times(each, fits), true);
    all = all && fits == seat.workers;
  }
  return all;
}

}  // namespace rubato::policy

#include "policy/board.h"

#include <algorithm>

namespace rubato::policy {

using cluster::NodePhase;
using cluster::Seat;

Board::Board(const cluster::State& state, bool with_leaving) : state_(state) {
  for (const auto& [id, node] : state.nodes) {
    if (node.usable()) free_[id] = cluster::free_on(state, node);
    TypeCount& counted = counts_[node.type];
    if (node.phase == NodePhase::kUp) ++counted.up;
    if (node.phase == NodePhase::kRequested || node.phase == NodePhase::kStarting) ++counted.coming;
  }
  if (!with_leaving) return;
  for (const JobId& id : state.active) {
    const cluster::Job& job = state.jobs.at(id);
    for (const auto& [node, workers] : job.leaving) {
      if (const auto it = free_.find(node); it != free_.end()) it->second += times(job.spec.per_worker, workers);
    }
  }
}

Board::Shape& Board::shape(const Resources& each) {
  const auto found = shapes_.find(each);
  if (found != shapes_.end()) return found->second;
  Shape& shape = shapes_[each];
  for (const auto& [node, room] : free_) {
    const int64_t fits = each.times_in(room);
    if (fits <= 0) continue;
    shape.nodes.emplace(fits, node);
    shape.fits[node] = fits;
    shape.capacity += fits;
  }
  return shape;
}

int64_t Board::capacity(const Resources& each) { return shape(each).capacity; }

int64_t Board::capacity(const Resources& each, const std::set<NodeId>& shunned) {
  const Shape& index = shape(each);
  int64_t capacity = index.capacity;
  for (const NodeId& node : shunned) {
    const auto it = index.fits.find(node);
    if (it != index.fits.end()) capacity -= it->second;
  }
  return capacity;
}

Board::TypeCount Board::count(const std::string& type) const {
  const auto it = counts_.find(type);
  return it == counts_.end() ? TypeCount{} : it->second;
}

void Board::change(const NodeId& node, const Resources& amount, bool taking) {
  const auto it = free_.find(node);
  if (it == free_.end()) return;
  if (taking) {
    it->second -= amount;
  } else {
    it->second += amount;
  }
  for (auto& [each, shape] : shapes_) {
    const int64_t before = shape.fits.contains(node) ? shape.fits[node] : 0;
    const int64_t now = std::max<int64_t>(0, each.times_in(it->second));
    if (before == now) continue;
    shape.nodes.erase({before, node});
    if (now > 0) shape.nodes.emplace(now, node);
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
  const auto take_on = [&](const NodeId& node, int64_t fits) {
    const int here = static_cast<int>(std::min<int64_t>(fits, count - taken));
    seat(node, here, seats);
    change(node, times(each, here), true);
    taken += here;
  };
  // First where it sits already.
  const std::vector<Seat> own = seats;
  for (const Seat& mine : own) {
    if (taken >= count) return taken;
    const auto it = index.fits.find(mine.node);
    if (it != index.fits.end() && it->second > 0) take_on(mine.node, it->second);
  }
  while (taken < count) {
    // The tightest node that holds all the rest, else the roomiest.
    auto it = index.nodes.lower_bound({count - taken, NodeId{}});
    while (it != index.nodes.end() && shunned.contains(it->second)) ++it;
    if (it == index.nodes.end()) {
      while (it != index.nodes.begin()) {
        --it;
        if (!shunned.contains(it->second)) break;
        if (it == index.nodes.begin()) return taken;
      }
      if (it == index.nodes.end() || shunned.contains(it->second)) return taken;
    }
    const auto [fits, node] = *it;
    take_on(node, fits);
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
    change(seat.node, times(each, seat.workers - before), false);
  }
  return false;
}

void Board::give_back_last(const Resources& each, std::vector<Seat>& seats) {
  Seat& last = seats.back();
  change(last.node, each, false);
  if (--last.workers == 0) seats.pop_back();
}

void Board::give_back(const Resources& each, const std::vector<Seat>& seats) {
  for (const Seat& seat : seats) change(seat.node, times(each, seat.workers), false);
}

bool Board::occupy(const Resources& each, const std::vector<Seat>& seats) {
  bool all = true;
  for (const Seat& seat : seats) {
    const auto it = free_.find(seat.node);
    const int64_t fits = it == free_.end() ? 0 : std::min<int64_t>(each.times_in(it->second), seat.workers);
    if (fits > 0) change(seat.node, times(each, fits), true);
    all = all && fits == seat.workers;
  }
  return all;
}

}  // namespace rubato::policy

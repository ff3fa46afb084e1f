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
  const std::string* type = nullptr;
  TypeCount* counted = nullptr;
  for (const auto& [id, node] : state.nodes) {
    if (!type || *type != node.type) {  // nodes of a type stand together
      type = &node.type;
      counted = &counts_[node.type];
    }
    if (node.phase == NodePhase::kRequested || node.phase == NodePhase::kStarting) ++counted->coming;
    if (!node.usable()) continue;
    ++counted->up;
    nodes_.push_back(&node);
    for (const auto& [name, amount] : node.resources.amounts()) {
      if (!find_name(names_, name)) names_.push_back(name);
    }
  }
  free_.resize(nodes_.size() * names_.size());
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    for (const auto& [name, amount] : nodes_[i]->resources.amounts()) room(i, *find_name(names_, name)) = amount;
  }
  take_seats(state, with_leaving);
  // A node that came back smaller than its seats has nothing to give.
  for (int64_t& amount : free_) amount = std::max<int64_t>(0, amount);
}

void Board::take_seats(const cluster::State& state, bool with_leaving) {
  const auto take = [&](const NodeId& id, const AgentId* agent, const Resources& each, int workers) {
    const std::optional<uint32_t> node = number_of(id);
    // Workers die with their agent: a seat with another one is empty.
    if (!node || (agent && nodes_[*node]->agent != *agent)) return;
    for (const auto& [name, amount] : each.amounts()) {
      if (const auto index = find_name(names_, name)) room(*node, *index) -= amount * workers;
    }
  };
  for (const JobId& id : state.active) {
    const cluster::Job& job = state.jobs.at(id);
    for (const Seat& seat : job.seats) take(seat.node, &seat.agent, job.spec.per_worker, seat.workers);
    if (with_leaving) continue;
    for (const auto& [node, workers] : job.leaving) take(node, nullptr, job.spec.per_worker, workers);
  }
}

std::optional<uint32_t> Board::number_of(const NodeId& node) const {
  const auto it =
      std::ranges::lower_bound(nodes_, node, {}, [](const cluster::Node* one) -> const NodeId& { return one->id; });
  if (it == nodes_.end() || (*it)->id != node) return std::nullopt;
  return static_cast<uint32_t>(it - nodes_.begin());
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
    shape.by_fits[fits].push_back(node);
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

Board::TypeCount Board::count(const std::string& type) const {
  const auto it = counts_.find(type);
  return it == counts_.end() ? TypeCount{} : it->second;
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
      bucket->second.erase(std::ranges::lower_bound(bucket->second, node));
      if (bucket->second.empty()) shape.by_fits.erase(bucket);
    }
    if (now > 0) {
      std::vector<uint32_t>& bucket = shape.by_fits[now];
      bucket.insert(std::ranges::lower_bound(bucket, node), node);
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
    change(*number_of(seat.node), times(each, seat.workers - before), false);
  }
  return false;
}

void Board::give_back_last(const Resources& each, std::vector<Seat>& seats) {
  Seat& last = seats.back();
  if (const auto node = number_of(last.node)) change(*node, each, false);
  if (--last.workers == 0) seats.pop_back();
}

void Board::give_back(const Resources& each, const std::vector<Seat>& seats) {
  for (const Seat& seat : seats) {
    if (const auto node = number_of(seat.node)) change(*node, times(each, seat.workers), false);
  }
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

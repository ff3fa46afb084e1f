#include "policy/scale_stock.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace rubato::policy {
namespace {

constexpr size_t kLane = 4;
constexpr size_t kNoCell = std::numeric_limits<size_t>::max();
// Scaled amounts are floats. They err on the side of "fits"; what is picked is checked exactly.
constexpr float kUp = 1.0F + 0x1p-20F;
constexpr float kDown = 1.0F - 0x1p-20F;

template <class Lane>
bool within(const Lane* need, const Lane* room, size_t lanes) {
  for (size_t lane = 0; lane < lanes; ++lane) {
    const auto over = need[lane] > room[lane];
    uint64_t halves[2];
    std::memcpy(halves, &over, sizeof(halves));
    if ((halves[0] | halves[1]) != 0) return false;
  }
  return true;
}

// The larger, the smaller the worth of the room that stays: |room|^2 - |room - need|^2.
template <class Lane>
float closeness(const Lane* need, const Lane* room, size_t lanes) {
  Lane sum = need[0] * (room[0] + room[0] - need[0]);
  for (size_t lane = 1; lane < lanes; ++lane) sum += need[lane] * (room[lane] + room[lane] - need[lane]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Which cell of a grid a shape is in: which dimensions it needs at all, and how much of the largest there is.
class Grid {
 public:
  Grid(const Shapes& shapes, size_t levels) : shapes_(shapes), levels_(static_cast<double>(levels)) {
    largest_.resize(shapes.dims, 0);
    for (size_t shape = 0; shape < shapes.size(); ++shape) {
      const auto need = shapes.of(shape);
      for (size_t dim = 0; dim < need.size(); ++dim) largest_[dim] = std::max(largest_[dim], need[dim]);
    }
  }
  uint64_t key(size_t shape) const {
    uint64_t key = 1469598103934665603ULL;  // FNV-1a; two cells that meet in one key are one cell, no worse
    const auto need = shapes_.of(shape);
    for (size_t dim = 0; dim < need.size(); ++dim) {
      const double level = need[dim] > 0 ? 1 + std::floor(need[dim] / largest_[dim] * levels_ * 0.999999) : 0;
      key = (key ^ static_cast<uint64_t>(level)) * 1099511628211ULL;
    }
    return key;
  }

 private:
  const Shapes& shapes_;
  double levels_;
  std::vector<double> largest_;
};

}  // namespace

Stock::Stock(const Shapes& shapes, std::vector<int64_t> counts, size_t cells_max)
    : shapes_(&shapes), counts_(std::move(counts)), lanes_(std::max<size_t>(1, (shapes.dims + kLane - 1) / kLane)) {
  CHECK(counts_.size() == shapes.size());
  left_ = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  worth_.assign(shapes.size(), 0);
  room_.resize(lanes_);
  make_cells(cells_max);
  set_values(std::vector<double>(shapes.dims, 1.0));
}

void Stock::make_cells(size_t cells_max) {
  const size_t count = shapes_->size();
  std::vector<std::pair<uint64_t, uint32_t>> keys(count);
  exact_ = count <= cells_max;
  if (exact_) {
    for (size_t shape = 0; shape < count; ++shape) keys[shape] = {shape, static_cast<uint32_t>(shape)};
  } else {
    for (const size_t levels : {48U, 32U, 24U, 16U, 12U, 8U, 6U, 4U, 3U, 2U, 1U}) {
      const Grid grid(*shapes_, levels);
      for (size_t shape = 0; shape < count; ++shape) keys[shape] = {grid.key(shape), static_cast<uint32_t>(shape)};
      std::sort(keys.begin(), keys.end());
      size_t cells = 0;
      for (size_t at = 0; at < count; ++at) cells += at == 0 || keys[at].first != keys[at - 1].first;
      if (cells <= cells_max) break;
    }
  }
  members_.resize(count);
  cell_of_.resize(count);
  for (size_t at = 0; at < count; ++at) {
    const auto index = static_cast<uint32_t>(at);
    if (at == 0 || keys[at].first != keys[at - 1].first) cells_.push_back({index, index, index});
    cells_.back().end = index + 1;
    members_[at] = keys[at].second;
    cell_of_[keys[at].second] = static_cast<uint32_t>(cells_.size() - 1);
  }
  front_.resize(cells_.size() * lanes_);
  least_.resize(cells_.size() * lanes_);
}

void Stock::set_values(std::vector<double> values) {
  scale_.assign(lanes_ * kLane, 0);
  for (size_t dim = 0; dim < values.size(); ++dim) scale_[dim] = static_cast<float>(values[dim]);
  for (size_t shape = 0; shape < shapes_->size(); ++shape) {
    const auto need = shapes_->of(shape);
    worth_[shape] = std::inner_product(need.begin(), need.end(), values.begin(), 0.0);
  }
  for (size_t cell = 0; cell < cells_.size(); ++cell) {
    const auto begin = members_.begin() + cells_[cell].begin;
    const auto end = members_.begin() + cells_[cell].end;
    std::sort(begin, end,
              [&](uint32_t a, uint32_t b) { return worth_[a] != worth_[b] ? worth_[a] > worth_[b] : a < b; });
    cells_[cell].front = cells_[cell].begin;
    for (size_t dim = 0; dim < lanes_ * kLane; ++dim) {
      double least = std::numeric_limits<double>::infinity();
      if (dim >= shapes_->dims) least = 0;
      for (auto at = begin; at != end && dim < shapes_->dims; ++at) least = std::min(least, shapes_->of(*at)[dim]);
      least_[cell * lanes_ + dim / kLane][dim % kLane] = static_cast<float>(least) * scale_[dim] * kDown;
    }
    refresh(cell);
  }
}

// The front moves to the first shape that is left.
void Stock::refresh(size_t cell) {
  Cell& at = cells_[cell];
  while (at.front < at.end && counts_[members_[at.front]] == 0) ++at.front;
  Lane* const lane = &front_[cell * lanes_];
  if (at.front == at.end) {
    const float none = std::numeric_limits<float>::infinity();
    lane[0] = Lane{none, none, none, none};
    return;
  }
  const auto need = shapes_->of(members_[at.front]);
  for (size_t dim = 0; dim < lanes_ * kLane; ++dim) {
    lane[dim / kLane][dim % kLane] = dim < need.size() ? static_cast<float>(need[dim]) * scale_[dim] * kDown : 0;
  }
}

void Stock::raise(std::span<const double> room) {
  for (size_t dim = 0; dim < lanes_ * kLane; ++dim) {
    room_[dim / kLane][dim % kLane] = dim < room.size() ? static_cast<float>(room[dim]) * scale_[dim] * kUp : 0;
  }
}

// Also notes which cells may fit: room only shrinks, so the others need no second look.
size_t Stock::best_of_all() {
  candidates_.clear();
  size_t best = kNoCell;
  float closest = -1;
  for (size_t cell = 0; cell < cells_.size(); ++cell) {
    const Lane* const need = &front_[cell * lanes_];
    if (!within(need, room_.data(), lanes_)) continue;
    candidates_.push_back(static_cast<uint32_t>(cell));
    const float close = closeness(need, room_.data(), lanes_);
    if (close > closest) {
      closest = close;
      best = cell;
    }
  }
  return best;
}

size_t Stock::best_of_candidates() {
  size_t best = kNoCell;
  float closest = -1;
  size_t kept = 0;
  for (const uint32_t cell : candidates_) {
    const Lane* const need = &front_[cell * lanes_];
    if (!within(need, room_.data(), lanes_)) continue;
    candidates_[kept++] = cell;
    const float close = closeness(need, room_.data(), lanes_);
    if (close > closest) {
      closest = close;
      best = cell;
    }
  }
  candidates_.resize(kept);
  return best;
}

void Stock::put(size_t shape, int64_t count, std::span<double> room, std::vector<Pick>& picks, double& worth) {
  const auto need = shapes_->of(shape);
  for (size_t dim = 0; dim < need.size(); ++dim) room[dim] -= need[dim] * static_cast<double>(count);
  counts_[shape] -= count;
  left_ -= count;
  worth += worth_[shape] * static_cast<double>(count);
  if (!picks.empty() && picks.back().shape == shape) {
    picks.back().count += count;
  } else {
    picks.push_back({static_cast<uint32_t>(shape), count});
  }
  if (counts_[shape] == 0) refresh(cell_of_[shape]);
}

// How many of a shape that fits to take at once: few enough that others get their turn, but not ever one of thousands.
int64_t Stock::handful(size_t shape, std::span<const double> room) const {
  if (counts_[shape] == 1) return 1;
  double most = static_cast<double>(counts_[shape]);
  const auto need = shapes_->of(shape);
  for (size_t dim = 0; dim < need.size(); ++dim) {
    if (need[dim] > 0) most = std::min(most, std::floor(room[dim] / need[dim]));
  }
  return std::max<int64_t>(1, static_cast<int64_t>(most) / 8);
}

double Stock::fill(std::span<double> room, std::vector<Pick>& picks) {
  // A gang is one or two shapes, and most nodes have no room for it.
  constexpr size_t kFewShapes = 2;
  if (left_ == 0 || (counts_.size() <= kFewShapes && !any_fits(room))) return 0;
  double worth = 0;
  raise(room);
  for (size_t cell = best_of_all(); cell != kNoCell; cell = best_of_candidates()) {
    const size_t shape = members_[cells_[cell].front];
    if (!fits(shapes_->of(shape), room)) {
      candidates_.erase(std::find(candidates_.begin(), candidates_.end(), static_cast<uint32_t>(cell)));
      continue;
    }
    put(shape, handful(shape, room), room, picks, worth);
    raise(room);
  }
  if (!exact_) squeeze(room, picks, worth);
  return worth;
}

// The fronts do not fit any more; perhaps a smaller shape of some cell does.
void Stock::squeeze(std::span<double> room, std::vector<Pick>& picks, double& worth) {
  for (size_t cell = 0; cell < cells_.size(); ++cell) {
    if (cells_[cell].front == cells_[cell].end || !within(&least_[cell * lanes_], room_.data(), lanes_)) continue;
    for (uint32_t at = cells_[cell].front; at < cells_[cell].end; ++at) {
      const size_t shape = members_[at];
      while (counts_[shape] > 0 && fits(shapes_->of(shape), room)) {
        put(shape, handful(shape, room), room, picks, worth);
      }
    }
    raise(room);
  }
}

void Stock::put_back(std::span<const Pick> picks) {
  for (const Pick& pick : picks) {
    counts_[pick.shape] += pick.count;
    left_ += pick.count;
    const size_t cell = cell_of_[pick.shape];
    cells_[cell].front = cells_[cell].begin;
    refresh(cell);
  }
}

bool Stock::any_fits(std::span<const double> room) const {
  for (size_t shape = 0; shape < counts_.size(); ++shape) {
    if (counts_[shape] > 0 && fits(shapes_->of(shape), room)) return true;
  }
  return false;
}

std::vector<double> Stock::total() const {
  std::vector<double> sum(shapes_->dims, 0.0);
  for (size_t shape = 0; shape < counts_.size(); ++shape) {
    if (counts_[shape] == 0) continue;
    const auto need = shapes_->of(shape);
    for (size_t dim = 0; dim < need.size(); ++dim) sum[dim] += need[dim] * static_cast<double>(counts_[shape]);
  }
  return sum;
}

}  // namespace rubato::policy

// Stock: the bundles that still wait for a place while a plan is being made, and how to fill one node from it well.
//
// Bundles of one size are a shape. With thousands of shapes, those of nearly one size share a cell: a node is filled by
// looking at the first shape of each cell, and only for its last gaps at every shape. So a decision costs about
// nodes x cells, however many bundles there are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rubato::policy {

// The distinct sizes; amounts are whole numbers, which a double holds exactly up to 2^53.
struct Shapes {
  size_t dims = 0;
  std::vector<double> amounts;  // one shape after the other

  size_t size() const { return dims == 0 ? 0 : amounts.size() / dims; }
  std::span<const double> of(size_t shape) const { return {amounts.data() + shape * dims, dims}; }
};

inline bool fits(std::span<const double> need, std::span<const double> room) {
  for (size_t dim = 0; dim < need.size(); ++dim) {
    if (need[dim] > room[dim]) return false;
  }
  return true;
}

struct Pick {
  uint32_t shape = 0;
  int64_t count = 0;
};

class Stock {
 public:
  // `shapes` outlives the stock. `cells_max` bounds the work of a fill.
  Stock(const Shapes& shapes, std::vector<int64_t> counts, size_t cells_max);

  // What a unit of each dimension is worth (> 0): the best fill is the one that leaves the least worth of room.
  void set_values(std::vector<double> values);

  int64_t left(size_t shape) const { return counts_[shape]; }
  int64_t left() const { return left_; }
  const std::vector<int64_t>& counts() const { return counts_; }
  double worth(size_t shape) const { return worth_[shape]; }
  std::vector<double> total() const;  // by dimension

  // Puts into `room` what fits, until nothing does; what it took is appended to `picks`. Returns what it is worth.
  double fill(std::span<double> room, std::vector<Pick>& picks);
  void put_back(std::span<const Pick> picks);
  // Whether anything that is left would fit.
  bool any_fits(std::span<const double> room) const;

 private:
  using Lane = float __attribute__((vector_size(16)));
  struct Cell {
    uint32_t begin = 0, end = 0;  // in members_
    uint32_t front = 0;           // the first one that is left; `end` when none is
  };

  void make_cells(size_t cells_max);
  void refresh(size_t cell);
  void raise(std::span<const double> room);
  size_t best_of_all();
  size_t best_of_candidates();
  int64_t handful(size_t shape, std::span<const double> room) const;
  void squeeze(std::span<double> room, std::vector<Pick>& picks, double& worth);
  void put(size_t shape, int64_t count, std::span<double> room, std::vector<Pick>& picks, double& worth);

  const Shapes* shapes_;
  std::vector<int64_t> counts_;
  int64_t left_ = 0;
  size_t lanes_ = 1;               // per cell
  std::vector<float> scale_;       // by dimension: worth of one unit
  std::vector<double> worth_;      // by shape
  std::vector<uint32_t> members_;  // shapes, cell by cell, the most worthy first
  std::vector<uint32_t> cell_of_;  // by shape
  std::vector<Cell> cells_;
  std::vector<Lane> front_;  // the first shape of each cell, scaled; infinite when it is empty
  std::vector<Lane> least_;  // no shape of the cell is smaller
  bool exact_ = false;       // each cell is one shape

  std::vector<Lane> room_;  // of the node being filled, scaled, rounded up
  std::vector<uint32_t> candidates_;
};

}  // namespace rubato::policy

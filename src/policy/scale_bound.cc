#include "policy/scale_bound.h"

#include <algorithm>
#include <numeric>

#include "policy/scale_draft.h"
#include "policy/scale_value.h"

namespace rubato::policy {
namespace {

// Shapes x nodes: beyond it the nodes' room is counted as if bundles could be cut to fit.
constexpr double kExactMost = 2e7;
constexpr int kRounds = 12;

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// For values with which no node type is worth more than its price, a plan costs at least what all bundles are worth
// less what the nodes that are there can take of it. The search is for the values that give the most.
class BoundSearch {
 public:
  explicit BoundSearch(const ScaleProblem& problem) : problem_(problem), dims_(problem.dimensions.size()) {
    for (size_t type = 0; type < problem.rooms.size(); ++type) {
      if (const auto price = problem.supply.usual_price(type)) offers_.push_back({problem.rooms[type], *price});
    }
    total_.assign(dims_, 0);
    for (size_t shape = 0; shape < problem.work.counts.size(); ++shape) {
      const auto need = problem.work.shapes.of(shape);
      const bool can =
          std::any_of(offers_.begin(), offers_.end(), [&](const PricedRoom& offer) { return fits(need, offer.room); });
      if (!can) continue;
      shapes_.push_back(shape);
      for (size_t dim = 0; dim < dims_; ++dim) {
        total_[dim] += need[dim] * static_cast<double>(problem.work.counts[shape]);
      }
    }
    exact_ = static_cast<double>(shapes_.size()) * static_cast<double>(problem.nodes.size()) <= kExactMost;
  }

  double search() {
    if (shapes_.empty() || offers_.empty()) return 0;
    std::vector<double> used(dims_, 0);
    for (const PackNode& node : problem_.nodes) {
      for (size_t dim = 0; dim < dims_; ++dim) used[dim] += node.room[dim];
    }
    std::vector<double> values(dims_, 0);
    double best = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<double> wanted(dims_);
      for (size_t dim = 0; dim < dims_; ++dim) wanted[dim] = std::max(0.0, total_[dim] - used[dim]);
      const std::vector<double> next = resource_values(offers_, wanted);
      // The mean of values that are allowed is allowed.
      const double step = round == 0 ? 1 : 1.0 / (round + 1);
      for (size_t dim = 0; dim < dims_; ++dim) values[dim] += step * (next[dim] - values[dim]);
      best = std::max({best, bound(next, used), bound(values, used)});
      if (!exact_) break;
    }
    return best;
  }

 private:
  // `used`: what the nodes take of each dimension at these values.
  double bound(const std::vector<double>& values, std::vector<double>& used) const {
    double sum = dot(values, total_);
    std::fill(used.begin(), used.end(), 0.0);
    for (const PackNode& node : problem_.nodes) {
      if (exact_) {
        sum -= most_worth(node.room, values, used);
      } else {
        sum -= dot(values, node.room);
      }
    }
    return sum;
  }

  // What a node can take at most, in pieces of the shapes that fit there.
  double most_worth(std::span<const double> room, const std::vector<double>& values, std::vector<double>& used) const {
    std::vector<size_t> columns;
    for (const size_t shape : shapes_) {
      if (fits(problem_.work.shapes.of(shape), room)) columns.push_back(shape);
    }
    if (columns.empty()) return 0;
    std::vector<std::vector<double>> rows(dims_, std::vector<double>(columns.size()));
    std::vector<double> bound(dims_, 0), gain(columns.size());
    for (size_t dim = 0; dim < dims_; ++dim) {
      bound[dim] = room[dim] > 0 ? 1 : 0;
      for (size_t at = 0; at < columns.size() && room[dim] > 0; ++at) {
        rows[dim][at] = problem_.work.shapes.of(columns[at])[dim] / room[dim];
      }
    }
    for (size_t at = 0; at < columns.size(); ++at) gain[at] = dot(problem_.work.shapes.of(columns[at]), values);
    const std::vector<double> pieces = maximise(std::move(rows), std::move(bound), gain);
    for (size_t at = 0; at < columns.size(); ++at) {
      const auto need = problem_.work.shapes.of(columns[at]);
      for (size_t dim = 0; dim < dims_ && pieces[at] > 0; ++dim) used[dim] += need[dim] * pieces[at];
    }
    return dot(pieces, gain);
  }

  const ScaleProblem& problem_;
  size_t dims_;
  std::vector<PricedRoom> offers_;
  std::vector<size_t> shapes_;  // those that fit on some type
  std::vector<double> total_;
  bool exact_ = false;
};

}  // namespace

double cost_lower_bound(const ScaleInput& input) {
  ScaleInput plain = input;
  plain.gangs.clear();
  plain.requests.clear();
  const ScaleProblem problem(plain);
  return BoundSearch(problem).search();
}

}  // namespace rubato::policy

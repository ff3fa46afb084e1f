#include "policy/scale_value.h"

#include <algorithm>
#include <cmath>

namespace rubato::policy {
namespace {

constexpr double kTiny = 1e-9;

// Maximises gain * x where rows * x <= bound, x >= 0 and all bounds >= 0: x = 0 is feasible, so one phase is enough.
class Simplex {
 public:
  Simplex(std::vector<std::vector<double>> rows, std::vector<double> bound, std::vector<double> gain)
      : rows_(std::move(rows)), bound_(std::move(bound)), gain_(std::move(gain)), basis_(rows_.size()) {
    for (size_t row = 0; row < rows_.size(); ++row) basis_[row] = gain_.size() + row;
    columns_.resize(gain_.size());
    for (size_t column = 0; column < gain_.size(); ++column) columns_[column] = column;
  }

  std::vector<double> solve() {
    // Bland's rule does not cycle; the bound on the steps is for rounding errors that pretend to be progress.
    for (size_t step = 0; step < 50 * (rows_.size() + gain_.size()); ++step) {
      const size_t column = entering();
      if (column == gain_.size()) break;
      const size_t row = leaving(column);
      if (row == rows_.size()) break;
      pivot(row, column);
    }
    std::vector<double> out(gain_.size(), 0.0);
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (basis_[row] < out.size()) out[basis_[row]] = std::max(0.0, bound_[row]);
    }
    return out;
  }

 private:
  size_t entering() const {
    size_t best = gain_.size();
    for (size_t column = 0; column < gain_.size(); ++column) {
      if (gain_[column] > kTiny && (best == gain_.size() || columns_[column] < columns_[best])) best = column;
    }
    return best;
  }

  size_t leaving(size_t column) const {
    size_t best = rows_.size();
    double least = 0;
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (rows_[row][column] <= kTiny) continue;
      const double ratio = bound_[row] / rows_[row][column];
      if (best == rows_.size() || ratio < least - kTiny || (ratio < least + kTiny && basis_[row] < basis_[best])) {
        best = row;
        least = ratio;
      }
    }
    return best;
  }

  // The basic variable of the row and the free one of the column change places.
  void pivot(size_t row, size_t column) {
    const double inverse = 1 / rows_[row][column];
    for (double& entry : rows_[row]) entry *= inverse;
    rows_[row][column] = inverse;
    bound_[row] *= inverse;
    for (size_t other = 0; other < rows_.size(); ++other) {
      if (other != row) eliminate(rows_[other], bound_[other], row, column, -1);
    }
    double value = 0;
    eliminate(gain_, value, row, column, 0);
    std::swap(basis_[row], columns_[column]);
  }

  void eliminate(std::vector<double>& line, double& bound, size_t row, size_t column, double of_bound) const {
    const double factor = line[column];
    if (factor == 0) return;
    for (size_t at = 0; at < line.size(); ++at) {
      line[at] = at == column ? -factor * rows_[row][column] : line[at] - factor * rows_[row][at];
    }
    bound += of_bound * factor * bound_[row];
  }

  std::vector<std::vector<double>> rows_;
  std::vector<double> bound_;
  std::vector<double> gain_;
  std::vector<size_t> basis_;    // the variable of each row
  std::vector<size_t> columns_;  // and of each column
};

}  // namespace

std::vector<double> maximise(std::vector<std::vector<double>> rows, std::vector<double> bound,
                             std::vector<double> gain) {
  return Simplex(std::move(rows), std::move(bound), std::move(gain)).solve();
}

std::vector<double> resource_values(const std::vector<PricedRoom>& nodes, const std::vector<double>& demand) {
  const size_t dims = demand.size();
  // Bytes and GPUs in one tableau: each dimension in units of the largest node.
  std::vector<double> unit(dims, 0.0);
  for (const PricedRoom& node : nodes) {
    for (size_t dim = 0; dim < dims; ++dim) unit[dim] = std::max(unit[dim], node.room[dim]);
  }
  std::vector<double> gain(dims, 0.0);
  double most = 0;
  for (size_t dim = 0; dim < dims; ++dim) {
    gain[dim] = unit[dim] > 0 ? demand[dim] / unit[dim] : 0;
    most = std::max(most, gain[dim]);
  }
  if (most <= 0) return std::vector<double>(dims, 0.0);
  for (double& entry : gain) entry /= most;

  std::vector<std::vector<double>> rows;
  std::vector<double> bound;
  for (const PricedRoom& node : nodes) {
    std::vector<double> row(dims, 0.0);
    for (size_t dim = 0; dim < dims; ++dim) row[dim] = unit[dim] > 0 ? node.room[dim] / unit[dim] : 0;
    rows.push_back(std::move(row));
    bound.push_back(node.price);
  }
  std::vector<double> values = maximise(std::move(rows), std::move(bound), std::move(gain));
  for (size_t dim = 0; dim < dims; ++dim) values[dim] = unit[dim] > 0 ? values[dim] / unit[dim] : 0;
  return values;
}

}  // namespace rubato::policy

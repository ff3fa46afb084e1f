#include "policy/scale_work.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace rubato::policy {

Dimensions::Dimensions(const ScaleInput& input) {
  for (const Bundles& one : input.demands) add(one.each);
  for (const Bundles& one : input.requests) add(one.each);
  for (const Gang& gang : input.gangs) {
    for (const Bundles& one : gang.bundles) add(one.each);
  }
}

void Dimensions::add(const Resources& resources) {
  for (const auto& [name, amount] : resources.amounts()) {
    const auto at = std::lower_bound(names_.begin(), names_.end(), name);
    if (at == names_.end() || *at != name) names_.insert(at, name);
  }
}

void Dimensions::amounts(const Resources& resources, std::span<double> out) const {
  std::fill(out.begin(), out.end(), 0.0);
  // Both are sorted by name.
  size_t dim = 0;
  for (const auto& [name, amount] : resources.amounts()) {
    while (dim < names_.size() && names_[dim] < name) ++dim;
    if (dim < names_.size() && names_[dim] == name) out[dim] = static_cast<double>(amount);
  }
}

std::vector<double> Dimensions::amounts(const Resources& resources) const {
  std::vector<double> out(names_.size());
  amounts(resources, out);
  return out;
}

Resources Dimensions::resources(std::span<const double> amounts) const {
  constexpr double kMost = 9e18;  // the sum of a gang may be more than 64 bits hold; it fits nowhere
  Resources out;
  for (size_t dim = 0; dim < names_.size(); ++dim) {
    out.set(names_[dim], static_cast<int64_t>(std::min(amounts[dim], kMost)));
  }
  return out;
}

void WorkBuilder::add(const Resources& each, const WorkSource& source) {
  if (each.empty() || source.count <= 0) return;
  rows_.resize(rows_.size() + dimensions_.size());
  dimensions_.amounts(each, std::span(rows_).last(dimensions_.size()));
  sources_.push_back(source);
}

Work WorkBuilder::build() {
  const size_t dims = dimensions_.size();
  std::vector<uint32_t> order(sources_.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto row = [&](uint32_t at) { return rows_.data() + size_t{at} * dims; };
  const auto before = [&](uint32_t a, uint32_t b) {
    const double *x = row(a), *y = row(b);
    for (size_t dim = 0; dim < dims; ++dim) {
      if (x[dim] != y[dim]) return x[dim] < y[dim];
    }
    const bool demand_a = sources_[a].gang < 0, demand_b = sources_[b].gang < 0;
    return demand_a != demand_b ? demand_b : a < b;
  };
  std::sort(order.begin(), order.end(), before);

  Work work;
  work.shapes.dims = dims;
  work.sources.reserve(order.size());
  const double* last = nullptr;
  for (const uint32_t at : order) {
    const double* const amounts = row(at);
    if (last == nullptr || !std::equal(amounts, amounts + dims, last)) {
      work.shapes.amounts.insert(work.shapes.amounts.end(), amounts, amounts + dims);
      work.counts.push_back(0);
      work.first.push_back(static_cast<uint32_t>(work.sources.size()));
      last = amounts;
    }
    work.counts.back() += sources_[at].count;
    work.sources.push_back(sources_[at]);
  }
  work.first.push_back(static_cast<uint32_t>(work.sources.size()));
  return work;
}

Resources sum_of(const Gang& gang) {
  Resources sum;
  for (const Bundles& one : gang.bundles) sum += times(one.each, one.count);
  return sum;
}

}  // namespace rubato::policy

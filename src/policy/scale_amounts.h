// Amounts: so much of each dimension. A plan copies thousands of them: a few are held without an allocation.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <vector>

namespace rubato::policy {

class Amounts {
 public:
  Amounts() = default;
  Amounts(const std::vector<double>& all) : size_(all.size()) {  // NOLINT: they are the same
    if (size_ <= kFew) {
      std::copy(all.begin(), all.end(), few_.begin());
    } else {
      many_ = all;
    }
  }

  size_t size() const { return size_; }
  double* data() { return size_ <= kFew ? few_.data() : many_.data(); }
  const double* data() const { return size_ <= kFew ? few_.data() : many_.data(); }
  double* begin() { return data(); }
  double* end() { return data() + size_; }
  const double* begin() const { return data(); }
  const double* end() const { return data() + size_; }
  double& operator[](size_t at) { return data()[at]; }
  double operator[](size_t at) const { return data()[at]; }

  bool operator==(const Amounts& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }
  std::partial_ordering operator<=>(const Amounts& other) const {
    return std::lexicographical_compare_three_way(begin(), end(), other.begin(), other.end());
  }

 private:
  static constexpr size_t kFew = 4;
  size_t size_ = 0;
  std::array<double, kFew> few_{};
  std::vector<double> many_;
};

}  // namespace rubato::policy

// Work: the bundles of an input as numbers, those of one size together.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "policy/scale.h"
#include "policy/scale_stock.h"

namespace rubato::policy {

// The resources that anybody asks for; nodes may have more, nobody cares.
class Dimensions {
 public:
  explicit Dimensions(const ScaleInput& input);
  size_t size() const { return names_.size(); }
  std::vector<double> amounts(const Resources& resources) const;
  void amounts(const Resources& resources, std::span<double> out) const;
  Resources resources(std::span<const double> amounts) const;

 private:
  void add(const Resources& resources);
  std::vector<std::string> names_;  // sorted
};

// Where the bundles of a shape come from.
struct WorkSource {
  static constexpr size_t kWhole = std::numeric_limits<size_t>::max();
  int gang = -1;       // index of the gang; -1: a demand or a request
  size_t bundles = 0;  // index in the list; kWhole: all bundles of a STRICT_PACK gang as one
  int64_t count = 0;
};

struct Work {
  Shapes shapes;                    // in a fixed order, whatever that of the input
  std::vector<int64_t> counts;      // by shape
  std::vector<WorkSource> sources;  // by shape; gangs first, in their order
  std::vector<uint32_t> first;      // by shape: its first source; one more at the end

  std::span<const WorkSource> of(size_t shape) const {
    return {sources.data() + first[shape], first[shape + 1] - first[shape]};
  }
};

// Collects bundles; those that need nothing are left out: they are always fulfilled.
class WorkBuilder {
 public:
  explicit WorkBuilder(const Dimensions& dimensions) : dimensions_(dimensions) {}
  void add(const Resources& each, const WorkSource& source);
  Work build();

 private:
  const Dimensions& dimensions_;
  std::vector<double> rows_;
  std::vector<WorkSource> sources_;
};

// All bundles of a gang as one.
Resources sum_of(const Gang& gang);

}  // namespace rubato::policy

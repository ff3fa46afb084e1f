// How machines are bought. Included by the description of a cluster and by the decisions about it alike.
#pragma once

#include <string_view>

namespace rubato {

enum class Market { kOnDemand, kSpot };
std::string_view to_string(Market market);  // "on-demand", "spot"

enum class SpotPolicy {
  kPrefer,  // spot where it is not dearer, on demand where spot cannot be had
  kOnly,
  kNever,
};
std::string_view to_string(SpotPolicy policy);  // "prefer", "only", "never"

}  // namespace rubato

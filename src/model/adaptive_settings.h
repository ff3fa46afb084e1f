// AdaptiveSettings: what a cluster file says of adaptive jobs (docs/adaptive.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <utility>

namespace rubato {

// How the workers of adaptive jobs are shared out: policy/allocate.h.
enum class AdaptivePolicy {
  kGoodput,  // least work left first, as far as jobs say how much there is
  kFair,     // the slowest job counts most
};
std::string_view to_string(AdaptivePolicy policy);

struct AdaptiveSettings {
  AdaptivePolicy policy = AdaptivePolicy::kGoodput;
  double max_slowdown = 0;  // a job that is slower than with its fair share by more than this comes first; 0: no bound
  double least_utility = 0.5;                             // a node is added while its workers do so much of a first one
  std::optional<std::pair<double, double>> utility_band;  // AdaptDL's rule instead
  bool operator==(const AdaptiveSettings&) const = default;
};

std::optional<AdaptivePolicy> parse_adaptive_policy(std::string_view text);
// "0.35:0.65". nullopt when it is none.
std::optional<std::pair<double, double>> parse_utility_band(std::string_view text);

nlohmann::json to_json(const AdaptiveSettings& adaptive);
// What is absent keeps its default. Throws json's exceptions.
AdaptiveSettings adaptive_settings_from_json(const nlohmann::json& object);

}  // namespace rubato

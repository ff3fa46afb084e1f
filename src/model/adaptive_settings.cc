#include "model/adaptive_settings.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/text.h"

namespace rubato {

using nlohmann::json;

std::string_view to_string(AdaptivePolicy policy) {
  switch (policy) {
    case AdaptivePolicy::kGoodput:
      return "goodput";
    case AdaptivePolicy::kFair:
      return "fair";
  }
  return "unknown";
}

std::optional<AdaptivePolicy> parse_adaptive_policy(std::string_view text) {
  for (const AdaptivePolicy policy : {AdaptivePolicy::kGoodput, AdaptivePolicy::kFair}) {
    if (text == to_string(policy)) return policy;
  }
  return std::nullopt;
}

std::optional<std::pair<double, double>> parse_utility_band(std::string_view text) {
  const auto parts = split_once(text, ':');
  if (!parts) return std::nullopt;
  const auto number = [](std::string_view part) {
    double value = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc{} && end == part.data() + part.size() ? value : -1;
  };
  const double low = number(parts->first), high = number(parts->second);
  if (!(low >= 0 && low <= high && high <= 1)) return std::nullopt;
  return std::pair(low, high);
}

json to_json(const AdaptiveSettings& adaptive) {
  json out = {{"policy", to_string(adaptive.policy)},
              {"max_slowdown", adaptive.max_slowdown},
              {"least_utility", adaptive.least_utility}};
  if (adaptive.utility_band) out["utility_band"] = {adaptive.utility_band->first, adaptive.utility_band->second};
  return out;
}

AdaptiveSettings adaptive_settings_from_json(const json& object) {
  AdaptiveSettings out;
  out.policy = parse_adaptive_policy(object.value("policy", "")).value_or(out.policy);
  out.max_slowdown = object.value("max_slowdown", out.max_slowdown);
  out.least_utility = object.value("least_utility", out.least_utility);
  if (object.contains("utility_band")) {
    const json& band = object.at("utility_band");
    out.utility_band = {band.at(0).get<double>(), band.at(1).get<double>()};
  }
  return out;
}

}  // namespace rubato

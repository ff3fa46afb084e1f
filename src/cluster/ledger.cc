#include "cluster/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cluster/observed.h"

namespace rubato::cluster {

namespace {

constexpr std::array kShortageKinds = {LaunchFailure::kNoCapacity, LaunchFailure::kQuota, LaunchFailure::kAuth};
// More than this per hour is no price; the sums must fit.
constexpr double kPriceMax = 1e6;

}  // namespace

int64_t price_micros(double per_hour) {
  return std::isfinite(per_hour) ? std::llround(std::clamp(per_hour, 0.0, kPriceMax) * 1e6) : 0;
}

int64_t cost_micros(int64_t micros_per_hour, Duration time) {
  const double hours = to_seconds(std::max<Duration>(0s, time)) / 3600;
  return std::llround(static_cast<double>(micros_per_hour) * hours);
}

std::string shortage_key(LaunchFailure code, const std::string& type, const Offering& offering) {
  if (code == LaunchFailure::kAuth) return "*";
  const std::string zone = code == LaunchFailure::kQuota ? "*" : offering.zone;
  return fmt::format("{}/{}/{}", type, zone, to_string(offering.market));
}

void note_failure(Shortages& shortages, LaunchFailure code, const std::string& type, const Offering& offering,
                  const std::string& error, WallTime now) {
  if (code == LaunchFailure::kOther) return;
  std::erase_if(shortages, [&](const auto& entry) { return now >= later(entry.second.until, kShortageForgotten); });
  Shortage& shortage = shortages[shortage_key(code, type, offering)];
  // Launches that were under way together fail together: that is one failure.
  if (shortage.failures > 0 && now < shortage.until) {
    shortage.error = error;
    return;
  }
  if (++shortage.failures == 1) shortage.since = now;
  shortage.code = code;
  shortage.error = error;
  const Duration wait = kShortageFirst * (1 << std::min(shortage.failures - 1, 10));
  shortage.until = later(now, std::min<Duration>(wait, kShortageMax));
}

void note_success(Shortages& shortages, const std::string& type, const Offering& offering) {
  for (const LaunchFailure code : kShortageKinds) shortages.erase(shortage_key(code, type, offering));
}

const Shortage* shortage_of(const Shortages& shortages, const std::string& type, const Offering& offering,
                            WallTime now) {
  const Shortage* longest = nullptr;
  for (const LaunchFailure code : kShortageKinds) {
    const auto it = shortages.find(shortage_key(code, type, offering));
    if (it == shortages.end() || now >= it->second.until) continue;
    if (!longest || it->second.until > longest->until) longest = &it->second;
  }
  return longest;
}

}  // namespace rubato::cluster

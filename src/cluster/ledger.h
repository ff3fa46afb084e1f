// Ledger: what nodes have cost so far, and which machines could not be had. Parts of the state, changed by apply().
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cluster/event.h"

namespace rubato::cluster {

// Money is in millionths: sums of it do not drift, and the same journal gives the same bill everywhere.
struct Spent {
  int64_t nodes = 0;
  Duration time{};
  int64_t micros = 0;
  bool operator==(const Spent&) const = default;
};
int64_t price_micros(double per_hour);
int64_t cost_micros(int64_t micros_per_hour, Duration time);

// Something that could not be had: not asked for again until then.
struct Shortage {
  LaunchFailure code = LaunchFailure::kOther;
  int failures = 0;  // in a row
  WallTime since{}, until{};
  std::string error;
};
// What a failure says something about: one offering (no capacity), all zones of a type and market (quota), all (auth).
std::string shortage_key(LaunchFailure code, const std::string& type, const Offering& offering);

using Shortages = std::map<std::string, Shortage>;
void note_failure(Shortages& shortages, LaunchFailure code, const std::string& type, const Offering& offering,
                  const std::string& error, WallTime now);
// It could be had: nothing that was remembered about it holds any more.
void note_success(Shortages& shortages, const std::string& type, const Offering& offering);
// The one that keeps this offering from being asked for now, the longest first; nullptr: none.
const Shortage* shortage_of(const Shortages& shortages, const std::string& type, const Offering& offering,
                            WallTime now);

// Doubled with each failure in a row; forgotten when nothing failed for long.
inline constexpr Duration kShortageFirst = 30s;
inline constexpr Duration kShortageMax = 30min;
inline constexpr Duration kShortageForgotten = 1h;

}  // namespace rubato::cluster

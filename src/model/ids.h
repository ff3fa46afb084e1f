// Ids and counters that must not be mixed up.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace rubato {

// One agent process: random, made at its start, so that only the same process can come back with it.
struct AgentId {
  std::string value;
  auto operator<=>(const AgentId&) const = default;
};

// One node of a cluster, "small-3": given out once, never again.
struct NodeId {
  std::string value;
  auto operator<=>(const NodeId&) const = default;
};

// One job, "j-7f3a9c2e": random, short enough to type; any unique prefix names it.
struct JobId {
  std::string value;
  auto operator<=>(const JobId&) const = default;
};

// Counts the rounds of a group. Workers of an older generation are stopped before a newer one starts.
using Generation = uint64_t;

}  // namespace rubato

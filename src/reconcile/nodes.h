// advance_nodes: the nodes that the cluster file wants against those that are there.
#pragma once

#include <vector>

#include "cluster/observed.h"
#include "cluster/state.h"

namespace rubato::reconcile {

inline constexpr Duration kJoinMax = 60s;  // from a node's start to its agent's first word
// The same from the moment on which a head begins to listen: agents that started meanwhile ask every few seconds.
inline constexpr Duration kRejoinMax = 15s;

std::vector<cluster::Event> advance_nodes(const cluster::State& state, const cluster::Observed& observed, WallTime now,
                                          cluster::Wake& wake);

// What a new file would change: {"add"|"remove"|"replace"|"update"|"limits", type, count, why}. For `rubato up`.
struct PlannedChange {
  std::string action;
  std::string type;
  int count = 0;
  std::string why;
};
std::vector<PlannedChange> plan_changes(const cluster::State& state, const ClusterSpec& next);

}  // namespace rubato::reconcile

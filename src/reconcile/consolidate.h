// consolidate: elastic work moves together and a node goes, when that pays within autoscaling.consolidate_after.
//
// A job agrees to be moved by being elastic (MIN:MAX): others are never touched. It keeps as many workers as it has;
// the move costs a restart of its round, on all of its nodes. The price of the node over the stated time must be more
// than that. Nothing is moved while anything waits, comes or has changed within that time: the same work is not moved
// back and forth.
#pragma once

#include <optional>

#include "cluster/observed.h"
#include "cluster/state.h"

namespace rubato::reconcile {

inline constexpr Duration kMoveTime = 60s;  // of training that a move costs each node of a job

// The node to be emptied, one at a time. For a cluster without demand and launches.
std::optional<cluster::Event> consolidate(const cluster::State& state, WallTime now, cluster::Wake& wake);

}  // namespace rubato::reconcile

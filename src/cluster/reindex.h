// reindex: what follows from nodes and jobs and is kept beside them in the state: who is on which node, which jobs wait
// and which are under way, idle clocks, the Index. Called by apply() alone, after each change.
#pragma once

#include <map>
#include <vector>

#include "cluster/state.h"

namespace rubato::cluster {

// The nodes that a job is on, and what it has there.
struct Whereabouts {
  std::vector<Seat> seats;
  std::map<NodeId, int> leaving;
};

// A job has changed. `before`: where it was.
void reindex(State& state, const Job& job, const Whereabouts& before);

// An event was applied.
void reindex(State& state, const Event& event);

// A node's idle clock runs while it is up and nothing of any job is there.
void mind_idleness(State& state, const NodeId& id);

}  // namespace rubato::cluster

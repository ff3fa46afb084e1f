// decide: everything a head decides in one go. Pure: the same state, observations and time give the same events. What
// was worked out before and need not be again is kept beside the state (`memory`), for each state its own.
#pragma once

#include <vector>

#include "cluster/observed.h"
#include "cluster/state.h"
#include "reconcile/autoscale.h"

namespace rubato::reconcile {

struct Decision {
  std::vector<cluster::Record> records;  // in order, offsets and times filled in; already applied to the state
  cluster::Wake wake;                    // when to decide again though nothing happens
};

// Applies `happened` (observations and requests), then decides until nothing more follows, or until so much has been
// decided that the rest waits for another turn: `wake` is then not later than `now`.
Decision decide(cluster::State& state, PlanMemory& memory, const cluster::Observed& observed,
                std::vector<cluster::Event> happened, WallTime now);

}  // namespace rubato::reconcile

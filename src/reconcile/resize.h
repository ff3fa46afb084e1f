// resize: how many workers each adaptive job is to have. Pure: policy::allocate on what the cluster has.
//
// A job is adaptive when it is elastic and has told its profile (JobProfile). Sizes are worked out again when a
// profile, the nodes or the jobs have changed (State::resize_at); place() moves jobs to them.
#pragma once

#include <vector>

#include "cluster/state.h"

namespace rubato::reconcile {

// JobSized for each job whose size, or whose reason for it, is another one now.
std::vector<cluster::Event> resize(const cluster::State& state, WallTime now);

// What it may have at most: twice as many as it has been seen with, for nobody knows what lies beyond.
int most_explored(const cluster::Job& job);

}  // namespace rubato::reconcile

// advance_jobs: the rounds of jobs. The same phases, ranks and restart rules as a group of `rubato run` (see
// elastic/rendezvous.h), without what only a group without a head needs: takeover. Fencing is in fence.h.
#pragma once

#include <vector>

#include "cluster/observed.h"
#include "cluster/state.h"

namespace rubato::reconcile {

std::vector<cluster::Event> advance_jobs(const cluster::State& state, const cluster::Observed& observed, WallTime now,
                                         cluster::Wake& wake);

// "spot notice 120 s → saved and stopped (0.4 s) → resized 4→3 (0.3 s)": of a job that runs again now, with so many.
std::string describe_move(const cluster::Evacuation& move, int workers, WallTime now);

// The members of a job's round in the order of their ranks.
std::vector<elastic::MemberInfo> round_of(const cluster::State& state, const cluster::Job& job);

}  // namespace rubato::reconcile

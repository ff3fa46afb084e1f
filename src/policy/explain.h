// explain: why a job waits, from the state that the decision was made on.
#pragma once

#include "cluster/state.h"
#include "policy/board.h"

namespace rubato::policy {

// "2 to 4 workers of 1 CPU each"
std::string wanted(const JobSpec& spec);

// Why MIN workers do not fit. `board` has the room that was left when this job's turn came.
cluster::Reasons why_not(const cluster::State& state, const cluster::Job& job, Board& board);

// Why it got fewer than MAX, or nothing stands against it.
cluster::Reasons why_so_many(const cluster::State& state, const cluster::Job& job, int workers);

}  // namespace rubato::policy

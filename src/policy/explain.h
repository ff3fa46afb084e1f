// explain: why a job waits, from the state that the decision was made on.
#pragma once

#include "cluster/state.h"
#include "policy/board.h"

namespace rubato::policy {

// "2 to 4 workers of 1 CPU each"
std::string wanted(const JobSpec& spec);

// Why MIN workers would not fit if every node that the cluster file allows were there and empty; nullopt: they would.
std::optional<cluster::Reasons> why_never(const cluster::State& state, const JobSpec& spec);

// Why MIN workers do not fit. `board` has the room that was left when this job's turn came.
cluster::Reasons why_not(const cluster::State& state, const cluster::Job& job, Board& board);

// Why MIN workers do not fit though nothing else runs: the nodes that are up hold `room` of this size.
cluster::Reasons why_too_few(const cluster::State& state, const JobSpec& spec, int64_t room);

// Why it got fewer than MAX, or nothing stands against it.
cluster::Reasons why_so_many(const cluster::State& state, const cluster::Job& job, int workers);

}  // namespace rubato::policy

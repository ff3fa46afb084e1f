// place: which jobs get seats on which nodes. A pure decision; each result says why.
//
// In this order:
//   repair  a job that lost nodes, failed, or waited too long for some goes on with what it can have (at least MIN
//           workers), or back to the queue;
//   serve   queued jobs get their MIN, all or nothing: higher priority first, then the owner with the smallest share
//           of the cluster, then the older job. A job that does not fit lets smaller ones pass, but not for ever
//           (kStarvation). Workers above MIN of elastic jobs make room for it, never those below;
//   grow    what is left goes to elastic jobs, one worker at a time to the one with the fewest above its MIN.
//           Growing costs a restart of the round: it waits until joins have settled.
#pragma once

#include <vector>

#include "cluster/observed.h"
#include "cluster/state.h"

namespace rubato::policy {

inline constexpr Duration kStarvation = 600s;
inline constexpr Duration kJoinsSettle = 1s;  // nodes that come together are used together
inline constexpr Duration kGrowEvery = 5s;    // per job
inline constexpr Duration kHoldAgain = 10s;   // reasons that only differ in numbers are written at most so often
inline constexpr size_t kCrowd = 100;         // and less often still, the more hundreds of jobs wait
// Of one decision about the queue: a head has others to serve meanwhile.
inline constexpr size_t kPlacedMax = 2000;
inline constexpr size_t kHeldMax = 500;
inline constexpr size_t kExplainedMax = 4;  // queued jobs per decision whose reasons are worked out in full

// JobPlaced and JobHeld events, at most one a job. Of a long queue only a part has its turn: `wake` is then now.
std::vector<cluster::Event> place(const cluster::State& state, const cluster::Observed& observed, WallTime now,
                                  cluster::Wake& wake);

// How long a gathering job waits for a seat that does not answer.
Duration patience(const cluster::Job& job, const NodeId& node);

}  // namespace rubato::policy

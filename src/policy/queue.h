// The queue: in which order waiting jobs have their turn. A pure decision, and the same for `place` and for people.
//
// Higher priority first, then the owner who uses least (a GPU counts as eight CPUs), then the older job.
#pragma once

#include <functional>
#include <vector>

#include "cluster/state.h"

namespace rubato::policy {

// Whether a job got its MIN workers: its owner's share grows by them. kStop: nobody else has a turn now.
enum class Served { kYes, kNo, kStop };

// Gives each queued job its turn.
void serve_in_turn(const cluster::State& state, const std::function<Served(const cluster::Job&)>& serve);

// The queue as it would empty if each job got its workers in its turn; the first is the next.
std::vector<const cluster::Job*> queue_order(const cluster::State& state);

// Where a queued job stands in that order, from 1, and the first ones before it.
struct QueuePlace {
  size_t place = 0;
  std::vector<const cluster::Job*> ahead;
};
QueuePlace queue_place(const cluster::State& state, const cluster::Job& job, size_t ahead_max);

}  // namespace rubato::policy

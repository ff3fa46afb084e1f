// Which workers of a job can live on when its seats change (docs/fault-tolerance.md, "Changing in place"). Pure.
#pragma once

#include <vector>

#include "cluster/observed.h"
#include "cluster/state.h"

namespace rubato::policy {

// Whether the next round can be formed on these seats around the workers that live. All of them must have declared that
// they can change in place, those of nodes that it leaves included, and at least one with the job's state must stay.
bool can_keep(const cluster::State& state, const cluster::Observed& observed, const cluster::Job& job,
              const std::vector<cluster::Seat>& seats);

// Some node of the round that it runs, or lives on from, has not told yet how its workers follow that plan: who decides
// by what the others say may start the living anew for nothing.
bool awaits_reports(const cluster::State& state, const cluster::Observed& observed, const cluster::Job& job);

// Its seats, less workers that have died since its last round started: those of seats that were in it.
std::vector<cluster::Seat> seats_of_living(const cluster::Observed& observed, const cluster::Job& job,
                                           const std::vector<cluster::Seat>& seats);

// A worker of it has ended well, and the others may be about to: nobody joins it any more.
bool is_nearly_done(const cluster::Observed& observed, const cluster::Job& job);

// Members of the job's plan that live on this node of its round, as it says; nothing: it does not say.
std::vector<elastic::WorkerSlot> living_members(const cluster::Observed& observed, const cluster::Job& job,
                                                const NodeId& node);

}  // namespace rubato::policy

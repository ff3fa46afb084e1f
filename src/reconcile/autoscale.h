// advance_scale: nodes for demand that has no room, and an end for nodes that nobody needs.
//
//     State ──▶ scale_input ──▶ policy::plan_scale ──▶ NodeRequested  a machine by an offering, with what was not taken
//                                                 ──▶ NodeRemoving   idle for too long
//                                                 ──▶ ScaleHeld      demand that gets no node, and the binding limit
//               consolidate  ──────────────────────▶ NodeDraining   elastic work moves together, when that pays
//
// It does not flap: nodes on their way count as there, so a launch is never repeated; what waits is packed on idle
// nodes first, so one that is needed is not removed; a node is removed only when it was idle for its whole time-out,
// and nothing is launched but for demand that fits on no node.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cluster/observed.h"
#include "cluster/state.h"

namespace rubato::reconcile {

// Pure, and dear: thousands of jobs and nodes take tens of milliseconds. `wake`: when the answer may differ.
std::vector<cluster::Event> advance_scale(const cluster::State& state, WallTime now, cluster::Wake& wake);

// What was asked already: the same question has the same answer. Who decides keeps it beside the state, and begins with
// an empty one for each state that is read anew.
struct PlanMemory {
  uint64_t seen = UINT64_MAX;   // State::scale_changes when the last plan was made
  WallTime at{};                // when
  std::optional<WallTime> due;  // until then its answer holds

  bool answers(const cluster::State& state, WallTime now) const {
    return seen == state.scale_changes && !(due && now >= *due);
  }
};

// The same, asked only when something changed that it depends on, and seldomer the larger the cluster is.
std::vector<cluster::Event> advance_scale_when_due(const cluster::State& state, PlanMemory& memory, WallTime now,
                                                   cluster::Wake& wake);

// The shortest time between two plans.
Duration scale_every(const cluster::State& state);

inline constexpr Duration kHeldAgain = 10s;  // reasons that differ only in numbers are written at most so often

}  // namespace rubato::reconcile

// Fencing: workers of two generations of a job never live at once, though a node may be silent and alive. The rule and
// the node's side of it are in elastic/lease.h. Pure.
#pragma once

#include <functional>

#include "cluster/observed.h"
#include "cluster/state.h"

namespace rubato::reconcile {

// Whether no worker of a node that was given up can be alive any more. Else `wake` is when to ask again.
bool is_fenced_off(const cluster::State& state, const cluster::Observed& observed, const cluster::Job& job,
                   WallTime now, cluster::Wake& wake);

// How long a node may be silent before it is given up. A job that could not be formed anew without it has nothing from
// that before its lease is over, and it may come back until then: the head may be the one that is cut off.
// `is_heard`: nodes that were heard in the last moments.
Duration silence_allowed(const cluster::State& state, const NodeId& node,
                         const std::function<bool(const NodeId&)>& is_heard);

// Why a job that is being gathered does not start, for people; empty: for another reason.
std::string fence_reason(const cluster::State& state, const cluster::Observed& observed, const cluster::Job& job);

}  // namespace rubato::reconcile

// observe: what an agent's report adds to the journal. Agents repeat themselves; only what is new counts.
#pragma once

#include <vector>

#include "cluster/observed.h"
#include "cluster/state.h"
#include "elastic/node_wire.h"

namespace rubato::reconcile {

// All job orders of one node as its agent tells them. Updates `observed`, returns what is new to the journal.
std::vector<cluster::Event> observe(const cluster::State& state, cluster::Observed& observed, const NodeId& node,
                                    const std::vector<elastic::JobOrderReport>& reports);

// Its agent is not connected any more.
void forget(cluster::Observed& observed, const NodeId& node);

}  // namespace rubato::reconcile

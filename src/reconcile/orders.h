// orders_for: what a node's agent should be doing, all of it, from the state alone.
#pragma once

#include "cluster/state.h"
#include "elastic/node_wire.h"

namespace rubato::reconcile {

// `outputs`: the folder below which each job has its output folder.
elastic::Orders orders_for(const cluster::State& state, const NodeId& node, const std::string& outputs);

}  // namespace rubato::reconcile

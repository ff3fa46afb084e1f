// What the workers of a job on this node are: a job order in the words of src/agent. Pure.
#pragma once

#include <string>

#include "agent/worker_env.h"
#include "elastic/node_wire.h"
#include "elastic/view.h"
#include "model/launch_spec.h"

namespace rubato::node {

LaunchSpec launch_spec(const elastic::JobOrder& job_order);
elastic::View job_order_view(const elastic::JobOrder& job_order);

// What all workers of the job on this node get: what the agent has, what the user gave, torchrun's, ours and AdaptDL's
// names. `devices` is the value of CUDA_VISIBLE_DEVICES; nullopt: not our business (a node without GPUs).
agent::Environment job_environment(const agent::Environment& inherited, const elastic::JobOrder& job_order,
                                   const NodeId& node, const std::optional<std::string>& devices, bool old_torch);

// What only one worker gets.
agent::Environment own_variables(const agent::WorkerPlace& place);

}  // namespace rubato::node

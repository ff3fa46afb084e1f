// The head's machine, from somebody's program (`provider: {type: external}`).
#pragma once

#include "provider/head_machine.h"
#include "provider/node_provider.h"

namespace rubato::provider {

Task<HeadMachine> make_external_head(World& world, const ClusterFile& file, HeadMachineSettings settings);
Task<HeadMachine> end_external_head(World& world, const ClusterFile& file, HeadMachineSettings settings);

// What the head's machine is asked for by.
NodeOrder head_order(const ClusterFile& file);

}  // namespace rubato::provider

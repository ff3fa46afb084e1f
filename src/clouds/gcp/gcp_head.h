// The head's machine in Compute Engine, with all that surrounds it, from a person's machine.
#pragma once

#include "provider/head_machine.h"

namespace rubato::clouds {

// The credentials are the person's, and stay here: the head has a service account of its own.
Task<provider::HeadMachine> make_gcp_head(World& world, const ClusterFile& file,
                                          provider::HeadMachineSettings settings);
// All machines of the cluster, stopped ones too, then what was made around them.
Task<provider::HeadMachine> end_gcp_head(World& world, const ClusterFile& file, provider::HeadMachineSettings settings);

}  // namespace rubato::clouds

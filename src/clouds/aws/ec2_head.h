// The head's machine in EC2, with all that surrounds it, from a person's machine.
#pragma once

#include "provider/head_machine.h"

namespace rubato::clouds {

// The credentials are the person's, and stay here: the head has a role of its own.
Task<provider::HeadMachine> make_ec2_head(World& world, const ClusterFile& file,
                                          provider::HeadMachineSettings settings);
// All machines of the cluster, stopped ones too, then what was made around them.
Task<provider::HeadMachine> end_ec2_head(World& world, const ClusterFile& file, provider::HeadMachineSettings settings);

}  // namespace rubato::clouds

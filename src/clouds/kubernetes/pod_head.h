// The head's pod, with the account that it acts with, from a person's machine.
#pragma once

#include "provider/head_machine.h"

namespace rubato::clouds {

Task<provider::HeadMachine> make_pod_head(World& world, const ClusterFile& file,
                                          provider::HeadMachineSettings settings);
// The one that runs, made by somebody else; changes nothing.
Task<provider::HeadMachine> find_pod_head(World& world, const ClusterFile& file,
                                          provider::HeadMachineSettings settings);
// All pods of the cluster, then the account.
Task<provider::HeadMachine> end_pod_head(World& world, const ClusterFile& file, provider::HeadMachineSettings settings);

}  // namespace rubato::clouds

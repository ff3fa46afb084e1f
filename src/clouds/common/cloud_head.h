// The head's machine in a cloud, from a person's machine: what is the same in all clouds.
#pragma once

#include "clouds/common/cloud_instances.h"
#include "provider/head_machine.h"

namespace rubato::clouds {

// What lets a person into machines.
struct PersonKey {
  std::string file;  // private, where we had to make one
  std::string text;  // public
};
// The person's own, or one that is made for this cluster.
Task<PersonKey> find_person_key(World& world, const ClusterFile& file, provider::HeadMachineSettings settings);

// What tells a cluster from those of the same name and file before it: made at the first `up` and noted here before
// anything is asked for, so that an `up` that is repeated asks for the same machines; forgotten when all have ended.
std::string ensure_incarnation(World& world, const provider::HeadMachineSettings& settings);
void forget_incarnation(World& world, const provider::HeadMachineSettings& settings);

// CloudInstances as a person's command uses them. The cloud is given up to it.
CloudInstancesSettings settings_for_person();

// The head's machine, once everything around it is there: fills in where it is, and notes that it was made from another
// description.
Task<void> create_head(CloudInstances& instances, const ClusterFile& file, provider::HeadMachine& head);

// What was removed and what stays of things around machines.
struct RemovedSurroundings {
  std::vector<std::string> removed, kept;
};
// One step of removing: where it fails, the thing is kept, with the reason, and the steps behind it go on.
Task<void> try_removal(std::string what, Task<void> removal, RemovedSurroundings& out);
provider::HeadMachine ended_head(size_t machines, const RemovedSurroundings& around);

}  // namespace rubato::clouds

// MachineProvider: nodes on machines of their own, for a head: which machine, how it is reached, what is put on it.
//
// All of it is read from the cluster file's newest text, at each call: hosts, users and commands change with `up`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/daemon_world.h"
#include "provider/node_provider.h"

namespace rubato::cli {

struct MachineProviderSettings {
  std::string cluster;
  std::string folder;                 // of the cluster, here
  std::function<std::string()> text;  // the cluster file as the journal has it
  std::string provider;               // "local": hosts of one's own, "external": somebody's program
  std::string address;                // of this machine, as other nodes reach it
};

// Throws kUsage for a provider that makes machines in a way we do not know.
std::unique_ptr<provider::NodeProvider> machine_provider(DaemonWorld& daemon, MachineProviderSettings settings);

}  // namespace rubato::cli

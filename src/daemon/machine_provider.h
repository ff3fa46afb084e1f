// MachineProvider: nodes on machines of their own, for a head: which machine, how it is reached, what is put on it.
#pragma once

#include <memory>
#include <string>

#include "daemon/daemon_world.h"
#include "provider/node_provider.h"

namespace rubato::cli {

struct MachineProviderSettings {
  std::string cluster;
  std::string folder;    // of the cluster, here
  std::string provider;  // the type of provider that makes machines
  std::string address;   // of this machine, as other nodes reach it
};

// Throws kUsage for a provider that makes machines in a way we do not know.
std::unique_ptr<provider::NodeProvider> machine_provider(DaemonWorld& daemon, MachineProviderSettings settings);

}  // namespace rubato::cli

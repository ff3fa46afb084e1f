// CommandWorld: the real World of a command that calls other people's servers.
#pragma once

#include "os/files.h"
#include "os/machine.h"
#include "os/network.h"
#include "os/processes.h"
#include "os/runtime.h"
#include "world/world.h"

namespace rubato::cli {

class CommandWorld {
 public:
  os::Runtime runtime;

 private:
  os::RealProcesses processes_{runtime};
  os::RealNetwork network_{runtime};
  os::RealFiles files_;
  os::RealConsole console_;
  Random random_{os::entropy()};
  const MachineFacts machine_ = os::read_machine_facts();

 public:
  World world{runtime, network_, processes_, files_, console_, random_, machine_};
};

}  // namespace rubato::cli

// DaemonWorld: the real World of a head or an agent, with a log on standard error, which is its daemon.log.
#pragma once

#include <string>

#include "core/log.h"
#include "os/files.h"
#include "os/machine.h"
#include "os/network.h"
#include "os/processes.h"
#include "os/runtime.h"
#include "os/signals.h"
#include "world/world.h"

namespace rubato::cli {

// Peers take a process that is silent for seconds for dead, and nothing else would tell why it was: something on the
// loop took long, or the machine gave it no time.
constexpr Duration kStallLook = 1s;
constexpr Duration kStallMin = 500ms;
Task<void> tell_of_stalls(Loop& loop, const Log& log);

// Work that takes long, on another thread. It owns what it touches, or that outlives the process.
Task<void> beside(os::Runtime& runtime, std::function<void()> work);

class DaemonWorld {
 public:
  explicit DaemonWorld(const std::string& name);

  // Runs it to its end; an Error is logged and becomes the exit code.
  int run(Task<int> main);

  const os::EnvironmentMap environment;
  const MachineFacts machine;
  const std::string program;  // the path of this binary
  const std::string version;
  os::Runtime runtime;
  os::RealProcesses processes;
  os::RealNetwork network;
  os::RealFiles files;
  os::RealConsole console;
  os::Signals signals;
  Random random;
  World world;
  Log log;
};

}  // namespace rubato::cli

// DaemonWorld: the real World of a head or an agent, with a log on standard error, which is its daemon.log.
#pragma once

#include <string>

#include "core/log.h"
#include "core/metrics.h"
#include "os/bulk_work.h"
#include "os/files.h"
#include "os/machine.h"
#include "os/network.h"
#include "os/processes.h"
#include "os/runtime.h"
#include "os/signals.h"
#include "os/turn_watch.h"
#include "world/world.h"

namespace rubato::cli {

// Peers take a process that is silent for seconds for dead, and nothing else would tell why it was: something on the
// loop took long, or the machine gave it no time.
constexpr Duration kStallLook = 1s;
constexpr Duration kStallMin = 500ms;
Task<void> report_stalls(Loop& loop, const Log& log);

// One warning at most in this time: a loop that is late must not write as well.
constexpr Duration kLongTurnsTold = 10s;

// Work that takes long, on another thread. It owns what it touches, or that outlives the process.
Task<void> beside(os::BulkWork& bulk, std::function<void()> work);

class DaemonWorld {
 public:
  explicit DaemonWorld(const std::string& name);

  // Runs it to its end; an Error is logged and becomes the exit code.
  int run(Task<int> main);

  // The loop's turns as a metric, for as long as this is there; the metrics outlive it.
  class TurnMeasure {
   public:
    TurnMeasure(DaemonWorld& daemon, Metrics& metrics);
    TurnMeasure(const TurnMeasure&) = delete;
    ~TurnMeasure() { daemon_.watch_.observe = nullptr; }

   private:
    DaemonWorld& daemon_;
  };

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
  os::BulkWork bulk;  // last: its threads block the signals that are ours, and end before what they use

 private:
  void report_long_turn(const os::LongTurn& turn);

  os::TurnWatch watch_;
  uint64_t long_turns_ = 0;  // since the last warning
  Instant warned_{};
};

}  // namespace rubato::cli

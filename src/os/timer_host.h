// RealTimerHost: named pipes, and signals to descendants, on this machine.
#pragma once

#include "os/processes.h"
#include "world/line_pipe.h"

namespace rubato::os {

class RealTimerHost final : public TimerHost {
 public:
  // Both outlive it and what it makes.
  RealTimerHost(Runtime& runtime, RealProcesses& processes) : runtime_(runtime), processes_(processes) {}
  std::unique_ptr<LinePipe> make_pipe(const std::string& path) override;
  bool signal(int pid, int signal) override;

 private:
  Runtime& runtime_;
  RealProcesses& processes_;
};

}  // namespace rubato::os

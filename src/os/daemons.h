// RealDaemons: world/daemons.h on this machine.
//
// In a daemon's folder:
//   daemon.lock   locked (an open-file-description lock) by the daemon through descriptor 3, from before it is started
//                 until it is dead; what it starts itself does not inherit the descriptor (os/exec.h)
//   daemon.pid    its number, written before its program runs; true only while the lock is held
//   daemon.log    what it writes; a limit that could not be set is noted there
//   daemon.cgroup the memory group that was made for it, removed when the daemon is found gone
//
// A daemon is forked twice into a session of its own. Called by a subreaper (RealProcesses) it becomes that one's
// child all the same: Family reaps it, and does not kill it, as it carries none of our tokens.
#pragma once

#include <string>

#include "world/daemons.h"

namespace rubato::os {

class RealDaemons final : public Daemons {
 public:
  void start(const DaemonSpec& spec) override;
  std::optional<int> running(const std::string& folder) override;
  void signal(const std::string& folder, int signal) override;

 private:
  int next_cpu_ = 0;  // daemons with a limit of CPUs are spread over them
};

}  // namespace rubato::os

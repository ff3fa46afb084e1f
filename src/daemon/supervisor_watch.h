// SupervisorWatch: a head's eye on its own supervisor. One that was killed is replaced, so that no single kill leaves a
// cluster that nobody keeps.
#pragma once

#include <string>

#include "daemon/daemon_world.h"
#include "head/controller.h"
#include "os/machine.h"
#include "world/daemons.h"

namespace rubato::cli {

// How the supervisor of the cluster in `dir` is started, where rubato itself keeps it.
DaemonSpec supervisor_spec(const std::string& program, const std::string& dir, const os::EnvironmentMap& env);

class SupervisorWatch {
 public:
  SupervisorWatch(DaemonWorld& daemon, std::string dir);

  // Looks once a second, beside the loop. Ends never.
  Task<void> keep();

  // As of the last look.
  const head::HeadSupervision& seen() const { return seen_; }

 private:
  DaemonWorld& daemon_;
  const std::string dir_;
  head::HeadSupervision seen_;
};

}  // namespace rubato::cli

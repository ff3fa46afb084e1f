// LocalRunner: commands on this machine, for the node that the head's own machine is. A process that a command leaves
// in the background has to be a daemon (`setsid`): what stays in its process group ends with it.
#pragma once

#include <string>

#include "provider/command_runner.h"
#include "provider/run_here.h"
#include "world/world.h"

namespace rubato::provider {

class LocalRunner final : public CommandRunner {
 public:
  LocalRunner(World& world, RunnerSettings settings);

  Task<CommandResult> run(Command command) override;
  Task<void> upload(std::string local, std::string remote, SyncOptions options) override;
  Task<void> download(std::string remote, std::string local, SyncOptions options) override;
  std::string describe() const override { return "this machine"; }

 private:
  World& world_;
  const RunnerSettings settings_;
};

}  // namespace rubato::provider

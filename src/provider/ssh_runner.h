// SshRunner: commands on a host through OpenSSH's client. One connection serves all calls (a control master that ssh
// itself keeps in the background for a minute), so a call costs a few milliseconds after the first.
#pragma once

#include <string>

#include "provider/command_runner.h"
#include "provider/run_here.h"
#include "provider/ssh_target.h"
#include "world/world.h"

namespace rubato::provider {

class SshRunner final : public CommandRunner {
 public:
  SshRunner(World& world, RunnerSettings settings, SshTarget target);

  Task<CommandResult> run(Command command) override;
  Task<void> upload(std::string local, std::string remote, SyncOptions options) override;
  Task<void> download(std::string remote, std::string local, SyncOptions options) override;
  std::string describe() const override { return to_string(target_); }

  // Of a new connection. A host that boots answers nothing for a while: try often, not long.
  void set_connect_timeout(Duration timeout) { connect_timeout_ = timeout; }
  const SshTarget& target() const { return target_; }

  // Ends the shared connection. What uses it is cut off; the next call makes a new one.
  Task<void> disconnect();

 private:
  World& world_;
  const RunnerSettings settings_;
  const SshTarget target_;
  Duration connect_timeout_ = 10s;
};

}  // namespace rubato::provider

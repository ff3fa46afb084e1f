// DockerRunner: commands inside of a container on a machine that another runner reaches; docker or podman.
//
// The container is made from what the cluster file says and carries a hash of it as a label: when the image, the
// options or the name differ, it is made anew. It runs a shell that waits; commands and the node's agent come by
// `docker exec`. Its network is the machine's.
#pragma once

#include <string>

#include "provider/command_runner.h"
#include "provider/node_setup.h"
#include "provider/run_here.h"
#include "world/world.h"

namespace rubato::provider {

class DockerRunner final : public CommandRunner {
 public:
  // `host` outlives it.
  DockerRunner(World& world, RunnerSettings settings, CommandRunner& host, ContainerSpec spec);

  // Whether the container runs and was made from this spec.
  Task<bool> is_up();

  // Makes it, or makes it anew, unless it is up. `on_line`: what docker says on the way (a pull may take minutes).
  // Throws kUsage when there is no docker there or it may not be used, kFailed for the rest.
  Task<void> bring_up(Duration timeout, std::function<void(std::string_view)> on_line);

  // Nothing happens when there is none.
  Task<void> remove(Duration timeout);

  Task<CommandResult> run(Command command) override;
  Task<void> upload(std::string local, std::string remote, SyncOptions options) override;
  Task<void> download(std::string remote, std::string local, SyncOptions options) override;
  std::string describe() const override;

 private:
  World& world_;
  const RunnerSettings settings_;
  CommandRunner& host_;
  const ContainerSpec spec_;
};

// The script that makes the container, and the hash that is its label.
std::string container_hash(const ContainerSpec& spec);
std::string bring_up_script(const ContainerSpec& spec);

}  // namespace rubato::provider

// SshProvider: nodes are machines from some Instances, brought up over SSH with node_setup.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "provider/instances.h"
#include "provider/node_provider.h"
#include "provider/node_setup.h"
#include "provider/remote_binary.h"

namespace rubato::provider {

struct SshProviderSettings {
  RunnerSettings runner;
  // How a machine is reached: an SshRunner, or a LocalRunner for the head's own.
  std::function<std::unique_ptr<CommandRunner>(const Machine&)> reach;
  // What is done on it. Makes the certificate; may take its time with hashes of mounts.
  std::function<Task<NodeSetupSpec>(NodeOrder, Machine)> plan;
  // How the node is ended; its container, if it has one, is known from the cluster file.
  std::function<NodeEnd(const NodeId&)> end;
  Duration stop_max = 40s;   // a host that does not answer for so long is left as it is, and cleaned at its next use
  Duration stop_again = 2s;  // pause between attempts
};

class SshProvider final : public NodeProvider {
 public:
  // All of them outlive it.
  SshProvider(World& world, Instances& instances, RemoteBinary& binary, SshProviderSettings settings);

  Task<void> create(NodeOrder order) override;
  Task<void> salvage(NodeId node) override;
  Task<void> remove(NodeId node) override;
  Task<std::vector<NodeId>> list() override;

 private:
  Task<void> bring_up(NodeOrder order, Machine machine);
  Task<void> salvage_leftover(CommandRunner& runner, NodeEnd end);
  Task<bool> stop(NodeId node, Machine machine);  // false: the machine does not answer

  World& world_;
  Instances& instances_;
  RemoteBinary& binary_;
  const SshProviderSettings settings_;
};

}  // namespace rubato::provider

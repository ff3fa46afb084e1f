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
  std::string cluster;  // its name
  RunnerSettings runner;
  // How a machine is reached: an SshRunner, or a LocalRunner for the head's own.
  std::function<std::unique_ptr<CommandRunner>(const Machine&, const NodeRecipe&)> reach;
  // What is done on it. Makes the certificate; may take its time with hashes of mounts.
  std::function<Task<NodeSetupSpec>(NodeOrder, Machine)> plan;
  Duration stop_max = 40s;   // a host that does not answer for so long is left as it is, and cleaned at its next use
  Duration stop_again = 2s;  // pause between attempts
};

class SshProvider final : public NodeProvider {
 public:
  // All of them outlive it.
  SshProvider(World& world, Instances& instances, RemoteBinary& binary, SshProviderSettings settings);

  void configure(const ClusterSpec& spec) override;
  Task<LaunchErrors> launch(std::vector<NodeOrder> orders) override;
  Task<void> create(NodeOrder order) override;
  Task<void> salvage(NodeRemoval removal) override;
  Task<void> remove(NodeRemoval removal) override;
  bool is_ended(const NodeId& node) override { return !instances_.is_leftover(node); }
  Task<std::vector<NodeId>> list() override;

 private:
  Task<void> bring_up(NodeOrder order, Machine machine);
  Task<void> end_leftover(Machine machine, NodeRemoval left);
  Task<void> salvage_leftover(CommandRunner& runner, NodeEnd end);
  Task<bool> stop(NodeId node, NodeRecipe recipe, Machine machine);  // false: the machine does not answer
  NodeRecipe plain_recipe() const;
  std::vector<NodeRecipe> recipes_of(const NodeRemoval& removal) const;

  World& world_;
  Instances& instances_;
  RemoteBinary& binary_;
  const SshProviderSettings settings_;
  std::vector<NodeRecipe> newest_;  // of the file: for nodes that nobody remembers
};

}  // namespace rubato::provider

// LocalProvider: nodes are agent processes of this machine, each a daemon in nodes/ID of the cluster's folder.
//
// The folder is the truth: a node exists while its folder does, so that agents that outlived their head are found.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "provider/agent_file.h"
#include "provider/local_network.h"
#include "provider/node_provider.h"
#include "world/daemons.h"
#include "world/world.h"

namespace rubato::provider {

struct LocalSettings {
  std::string cluster;           // its name
  std::string folder;            // its folder; nodes/ is in it
  std::string program;           // the path of rubato
  std::vector<std::string> env;  // of the agents
  // Makes a certificate with the common name "node/NODEID", files in the node's folder.
  std::function<TlsFiles(const NodeId& node, const std::string& folder)> issue;
  // Called when a node's agent is dead, before its folder is removed; does not throw. Unset: nothing is done.
  std::function<Task<void>(NodeRemoval removal, std::string folder)> last_output;
  // From SIGTERM to SIGKILL for an agent; its workers' own grace fits in.
  Duration stop_grace = 45s;
};

class LocalProvider final : public NodeProvider {
 public:
  LocalProvider(World& world, Daemons& daemons, LocalSettings settings);

  Task<void> create(NodeOrder order) override;
  Task<void> remove(NodeRemoval removal) override;
  bool kills_for_sure() const override { return true; }
  Task<bool> kill(NodeId node) override;
  Task<std::vector<NodeId>> list() override;

  std::string folder(const NodeId& node) const { return settings_.folder + "/nodes/" + node.value; }
  // The head listens here too when nodes have namespaces of their own; the address exists once the first one does.
  std::string bridge_address() const { return network_.bridge_address(); }

 private:
  std::vector<AgentFile> others(const NodeId& node);
  std::string free_address(const std::vector<AgentFile>& others, Isolation isolation);
  std::vector<std::string> free_gpus(const std::vector<AgentFile>& others, const Resources& resources);
  std::optional<AgentFile> read_agent_file(const NodeId& node);
  bool has_namespace(const NodeId& node);
  Task<bool> until_gone(std::string folder);
  // Within so much time in which this process listened: a head that stood still has given nobody a grace.
  Task<bool> is_gone_within(std::string folder, Duration most);

  World& world_;
  Daemons& daemons_;
  const LocalSettings settings_;
  LocalNetwork network_;
};

}  // namespace rubato::provider

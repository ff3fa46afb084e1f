// Instances: where machines come from: a list of hosts, a cloud, somebody's program. What is done on a machine to make
// a node of it is not its business; SshProvider (ssh_provider.h) brings both together.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"
#include "core/task.h"
#include "model/cluster_file.h"
#include "model/ids.h"
#include "provider/node_provider.h"
#include "world/world.h"

namespace rubato::provider {

struct Machine {
  std::string id;                      // the cloud's name of it, under which its host key is known; empty: its address
  HostAddress host;                    // where ssh goes; user empty or port 0: the cluster's
  std::string address;                 // where other nodes reach it; empty: host.host
  bool this_machine = false;           // the head's own: no ssh needed
  std::vector<std::string> host_commands;      // on it, before those of its recipe: what its provider mounts there
  std::vector<std::string> container_options;  // of docker run, behind those of its recipe
  std::vector<NodeRemoval> leftovers;  // of nodes that were here before and could not be stopped: they are, first
};

// Each call may be repeated after a crash of the caller: it then finishes what was begun.
class Instances {
 public:
  virtual ~Instances() = default;

  // What the newest file tells the provider (ClusterSpec::provider_config): before any other call once there is one,
  // and again when it changes. Throws kUsage when it makes no sense.
  virtual void configure(const std::string& provider_config) = 0;

  // As NodeProvider's. Unless it can do so in one call, nothing: create() asks for each.
  virtual Task<LaunchErrors> launch(std::vector<NodeOrder> orders) {
    (void)orders;
    co_return LaunchErrors();
  }

  // The machine for this node: the one it has, or a new one. Returns when its address is known; ssh may not answer yet.
  // Throws kUsage when it can never work, kConflict when there is none now (no free host, no capacity, quota),
  // kUnavailable when trying again may help.
  virtual Task<Machine> create(NodeOrder order) = 0;

  // The machine that the node has; nullopt when there is none.
  virtual Task<std::optional<Machine>> find(NodeId node) = 0;

  // Returns when the node has no machine any more; at once when it had none. `cleaned`: its agent is stopped and
  // its folder removed; of interest to those whose machines stay, who give the others back as `leftovers`.
  virtual Task<void> remove(NodeRemoval removal, bool cleaned) = 0;

  // All nodes that have a machine, whether or not anybody remembers them.
  virtual Task<std::vector<NodeId>> list() = 0;

  // It was removed without being cleaned: its agent may live on a machine that did not answer.
  virtual bool is_leftover(const NodeId& node) {
    (void)node;
    return false;
  }

  // The leftovers on the node's machine are gone.
  virtual void note_cleaned(const NodeId& node) { (void)node; }

  // The machine stays when its node is removed, so the agent has to be stopped before.
  virtual bool machines_stay() const = 0;

  // How far the node's set-up is, by the names of NodeOrder::on_step; "up" when its agent was started.
  virtual void note_step(const NodeId& node, const std::string& step) {
    (void)node;
    (void)step;
  }

  // The node could not be brought up on its machine: others are better for the next one.
  virtual void note_failure(const NodeId& node, const std::string& why) = 0;
};

// Where a head is, for those who make machines for it.
struct InstancesSettings {
  std::string folder;            // of the cluster, here
  std::string address;           // of this machine, as other nodes reach it
  std::vector<std::string> env;  // of programs
  std::string version;           // rubato's
};
using MakeInstances = std::unique_ptr<Instances> (*)(World& world, const InstancesSettings& settings, const Log& log);

// Of a kind of provider; null when nothing is made for it. The list is src/clouds/registry.cc.
MakeInstances instances_maker(std::string_view provider_type);

}  // namespace rubato::provider

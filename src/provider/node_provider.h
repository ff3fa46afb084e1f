// NodeProvider: makes and removes what nodes are: processes here, machines elsewhere.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/task.h"
#include "elastic/node_wire.h"
#include "model/cluster_spec.h"
#include "model/ids.h"
#include "world/network.h"

namespace rubato::provider {

struct NodeOrder {
  NodeId node;
  NodeType type;
  Isolation isolation = Isolation::kNone;
  Endpoint head;            // where its agent reports to
  bool of_head = false;     // the head's own machine
  std::string runtime;      // what is to be on it; a node that has it is not set up again
  std::string launch_hash;  // what its machine is made from
  Offering offering;        // zone and market, where there is a choice
  NodeRecipe recipe;        // how it is reached and set up
  NoticeSource notice;      // where its agent hears that its machine goes away
  // What it was made by before, where that was something else: what is left of it is ended first.
  std::vector<NodeRecipe> before;
  bool restart = false;       // start its agent anew though it runs
  bool keep_running = false;  // put the runtime there beside its agent and workers
  // Told as each step begins: "reachable", "files", "initialization", "setup", "agent".
  std::function<void(std::string step, std::string detail)> on_step;
};

// Nodes for which no machine is to be had, and why.
using LaunchErrors = std::map<NodeId, Error>;

// A node that goes.
struct NodeRemoval {
  NodeRemoval() = default;
  NodeRemoval(NodeId id) : node(std::move(id)) {}  // NOLINT: a node of which only the name is known
  NodeId node;
  std::vector<NodeRecipe> recipes;  // all that it was made by, the newest first; none: nobody remembers
  // Takes what the workers of its dead agent had printed; returns up to which number it is kept. Unset: nobody does.
  std::function<Task<uint64_t>(elastic::LogLines)> keep_lines;
};

// Each call may be repeated after a crash of the caller: it then finishes what was begun.
class NodeProvider {
 public:
  virtual ~NodeProvider() = default;

  // The newest description of the cluster: before any other call once there is one, and again when it changes.
  virtual void configure(const ClusterSpec& spec) { (void)spec; }

  // Asks for the machines of all these nodes at once, in as few calls as the provider can; create() of each follows,
  // and finds its own. Those of them for which there is none need no create(). Throws when none can be had, as
  // create().
  virtual Task<LaunchErrors> launch(std::vector<NodeOrder> orders) {
    (void)orders;
    co_return LaunchErrors();
  }

  // Returns when the node has the order's runtime and its agent has been started; nothing happens when it is so
  // already. Throws kUsage when it can never work (the file asks for what this machine has not), kUnavailable when
  // trying again may help, kNoCapacity, kQuota or kAuth when such a machine cannot be had.
  virtual Task<void> create(NodeOrder order) = 0;

  // Before remove(): the agent of the node is ended, and what its workers have left (lines, outputs) is brought to the
  // head, if it can be. Takes as long as that takes; throws when the machine is not reached. Nothing where a node's
  // folder is on the head's own disk.
  virtual Task<void> salvage(NodeRemoval removal) {
    (void)removal;
    co_return;
  }

  // Returns when nothing of it is left; at once when there is no such node.
  virtual Task<void> remove(NodeRemoval removal) = 0;

  // After remove(): false when its machine stays and did not answer, so that its agent may live there.
  virtual bool is_ended(const NodeId& node) {
    (void)node;
    return true;
  }

  // Whether kill() ends any agent for sure, whatever is broken: both are on this machine. Its nodes hold no lease.
  virtual bool kills_for_sure() const { return false; }
  // An agent that is silent is ended at once, with its workers. False: that cannot be done from here.
  virtual Task<bool> kill(NodeId node) {
    (void)node;
    co_return false;
  }

  // The nodes that exist, whether or not anybody remembers them.
  virtual Task<std::vector<NodeId>> list() = 0;
};

}  // namespace rubato::provider

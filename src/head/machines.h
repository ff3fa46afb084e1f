// Machines: the provider's calls that follow from the nodes' phases. At most one call a node at a time.
#pragma once

#include <functional>

#include "cluster/state.h"
#include "core/listening_clock.h"
#include "core/log.h"
#include "core/scope.h"
#include "provider/node_provider.h"
#include "world/world.h"

namespace rubato::head {

class Machines {
 public:
  // Lines that were found where a node's agent is dead; returns up to which number they are kept.
  using KeepLines = std::function<Task<uint64_t>(NodeId, elastic::LogLines)>;
  // `tell`: what came of a call, for the journal. Calls have so much of `listening`'s time; it outlives this.
  Machines(World& world, provider::NodeProvider& provider, Endpoint head, Log log, ListeningClock& listening,
           std::function<void(cluster::Event)> tell, KeepLines keep_lines);

  // Tells the provider of the newest description, and starts the calls that are due: create for requested nodes, remove
  // for removing ones.
  void follow(const cluster::State& state);
  // The same for some nodes, when something has happened to no others.
  void follow(const cluster::State& state, const std::set<NodeId>& changed);

  // Removes nodes that exist but that the state does not know: a head died between making and recording, or a provider
  // made one after it had said that it could not. Returns at once when the provider cannot list.
  Task<void> sweep(const cluster::State& state);

  // The same again and again, until cancelled.
  Task<void> keep_sweeping(const cluster::State& state);

  // What the provider has; nullopt when it does not say so in time.
  Task<std::optional<std::vector<NodeId>>> list_machines();

 private:
  void configure(const cluster::State& state);
  void follow_node(const cluster::State& state, const NodeId& id);
  void start_due();
  Task<void> launch(std::vector<provider::NodeOrder> orders);
  Task<void> create(provider::NodeOrder order);
  Task<void> refresh(provider::NodeOrder order);
  struct Outcome {
    std::string failure;  // empty: none
    cluster::LaunchFailure code = cluster::LaunchFailure::kOther;
  };
  Task<Outcome> made(provider::NodeOrder order);
  void report(const provider::NodeOrder& order, const Outcome& outcome);
  // `deadline` is of the listening time.
  Task<bool> given_up(NodeId node, Instant deadline);  // true: it is not wanted any more; false: the deadline has come
  Task<void> remove_stray(NodeId node);
  Task<void> remove_for_good(provider::NodeRemoval removal);
  Task<void> salvage(provider::NodeRemoval removal);
  provider::NodeOrder order_for(const cluster::State& state, const cluster::Node& node);
  void start_refresh(const cluster::State& state, const cluster::Node& node);
  Task<void> remove(provider::NodeRemoval removal, bool silent);

  World& world_;
  provider::NodeProvider& provider_;
  Endpoint head_;
  Log log_;
  ListeningClock& listening_;
  std::function<void(cluster::Event)> tell_;
  KeepLines keep_lines_;
  std::set<NodeId> creating_, removing_, refreshing_;  // calls under way
  std::vector<provider::NodeOrder> due_;               // to be created, found in this turn: their machines in one call
  // Told, and not yet in the state: no reason to call again.
  std::map<NodeId, std::string> created_;  // with their runtimes
  std::set<NodeId> removed_;
  std::set<NodeId> gone_;      // removed while the provider was asked what there is
  int sweeps_ = 0;             // that wait for its answer
  std::set<NodeId> unwanted_;  // being created, and to be removed: the call ends early
  Event unwanted_grown_;
  Scope scope_;
};

}  // namespace rubato::head

// Machines: the provider's calls that follow from the nodes' phases. At most one call a node at a time.
#pragma once

#include <functional>

#include "cluster/state.h"
#include "core/log.h"
#include "core/scope.h"
#include "provider/node_provider.h"
#include "world/world.h"

namespace rubato::head {

class Machines {
 public:
  // `tell`: what came of a call, for the journal.
  Machines(World& world, provider::NodeProvider& provider, Endpoint head, Log log,
           std::function<void(cluster::Event)> tell);

  // Starts the calls that are due: create for requested nodes, remove for removing ones.
  void follow(const cluster::State& state);

  // Removes nodes that exist but that the state does not know: a head died between making and recording.
  Task<void> sweep(const cluster::State& state);

 private:
  Task<void> create(provider::NodeOrder order);
  Task<void> refresh(provider::NodeOrder order);
  Task<std::string> made(provider::NodeOrder order);  // what went wrong; empty: nothing
  provider::NodeOrder order_for(const cluster::State& state, const cluster::Node& node);
  Task<void> remove(NodeId node);

  World& world_;
  provider::NodeProvider& provider_;
  Endpoint head_;
  Log log_;
  std::function<void(cluster::Event)> tell_;
  std::set<NodeId> creating_, removing_, refreshing_;  // calls under way
  // Told, and not yet in the state: no reason to call again.
  std::map<NodeId, std::string> created_;  // with their runtimes
  std::set<NodeId> removed_;
  Scope scope_;
};

}  // namespace rubato::head

// LeaseKeeper: keeps this node's leases alive, and vouches for other nodes (elastic/lease.h).
//
// It asks the head again and again, on a connection of its own: nothing waits before these questions. While the head
// does not answer, it asks the witnesses of its jobs. It listens itself, for their questions; and the head tries that
// door to learn whether this agent is dead.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/scope.h"
#include "elastic/lease.h"
#include "elastic/node_wire.h"
#include "node/node_settings.h"
#include "world/world.h"

namespace rubato::node {

class LeaseKeeper {
 public:
  // `on_renewed`: leases are longer or shorter now; ask valid_until(). `on_fenced`: fenced() has changed.
  LeaseKeeper(World& world, const NodeSettings& settings, AgentId self, std::function<void()> on_renewed,
              std::function<void()> on_fenced);

  Task<void> run();

  uint16_t port() const { return listener_ ? listener_->port() : 0; }
  // `greeted`: when the Hello was sent that this answers.
  void welcomed(const elastic::Welcome& welcome, Instant greeted);
  void follow(const elastic::Orders& orders);
  void set_live(std::set<elastic::RoundId> rounds) { live_ = std::move(rounds); }  // whose workers are alive here

  // Until when workers with these terms may live; nullopt: no lease is needed.
  std::optional<Instant> valid_until(const elastic::LeaseTerms& terms) const;
  // Who cannot go on by our word, of those that the head has given up.
  std::vector<AgentId> fenced() const;

 private:
  Task<void> listen();
  Task<void> serve(std::unique_ptr<Connection> connection);
  Task<void> ask_head();
  Task<void> ask_witnesses();
  Task<void> ask_witness(elastic::WitnessAddress witness);
  // Until the connection ends, or the head has answered when it is a witness that is asked. `agent`: empty for the
  // head.
  Task<void> ask_over(Connection& connection, AgentId agent);
  Task<void> watch_fence();
  void take(const elastic::LeaseAnswer& answer, const AgentId& agent);
  void missed_head(Instant asked);
  Endpoint head() const;

  World& world_;
  const NodeSettings& settings_;
  const AgentId self_;
  std::function<void()> on_renewed_, on_fenced_;
  std::unique_ptr<Listener> listener_;  // null: there is no port to be had
  elastic::LeaseHolder holder_;
  elastic::Witness witness_;
  Duration heartbeat_ = 3s;
  bool leased_ = false;
  bool stays_here_ = false;
  std::set<elastic::RoundId> live_;
  uint64_t head_epoch_ = 0;
  std::optional<Endpoint> reached_;  // where a head was found
  std::map<AgentId, elastic::WitnessAddress> witnesses_;
  std::vector<elastic::RoundId> rounds_;                   // that this node is to run with others
  std::map<elastic::RoundId, elastic::LeaseTerms> terms_;  // of all that it is to run, or that live
  std::set<AgentId> asked_;                                // a question is under way
  Event changed_;
  Scope scope_;
};

}  // namespace rubato::node

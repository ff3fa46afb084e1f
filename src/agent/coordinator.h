// Coordinator: hosts the rendezvous of one group. It feeds the state machine with what agents say and sends each its
// view. The deciding is all in elastic/rendezvous.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/event_log.h"
#include "core/listening_clock.h"
#include "core/scope.h"
#include "elastic/rendezvous.h"
#include "elastic/wire.h"
#include "world/world.h"

namespace rubato::agent {

class Coordinator {
 public:
  // Asked before a generation starts or the job ends; false: this is no longer the host. An outside authority (etcd)
  // records it here, so that two hosts can never start the same generation.
  using Confirm = std::function<Task<bool>(elastic::View)>;

  Coordinator(World& world, AgentId self, ChannelKey key, std::string run_id, elastic::Rendezvous machine,
              Confirm confirm, EventLog& events);

  // Takes a connection and serves it until it ends.
  void admit(std::unique_ptr<Connection> connection);

  // Where others find this host: the answer to an agent that asks around.
  void set_address(Endpoint address) { address_ = std::move(address); }

  // Runs until the job has ended and every agent knows it, or until another host has taken over.
  Task<void> run();

  bool provisional() const { return machine_.provisional(); }
  const Endpoint& address() const { return address_; }
  bool has(const AgentId& id) const { return machine_.has(id); }
  void declare_dead(const AgentId& id, bool in_round);
  const std::vector<elastic::Successor>& missing() const { return machine_.missing(); }
  elastic::Moved whereabouts() const;
  elastic::Where standing() const;  // how good this host's claim is
  bool incumbent() const { return machine_.incumbent(); }
  bool all_in_touch(Instant since) const { return machine_.all_in_touch(since); }
  elastic::Legacy legacy() const { return machine_.legacy(); }
  elastic::Phase phase() const { return machine_.phase(); }

  // Its agent leaves, and its workers are gone: run() ends when the others have heard of it and are gone.
  void retire(const std::string& reason);

  // Set when another host has shown a newer epoch.
  const std::optional<elastic::Moved>& superseded_by() const { return superseded_by_; }
  void supersede(const elastic::Moved& by);

 private:
  Task<void> attend(std::unique_ptr<Connection> connection);
  Task<std::optional<AgentId>> greet(Connection& connection);
  Task<void> verify_death(AgentId id, Endpoint doorway);
  void dispatch(const AgentId& id, const elastic::Message& message);
  elastic::View common_view() const;
  void send_view(const AgentId& id, Connection& connection);
  Task<bool> publish();
  void write_notes();
  Instant turn();  // now; what this process stood still before is no silence of the agents

  World& world_;
  AgentId self_;
  ChannelKey key_;
  std::string run_id_;
  elastic::Rendezvous machine_;
  Confirm confirm_;
  EventLog& events_;
  Endpoint address_;
  std::optional<elastic::Moved> superseded_by_;
  std::map<AgentId, Connection*> sessions_;
  ListeningClock listening_;
  Duration not_listened_{};  // of it, what the machine knows of
  Event changed_;
  uint64_t published_revision_ = 0;
  uint64_t published_details_ = 0;
  Instant next_details_{};
  Scope scope_;  // last: its children use all of the above
};

}  // namespace rubato::agent

// Sessions: the connections of agents. Each agent keeps one; a new connection of the same agent replaces the old one.
// Beside it there may be one that brings what workers have left (elastic::Delivery), also when the agent is dead.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "cluster/state.h"
#include "core/listening_clock.h"
#include "core/log.h"
#include "core/scope.h"
#include "elastic/node_wire.h"
#include "world/world.h"

namespace rubato::head {

// What sessions need of the head. All calls come from the loop.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  // nullopt: welcome; else why this agent may not be part of the cluster.
  virtual std::optional<std::string> refuse(const elastic::Hello& hello) = 0;
  // Sends it its orders, now or once they are durable.
  virtual void connected(const elastic::Hello& hello) = 0;
  virtual void reported(const NodeId& node, std::vector<elastic::JobOrderReport> job_orders) = 0;
  // These cannot go on by a word of that agent (elastic/lease.h).
  virtual void fenced(const AgentId& agent, const std::vector<AgentId>& others) = 0;
  // Whether its workers may go on.
  virtual elastic::LeaseAnswer::Word vouch(const NodeId& node, const AgentId& agent) = 0;
  // All that it had sent when ask_again() was called has been handled.
  virtual void caught_up(const NodeId& node) = 0;
  virtual void leaving(const NodeId& node, const elastic::Leaving& notice) = 0;
  virtual void disconnected(const NodeId& node, bool closed) = 0;
  virtual void profiled(const NodeId& node, elastic::JobHints hints) = 0;
  virtual elastic::Orders orders(const NodeId& node) = 0;
  virtual Task<uint64_t> keep_lines(NodeId node, AgentId agent, elastic::LogLines lines) = 0;
  virtual elastic::PackagePart package_part(const elastic::PackageWanted& wanted) = 0;

  // What comes on a Delivery's connection. The node may be dead, or forgotten.
  virtual Task<uint64_t> keep_last_lines(NodeId node, elastic::LogLines lines) = 0;
  virtual Task<elastic::OutputAck> output_offered(NodeId node, JobId job) = 0;
  virtual Task<elastic::OutputAck> keep_output(NodeId node, elastic::OutputPart part) = 0;
  virtual void output_trouble(const NodeId& node, const elastic::OutputTrouble& trouble) = 0;
  virtual void delivered(const NodeId& node) = 0;  // all that it had
  // Checkpoints: OutputOffer and OutputPart that name one, PackageWanted of one.
  virtual Task<elastic::OutputAck> checkpoint_offered(NodeId node, elastic::OutputOffer offer) = 0;
  virtual Task<elastic::OutputAck> keep_checkpoint(NodeId node, elastic::OutputPart part) = 0;
  virtual Task<elastic::PackagePart> checkpoint_part(elastic::PackageWanted wanted) = 0;
};

// What agents are told of this head.
struct SessionTerms {
  Duration heartbeat = 3s;
  bool leased = false;      // elastic::Welcome
  bool stays_here = false;  // the same
};

class Sessions {
 public:
  // Silence counts in `listening`'s time, which outlives this.
  Sessions(World& world, SessionHost& host, Log log, SessionTerms terms, ListeningClock& listening);

  // Admits agents from this listener until cancelled. `epoch` is this head's.
  Task<void> serve(Listener& listener, uint64_t epoch);

  // Sends the node what it should do now, if it is connected.
  void send_orders(const NodeId& node);
  // Sends everybody its orders again: who answers has been heard, with all that it said before.
  void ask_again();
  bool asked(const NodeId& node) const;  // and has not answered
  void dismiss(const NodeId& node, const std::string& reason, bool refused);
  bool connected(const NodeId& node) const { return sessions_.contains(node); }
  // When it was last heard, in listening time; nullopt: it is not connected.
  std::optional<Instant> heard(const NodeId& node) const;
  std::optional<AgentId> agent_of(const NodeId& node) const;  // nullopt: it is not connected
  size_t size() const { return sessions_.size(); }

 private:
  struct Session {
    std::unique_ptr<Connection> connection;
    AgentId agent;
    Instant heard{};  // in listening time
    uint64_t revision = 0;
    uint64_t asked = 0;  // by ask_again(): the revision that it is to act on; 0: it has
  };

  Task<void> attend(std::unique_ptr<Connection> connection, uint64_t epoch);
  elastic::Welcome welcome(uint64_t epoch, const NodeId& node) const;
  Task<void> answer_leases(Connection& connection, elastic::LeaseAsk ask, uint64_t epoch);
  Task<void> take_delivery(Connection& connection, elastic::Delivery delivery, uint64_t epoch);
  Task<void> take_checkpoint(Connection& connection, const NodeId& node, elastic::ToHead message);
  Task<bool> take_delivered(Connection& connection, const NodeId& node, elastic::ToHead message);  // false: the end
  // nullopt: this connection is of no use (any more).
  Task<std::optional<elastic::Hello>> greet(Connection& connection, uint64_t epoch);
  Task<bool> listen_to(const NodeId& node, Session& session);  // true: the other side closed
  bool is_current(const NodeId& node, const Session& session) const;
  Task<void> handle(const NodeId& node, Session& session, elastic::ToHead message);

  World& world_;
  SessionHost& host_;
  Log log_;
  const SessionTerms terms_;
  ListeningClock& listening_;
  std::map<NodeId, std::shared_ptr<Session>> sessions_;
  // The newest of each node and purpose: two would mix their bytes.
  std::map<std::pair<NodeId, elastic::Delivery::Purpose>, Connection*> deliveries_;
  Scope scope_;
};

}  // namespace rubato::head

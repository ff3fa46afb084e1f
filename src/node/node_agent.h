// NodeAgent: the life of one node's agent: it keeps a connection to the head, runs what the head says, and goes on
// running it while there is none.
//
//   (1) away ──connected, Hello──▶ (2) greeting ──Welcome of a head not older than any before──▶ (3) obeying
//    ▲  no head, back-off             │ an older head, no answer                                   │
//    └────────────────────────────────┴──── the connection ended ──────────────────────────────────┘
//   any ──Goodbye, or SIGTERM (Leaving is said first)──▶ (4) ending: workers get SIGTERM and grace ──▶ exit
//
// A notice that its machine goes away ends nothing by itself: the head hears of it (Leaving), and moves the jobs. Those
// workers that are still there shortly before the deadline are told to save, and none outlives it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/scope.h"
#include "elastic/node_wire.h"
#include "node/checkpoint_keeper.h"
#include "node/delivery.h"
#include "node/job_order_runner.h"
#include "node/lease_keeper.h"
#include "node/machine_notice.h"
#include "node/node_settings.h"
#include "node/supervisor.h"
#include "world/world.h"

namespace rubato::node {

class NodeAgent {
 public:
  // `signals`: SIGTERM and its like as they come; `notices`: that this machine goes away. Both may be null, and outlive
  // this, as the world does.
  NodeAgent(World& world, NodeSettings settings, Channel<int>* signals, Channel<MachineNotice>* notices = nullptr);

  // 0 after Goodbye or a signal, 1 when the head refused this agent.
  Task<int> run();

 private:
  Task<void> read_signals();
  // node_notice.cc
  Task<void> read_notices();
  void take_notice(const MachineNotice& notice);
  void follow_drain(const elastic::Orders& orders);
  void set_deadline(std::optional<Instant> deadline);
  Task<void> stop_in_time();
  void send_leaving();
  void end(const std::string& reason, bool told_by_head);
  Duration time_to_end() const;
  bool over();
  void wake();
  void say(const std::string& text);

  // node_session.cc
  Task<void> keep_connected();
  Task<std::unique_ptr<Connection>> reach_head();
  Task<void> session(Connection& connection);
  Task<bool> greet(Connection& connection);
  Task<void> receive(Connection& connection);
  Task<void> send_beats(Connection& connection);
  Task<void> send_news(Connection& connection);
  Task<void> send_logs(Connection& connection);
  elastic::Hello hello(const Connection& connection);
  std::vector<elastic::JobOrderReport> reports();
  void handle(const elastic::ToAgent& message, Connection& connection);
  void collect(const elastic::Orders& orders);
  void obey(const elastic::Orders& orders);
  void follow_outputs(const elastic::Orders& orders);
  void handle_goodbye(const elastic::Goodbye& goodbye);
  void renew_leases();

  JobOrderRunner& runner(const JobId& job);
  void prewarm(const elastic::JobOrder& job_order, const std::string& python, const std::string& work);
  void adopt_spools();
  void discard(const std::string& folder);
  Task<void> empty(std::string folder);
  Task<void> supervise();

  World& world_;
  const NodeSettings settings_;
  Channel<int>* signals_;
  Channel<MachineNotice>* notices_;
  const AgentId self_;
  const WallTime started_;
  agent::EventLog events_;
  PackageStore packages_;
  CheckpointKeeper checkpoints_;
  Devices devices_;
  OutputSender outputs_;
  LeaseKeeper leases_;
  Event room_;
  std::optional<Supervisor> supervisor_;
  NodeParts parts_;
  std::map<JobId, std::unique_ptr<JobOrderRunner>> runners_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // as in agent::Launcher
  std::optional<JobId> warm_for_;  // whose interpreter is kept warm: the last one that asked for it

  uint64_t head_epoch_ = 0;  // the newest one obeyed
  Duration heartbeat_ = 3s;
  uint64_t revision_ = 0;                                   // of the orders acted on
  elastic::Orders begun_;                                   // of which more is to come
  Connection* connection_ = nullptr;                        // obeying
  std::optional<std::vector<elastic::JobOrderReport>> told_;  // on this connection
  std::vector<AgentId> told_fenced_;

  std::string notice_;                   // what its machine was told; empty: nothing
  std::optional<Instant> deadline_;      // no worker lives after it: of the notice, or of the head
  std::optional<Instant> machine_ends_;  // of the notice
  Instant stop_at_{};                    // with deadline_: workers that are still there are told to save
  bool woken_ = true;
  Event deadline_set_;
  Event changed_;       // woken_, or lines to send
  std::string ending_;  // why; empty: not
  bool told_to_end_ = false;
  bool refused_ = false;
  Instant linger_until_{};
  Scope scope_;
};

}  // namespace rubato::node

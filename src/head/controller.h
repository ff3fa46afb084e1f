// Controller: one head's life. Turn after turn: take what happened, decide, commit, act.
//
//     agents, API, provider ──▶ happened ──▶ reconcile::decide ──▶ journal (durable) ──▶ orders, provider calls
//                                  ▲                                                          │
//                                  └──────────────────────────────────────────────────────────┘
//
// Nothing is acted on before its records are durable, so that a head that dies at any moment leaves nothing that the
// next one does not know of. Everything sent to agents follows from the state alone: the next head sends the same.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>

#include "cluster/observed.h"
#include "cluster/state.h"
#include "core/metrics.h"
#include "head/checkpoints.h"
#include "head/history.h"
#include "head/job_logs.h"
#include "head/machines.h"
#include "head/outputs.h"
#include "head/package_store.h"
#include "head/sessions.h"
#include "head/state_readers.h"
#include "reconcile/autoscale.h"
#include "world/world.h"

namespace rubato::head {

// Who starts this head again when it dies, for those who ask.
struct HeadSupervision {
  std::string kind = "none";  // "rubato": a process of ours; "systemd": the same, kept by the user's systemd
  int pid = 0;                // 0: it is not there
  int restarts = 0;           // since `rubato up`
  std::string last_end;       // how the last head ended: "signal 9"; empty: none has
};

struct HeadSettings {
  std::string folder;  // of the cluster
  std::string version;
  std::string restarted_after;                   // its supervisor started it: how the head before ended
  std::function<HeadSupervision()> supervision;  // unset: none
  Endpoint agents;                               // where agents find this head
  Duration heartbeat = 3s;
  // After a start, and after it stood still, the head listens for so long before it gives up nodes whose agents have
  // not reported.
  Duration adoption = 15s;
  // With which agents' own doors are tried: whoever had one, and has none now, is dead.
  ChannelKey key;
  // The next head runs on this machine too: nobody else can open the journal.
  bool stays_here = false;
  elastic::CheckpointLimits checkpoints;
  size_t checkpoint_peers = 1;  // nodes that hold copies of what the head has
  Offload offload;              // of hashing, unpacking and waiting for the disk; unset: on the loop
};

class Controller final : public SessionHost {
 public:
  Controller(World& world, Journal& journal, provider::NodeProvider& provider, HeadSettings settings, Metrics& metrics,
             Log log);

  // Rebuilds the state and announces this head in the journal. First of all calls.
  Task<void> recover();

  // Serves agents and decides until the cluster has been shut down. Throws kConflict when another head took over.
  Task<void> run(Listener& listener);

  // What a request wants written. Returns when it is durable and all that follows from it was decided.
  Task<void> submit(std::vector<cluster::Event> events);

  // The same without waiting.
  void submit_later(cluster::Event event) { tell(std::move(event)); }

  // The state as far as it is durable: waits for the commit that is under way.
  Task<const cluster::State*> settled();
  const cluster::State& state() const { return state_; }
  // The durable state for work that takes long, beside the loop. It owns what else it touches.
  Task<void> read_state(std::function<void(const cluster::State&)> look) { return readers_.read(std::move(look)); }
  const cluster::Observed& observed() const { return observed_; }
  const reconcile::PlanMemory& plan_memory() const { return plan_memory_; }
  bool is_connected(const NodeId& node) const { return sessions_.connected(node); }
  History& history() { return history_; }
  JobLogs& logs() { return logs_; }
  PackageStore& packages() { return packages_; }
  OutputStore& outputs() { return outputs_; }
  CheckpointStore& checkpoints() { return checkpoints_; }
  const HeadSettings& settings() const { return settings_; }
  // The wall clock, but when that is set back this one goes on from where it was: deadlines are in its time, and would
  // not come for hours.
  WallTime now() const;
  // What the provider has, for the audit; nullopt when it does not say.
  Task<std::optional<std::vector<NodeId>>> list_machines() { return machines_.list_machines(); }
  // Brings the gauges up to date: when somebody is about to read them.
  void gauge();
  // What is kept beside the state, for jobs and nodes; it must not grow with time.
  size_t remembered() const { return reports_.size() + absent_.size() + told_.size() + observed_.ready.size(); }
  // A job with this request id that is still on its way to the journal.
  std::optional<JobId> pending_request(const std::string& request_id) const;

  // SessionHost
  std::optional<std::string> refuse(const elastic::Hello& hello) override;
  void connected(const elastic::Hello& hello) override;
  void reported(const NodeId& node, std::vector<elastic::JobOrderReport> job_orders) override;
  void fenced(const AgentId& agent, const std::vector<AgentId>& others) override;
  elastic::LeaseAnswer::Word vouch(const NodeId& node, const AgentId& agent) override;
  void caught_up(const NodeId& node) override;
  void leaving(const NodeId& node, const elastic::Leaving& notice) override;
  void disconnected(const NodeId& node, bool closed) override;
  void profiled(const NodeId& node, elastic::JobHints hints) override;
  elastic::Orders orders(const NodeId& node) override;
  Task<uint64_t> keep_lines(NodeId node, AgentId agent, elastic::LogLines lines) override;
  elastic::PackagePart package_part(const elastic::PackageWanted& wanted) override;
  // Lines that were found in the folder of a node whose agent is dead. Returns up to which number they are kept.
  Task<uint64_t> keep_last_lines(NodeId node, elastic::LogLines lines) override;
  Task<elastic::OutputAck> output_offered(NodeId node, JobId job) override;
  Task<elastic::OutputAck> keep_output(NodeId node, elastic::OutputPart part) override;
  void output_trouble(const NodeId& node, const elastic::OutputTrouble& trouble) override;
  void delivered(const NodeId& node) override;
  // controller_checkpoints.cc
  Task<elastic::OutputAck> checkpoint_offered(NodeId node, elastic::OutputOffer offer) override;
  Task<elastic::OutputAck> keep_checkpoint(NodeId node, elastic::OutputPart part) override;
  Task<elastic::PackagePart> checkpoint_part(elastic::PackageWanted wanted) override;

 private:
  void add_checkpoints(elastic::Orders& orders, const NodeId& node);
  void assign_peers(const JobId& job, bool has_new);  // has_new: of checkpoints
  void set_peers(const JobId& job, std::set<NodeId> chosen);
  void send_orders_soon(const NodeId& node);
  void send_orders_to_workers_of(const JobId& job);
  Task<void> keep_peers();
  // What the state says of this output; null when nobody wants it.
  const cluster::Output* output_of(const JobId& job, const NodeId& node) const;
  bool may_still_write(const JobId& job, const NodeId& node) const;
  void miss_output(const JobId& job, const NodeId& node, const std::string& reason);
  void tell(cluster::Event event);
  Task<void> decide_and_act();
  Task<void> serve_agents(Listener& listener);
  Task<void> turn();
  Task<void> decide_and_commit();
  std::vector<cluster::Event> take_happened();
  std::optional<Instant> next_turn();
  // A node that is not connected.
  struct Absence {
    Instant give_up{};    // when it is looked at, in listening time
    bool closed = false;  // its kernel ended the connection
    bool dead = false;    // and nothing listens where its agent did
  };
  void give_up_absent(std::vector<cluster::Event>& happened);
  std::optional<cluster::NodeLost> judge_absent(const NodeId& node, Absence& absence, Instant listened);
  bool is_heard(const NodeId& node) const;
  Duration listed_after(const cluster::Node& node) const;
  bool replaces(const elastic::Hello& hello, const cluster::Node& node) const;
  // controller_fence.cc
  Task<void> try_door(NodeId node, AgentId agent);    // after it has joined
  Task<void> watch_door(NodeId node, AgentId agent);  // while nobody hears it
  Task<ConnectResult> knock(Endpoint door);
  Task<void> ask_provider();  // while there are silent nodes: whether their machines are gone
  std::optional<Endpoint> door_of(const NodeId& node, const AgentId& agent) const;
  bool is_missed(const NodeId& node, const AgentId& agent) const;
  void begin_to_watch(const NodeId& node);
  void update_silence();
  // Turns listening_, and takes note of the times in which this process stood still.
  Task<void> watch_stalls();
  void begin_to_listen();
  void note_stall();
  Task<void> act(const std::vector<cluster::Record>& records);
  std::set<NodeId> concerned(const std::vector<cluster::Record>& records);
  bool finished() const;
  void count(const std::vector<cluster::Record>& records);

  World& world_;
  HeadSettings settings_;
  Metrics& metrics_;
  Log log_;
  History history_;
  JobLogs logs_;
  PackageStore packages_;
  OutputStore outputs_;
  CheckpointStore checkpoints_;
  std::map<JobId, std::set<NodeId>> peers_;      // who is to hold copies of a job's checkpoints
  std::map<NodeId, std::set<JobId>> copies_on_;  // the same by node
  ListeningClock listening_;                     // silence of others is counted in its time
  Machines machines_;

  WallTime anchor_wall_{};  // now() was at least this
  Instant anchor_at_{};     // at this instant
  const std::shared_ptr<cluster::State> shared_state_ = std::make_shared<cluster::State>();
  cluster::State& state_ = *shared_state_;  // changed by turns only
  reconcile::PlanMemory plan_memory_;
  StateReaders readers_;
  cluster::Observed observed_;
  std::vector<cluster::Event> happened_;
  std::map<NodeId, std::vector<elastic::JobOrderReport>> reports_;  // not looked at yet
  // Nodes that are not connected, and until when others are waited for, in listening time.
  std::map<NodeId, Absence> absent_;
  Instant patience_{};
  Instant began_{};                     // to listen, by the plain clock
  std::map<NodeId, Instant> answered_;  // when a node was last told that its workers may go on, by the plain clock
  // By then the agent has surely ended all its workers, as it said: the plain clock.
  std::map<AgentId, Instant> promises_;
  std::set<AgentId> doors_;    // agents that were reached at their own ports
  std::set<AgentId> watched_;  // whose doors are being tried
  bool asking_provider_ = false;
  std::optional<Instant> stalled_;          // the last stall that was taken note of
  std::map<JobId, std::set<NodeId>> told_;  // who has a job order of a job
  std::set<NodeId> owed_;                   // connected while a commit was under way: they get their orders after it
  cluster::Wake wake_;
  bool decided_ = false;
  bool committing_ = false;
  uint64_t submitted_ = 0;  // requests so far, and those that are durable
  uint64_t durable_ = 0;
  std::optional<Error> failure_;
  Event changed_;
  Event committed_;
  Sessions sessions_;
  Scope scope_;
};

}  // namespace rubato::head

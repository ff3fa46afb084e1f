// State: the cluster as its journal tells it. A value: policies read it, only apply() changes it.
//
// A node:
//   REQUESTED --created--> STARTING --joined--> UP --drained--> DRAINING --empty--> REMOVING --gone--> (forgotten)
//       ^                     |                  |                 |                   ^
//       |<-----------------updated---------------+-----------------+                   |
//       |                     |                  |                 |                   |
//       +------failed---------+-------lost-------+-----------------+----> LOST --------+
//
// A job:
//   QUEUED --placed--> STARTING --all ready--> RUNNING --all done-----------> SUCCEEDED
//     ^                   |  ^                  |   |
//     |                   |  +-- RESTARTING <---+   |   (a worker failed, a node was lost, it grows or shrinks)
//     +--- too few -------+----------+              |
//   any --stop, timeout--> STOPPING --all gone--> STOPPED or FAILED;  budget used up --> FAILED
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/event.h"
#include "cluster/index.h"
#include "cluster/ledger.h"

namespace rubato::cluster {

enum class NodePhase { kRequested, kStarting, kUp, kLost, kDraining, kRemoving };
std::string_view to_string(NodePhase phase);

struct Node {
  NodeId id;
  std::string type;
  std::string hash;
  NodePhase phase = NodePhase::kRequested;
  WallTime requested{};
  WallTime since{};      // of the phase
  uint64_t changed = 0;  // the record that brought it there
  std::string reason;
  AgentId agent;
  WallTime agent_started{};
  elastic::MemberInfo info;
  Resources resources;
  bool own_disk = false;   // it does not see the head's disk: what jobs write there is brought afterwards
  bool head = false;       // of the head's own machine: it goes last
  std::string runtime;     // what is on it, or is being put there
  std::string refreshing;  // what is being put there beside its work
  std::string recipe;      // id of the recipe that it is made by
  // Ids of what it was made by before, until it is made by the new one: what is left of them is to be ended too.
  std::vector<std::string> recipes_before;
  bool update = false;       // it drains to be updated
  WallTime deadline{};       // it drains: by then it is to be empty; zero: nobody says
  bool noticed = false;      // it drains because its machine goes away, as its agent says
  bool restart = false;      // its agent is to start anew
  AgentId retired;           // the agent from before an update: it may not join again
  std::string step, detail;  // how far the provider is
  WallTime step_since{};

  Offering offering;       // how it was had, and what it costs per hour
  Reasons reasons;         // of the last decision about it
  WallTime idle_since{};   // nothing of any job is there; zero: something is, or it is not up
  bool never_was = false;  // the provider had no machine for it: it costs nothing
  bool silent = false;     // it was given up because it was not heard, and may live

  bool usable() const { return phase == NodePhase::kUp; }
  // It will be gone soon whatever is decided: nobody counts on it, and it is no obstacle for its replacement.
  bool departs() const { return phase == NodePhase::kDraining && !update && (noticed || deadline != WallTime{}); }
};

enum class JobPhase { kQueued, kStarting, kRunning, kRestarting, kStopping, kSucceeded, kFailed, kStopped };
std::string_view to_string(JobPhase phase);
constexpr bool ended(JobPhase phase) { return phase >= JobPhase::kSucceeded; }
constexpr bool gathering(JobPhase phase) { return phase == JobPhase::kStarting || phase == JobPhase::kRestarting; }
// It has seats that it should keep or get more of.
constexpr bool placed(JobPhase phase) { return gathering(phase) || phase == JobPhase::kRunning; }

// What one node has of a job's output, if that is not on the head's disk by itself.
//
//   HELD --delivered--> KEPT
//    |  ^                 |
//    |  +-- it runs there again
//    +--it is gone, or the head cannot take it--> MISSING --delivered after all--> KEPT
struct Output {
  enum class Phase { kHeld, kKept, kMissing };
  Phase phase = Phase::kHeld;
  Generation generation = 0;  // the last that ran there
  int rank = 0;               // the first of its ranks then
  uint64_t files = 0;
  uint64_t bytes = 0;
  std::string reason;  // kMissing
};

// An agent that was given up because nobody hears it. Its workers may live until it must have ended them.
struct CutOff {
  AgentId agent;
  std::string address;  // where it listened
  uint16_t port = 0;
  Generation round = 0;  // whose witnesses its workers' lease counts; 0: the job's last round
  bool operator==(const CutOff&) const = default;
};

// A node that is not of a job's round, but may have workers of its group: they wait to join it, or leave it.
struct Beside {
  AgentId agent;
  Generation round = 0;  // as CutOff's
  bool operator==(const Beside&) const = default;
};

// A job gets away from a node that has a deadline.
struct Evacuation {
  NodeId node;
  std::string cause;
  WallTime at{};        // when the head heard of it
  WallTime deadline{};
  int workers = 0;      // that the job had
  WallTime stopped{};   // its workers there had ended; zero: not yet, or they were not seen to
  bool saved = true;    // before they were killed, or were lost with the node
  bool operator==(const Evacuation&) const = default;
};

struct Job {
  JobId id;
  JobSpec spec;
  std::string request_id;
  std::string rerun_of;
  JobPhase phase = JobPhase::kQueued;
  WallTime submitted{};
  WallTime since{};    // of the phase
  WallTime started{};  // first generation; zero: never
  WallTime ended_at{};
  WallTime queued_since{};
  // Side by side, for thousands of queued jobs are looked through at each decision.
  uint64_t decided = 0;  // the offset of the last decision
  WallTime decided_at{};
  uint64_t reasons_digest = 0;         // of `reasons`
  std::map<NodeId, WallTime> shunned;  // not to be used until then

  Generation generation = 0;
  std::vector<Seat> seats;
  std::set<NodeId> done;             // seats whose workers all ended well in this generation
  Generation ran = 0;                // the last generation that was started; 0: none was, or it was not noted
  std::vector<Seat> round;           // its seats: they vouch for each other (elastic/lease.h)
  Duration round_lease{};            // what they were told; zero: it was not noted
  std::map<NodeId, CutOff> cut_off;  // of these, those whose workers may still be alive: nothing starts beside them
  // Where workers live on from one generation to the next: docs/fault-tolerance.md, "Changing in place".
  bool in_place = false;                   // the generation that gathers, or runs, is made of workers that live on
  std::optional<elastic::GroupPlan> plan;  // of `ran`; none: its workers cannot change in place
  std::map<NodeId, Beside> beside;
  std::set<NodeId> unfinished;       // its nodes that have not said that all their workers ended well by themselves
  std::set<NodeId> failed;           // seats that reported a failure since the last start
  std::map<NodeId, int> leaving;     // workers of earlier seats that may still be alive
  std::optional<Evacuation> evacuation;  // it has left a node with a deadline, and does not run yet
  std::string moved;                 // of the last one that is over, in words
  std::set<NodeId> holding;          // nodes where older workers may have to save before the gathered round is ready
  std::map<NodeId, int> strikes;     // how often in a row it was not ready in time
  std::string master_addr;
  uint16_t master_port = 0;
  WallTime rescaled{};  // when it was last given more seats

  std::map<NodeId, Output> outputs;  // of nodes with disks of their own, also of those that are gone
  // Of the nodes that write to the head's disk: their last generation, and its first rank there.
  Generation output_here_generation = 0;
  int output_here_rank = 0;

  elastic::Restarts restarts;
  std::string last_crash;  // RestartCharged::crash, until a generation has lived longer than that
  WallTime not_before{};   // back-off
  bool stop_failed = false;
  JobEndCause end_cause = JobEndCause::kOther;
  std::string reason;  // for people: the last cause
  Reasons reasons;     // of the last decision

  // Adaptive jobs: what it has told of itself, when; how many workers it is to have, and why.
  std::optional<JobProfile> profile;
  WallTime profiled{};
  int sized = 0;       // 0: as many as there is room for
  int worthwhile = 0;  // 0: all are
  std::string size_reason;
  // Seconds from JobPlaced to JobStarted of the last changes, newer ones count more; 0: it has not changed yet.
  double change_in_place_s = 0, change_anew_s = 0;

  // All workers of the last generation ended well: nothing is left to run, whatever was decided since.
  bool finished() const { return ran != 0 && unfinished.empty(); }
  int workers() const;
  bool adaptive() const { return is_known(profile) && spec.workers_min < spec.workers_max; }
  // As many as it may have of the nodes that are there, and of any.
  int workers_most() const;
  int workers_worthwhile() const;
  const Seat* seat_on(const NodeId& node) const;
};

// A type whose nodes die young is not asked for again at once.
struct TypeHealth {
  int failures = 0;
  WallTime not_before{};
};

struct State {
  uint64_t offset = 0;  // of the last record
  WallTime time{};
  uint64_t epoch = 0;
  std::string head_version;
  int head_pid = 0;
  WallTime head_since{};

  std::optional<ClusterSpec> spec;
  std::string spec_text;                          // the file as it was given, for people
  std::map<std::string, NodeRecipe> old_recipes;  // by id: not in `spec` any more, but nodes were made by them
  bool no_restart = false;                        // of the last configuration
  bool shutting_down = false;

  // When the sizes of adaptive jobs are to be worked out again, where there are any. Not in the journal: a new head
  // works them out anyway.
  std::optional<WallTime> resize_at;
  bool has_adaptive = false;  // or has had

  std::map<NodeId, Node> nodes;
  std::map<std::string, uint64_t> next_node;  // by type
  std::map<std::string, TypeHealth> health;   // by type
  WallTime last_join{};

  // The autoscaler's.
  WallTime born{};                           // when the cluster was configured first
  std::vector<Bundle> wanted_bundles;        // what people asked room for
  std::map<std::string, Resources> learned;  // by type: what the last node that joined has
  std::map<std::string, std::string> devices;  // by type: what jobs that ran there said they computed on
  Shortages shortages;                       // what could not be had
  std::map<std::string, Spent> spent;        // by type: nodes that are gone
  uint64_t strays = 0;                       // machines that nobody knew of, so far
  Reasons held;                              // why demand has no nodes; of the last ScaleHeld
  uint64_t held_at = 0;                      // its offset
  WallTime held_time{};
  uint64_t held_digest = 0;
  uint64_t scale_changes = 0;                // not written: of what its plan depends on, since the state was read

  std::map<JobId, Job> jobs;
  std::set<JobId> active;  // not queued, not ended
  std::set<JobId> queued;
  std::vector<JobId> ended_jobs;              // oldest first, the last kEndedMax
  std::map<NodeId, std::set<JobId>> jobs_on;  // seats and leaving
  // Jobs of whose output the node may not forget its part: it was not brought, or the job may come back.
  std::map<NodeId, std::set<JobId>> outputs_on;
  std::map<std::string, JobId> requests;  // request ids of the jobs that are here
  std::set<JobId> beside_cut_off;         // not written: the jobs that have a CutOff
  Index index;                            // not written: follows from the rest
};

// Older ended jobs are in the journal only.
inline constexpr size_t kEndedMax = 1000;

// nullptr for an id that nothing refers to, and for nodes beside the head, which have none.
const NodeRecipe* find_recipe(const State& state, const std::string& id);
// How long a round of it that is started now may train without its head; and how long its last one may.
Duration lease_of(const State& state, const Job& job);
Duration round_lease_of(const State& state, const Job& job);

// What a change of its size costs the job, in seconds: as measured, in place where its workers can do that.
double change_cost_s(const Job& job);

// What is free on a usable node: its resources less seats and leaving workers.
Resources free_on(const State& state, const Node& node);
Resources used_on(const State& state, const NodeId& node);

// What is free on it when workers that are being stopped have gone.
Resources free_soon(const State& state, const Node& node);

// What this cluster's nodes have cost, in millionths.
int64_t cost_so_far(const State& state, WallTime now);
int64_t cost_of(const Node& node, WallTime now);

// The whole state as a snapshot's bytes, and back. Throws an Error for bytes that are none.
std::string encode_snapshot(const State& state);
State decode_snapshot(std::string_view bytes);

// By id, unique prefix of one, or name (the newest with it). Throws kNotFound or kUsage (ambiguous).
const Job& find_job(const State& state, std::string_view reference);

}  // namespace rubato::cluster

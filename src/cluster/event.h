// Events: everything a head writes to its journal before it acts on it. Decisions carry their reasons.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/time.h"
#include "elastic/group_plan.h"
#include "elastic/member.h"
#include "elastic/restart.h"
#include "model/cluster_spec.h"
#include "model/ids.h"
#include "model/job_profile.h"
#include "model/job_spec.h"

namespace rubato::cluster {

// Why something was decided so: what `rubato why` prints.
struct Reasons {
  struct Obstacle {
    std::string text;
    std::string where;  // file:line:column of the limit, or empty
    bool operator==(const Obstacle&) const = default;
  };
  std::string wanted;
  std::vector<Obstacle> against;
  std::vector<std::string> changes;  // what would change it
  std::vector<Obstacle> others;      // what could have been done instead, and why it was not
  bool operator==(const Reasons&) const = default;
};
uint64_t digest(const Reasons& reasons);  // the same for the same reasons

// A job's workers on one node, in the order of their ranks.
struct Seat {
  NodeId node;
  AgentId agent;  // the process there: another one has not the workers of this
  int workers = 0;
  bool operator==(const Seat&) const = default;
};

// So many of one size.
struct Bundle {
  Resources each;
  int64_t count = 1;
  bool operator==(const Bundle&) const = default;
};

// Why a machine could not be had, as far as the autoscaler does something else for each. Numbers are a format.
enum class LaunchFailure { kOther, kNoCapacity, kQuota, kAuth };
std::string_view to_string(LaunchFailure failure);  // "no capacity"

// ---- The cluster ----
struct HeadStarted {
  uint64_t epoch = 0;
  std::string version;
  int pid = 0;
  std::string restarted_after;  // "signal 9": its supervisor started it, after that end of the one before
};
struct ClusterConfigured {
  ClusterSpec spec;
  std::string text;         // the file, as it was given
  bool no_restart = false;  // what changes on a node is put there beside its work
  bool restart = false;     // every node's agent starts anew, whether or not something changed
};
struct ShutdownRequested {};
struct JournalLost {             // a person has let a head go on without them; what they told is forgotten
  uint64_t first = 0, last = 0;  // of the journal before; first > last: it is not known how many, if any
  uint64_t epoch = 0;            // of the heads before: later ones come after it
  std::string cause;
  std::string kept_in;  // where the damaged journal is; empty: nowhere
};

// ---- Nodes ----
struct NodeRequested {
  NodeId node;
  std::string type;
  std::string hash;  // launch_hash
  std::string why;
  Offering offering;
  Reasons reasons;
  std::string runtime;  // runtime_hash
  bool head = false;    // the head's own machine
};
struct NodeStepped {  // how far the provider is with it
  NodeId node;
  std::string step;  // "reachable", "files", "initialization", "setup", "agent"
  std::string detail;
};
struct NodeUpdating {  // decided: its machine is brought to another runtime, then its agent starts anew
  NodeId node;
  std::string runtime;
  std::string why;
};
struct NodeRefreshing {  // decided: the same while its agent and workers go on
  NodeId node;
  std::string runtime;
};
struct NodeRefreshed {
  NodeId node;
  std::string runtime;
  std::string error;  // empty: it worked
};
struct NodeCreated {
  NodeId node;
  std::string runtime;  // what was put there
};
struct NodeFailed {  // the provider could not make it
  NodeId node;
  std::string error;
  LaunchFailure code = LaunchFailure::kOther;
};
struct NodeJoined {
  NodeId node;
  AgentId agent;
  elastic::MemberInfo info;
  Resources resources;
  bool own_disk = false;  // outputs of jobs stay there until they are delivered
  WallTime started{};     // elastic::Hello; zero: not noted
};
struct NodeLost {
  NodeId node;
  std::string reason;
  bool silent = false;  // it is only not heard: its workers may live. Told again without it: they do not
};
struct NodeDraining {
  NodeId node;
  std::string reason;
  bool update = false;  // to be updated when it is empty, not removed
  Reasons reasons;
  WallTime deadline{};   // when its machine goes, or a person wants it empty; zero: nobody says
  bool noticed = false;  // its own agent says so: it cannot be undone
};
struct NodeKept {  // a person has undone that it drains
  NodeId node;
  std::string reason;
};
struct NodeRemoving {
  NodeId node;
  std::string reason;
  Reasons reasons;
};
struct NodeGone {
  NodeId node;
  bool unreachable = false;  // its machine stays, and did not answer: its workers may live there
};
struct StrayFound {  // a machine of this cluster that nobody knew of; it is removed
  NodeId node;
};
struct ResourcesRequested {  // a person wants room for these, whatever runs; instead of what was asked before
  std::vector<Bundle> bundles;
};
struct ScaleHeld {  // decided: no node is launched for these demands; without reasons: all demand is met
  Reasons reasons;
};

// ---- Jobs ----
struct JobSubmitted {
  JobId job;
  JobSpec spec;
  std::string request_id;
  std::string rerun_of;
};
struct JobHeld {  // decided: it cannot have a place now
  JobId job;
  Reasons reasons;
};
struct JobPlaced {  // decided: gather this generation on these seats
  JobId job;
  Generation generation = 0;
  std::vector<Seat> seats;
  std::string cause;
  Reasons reasons;
  // Nodes that did not answer in time: not used for this job for a while.
  std::vector<NodeId> shunned;
  bool in_place = false;  // the workers of the last generation live on, and train until this one is ready
  bool broken = false;    // the cause: that group failed, though nobody in it died
};
struct RestartCharged {  // decided: the failure of the last generation costs a restart
  JobId job;
  int used = 0;
  int quick_crashes = 0;
  Duration backoff = 0s;
  std::string cause;
  std::string crash;  // elastic::crash_signature of a generation that died at its start; else empty
  bool saved = false;  // it saved and left to be started anew: `used` is what it was
};
struct JobStarted {  // decided: every seat is ready, the workers start
  JobId job;
  Generation generation = 0;
  std::string master_addr;
  uint16_t master_port = 0;
  std::string moved;  // how it got away from a node with a deadline: Evacuation, in words; else empty
  std::optional<elastic::GroupPlan> plan;  // its workers may change in place; members' nodes are the seats, from 0
  bool in_place = false;                   // it was formed of workers that live on
  std::string change;                      // "resized 2→3 in place"; else empty
};
struct SeatFailed {
  JobId job;
  Generation generation = 0;
  NodeId node;
  std::vector<elastic::Failure> failures;
  bool fenced = false;  // its node had lost its head for too long, and ended them: that is no fault of theirs
};
struct SeatDone {
  JobId job;
  Generation generation = 0;
  NodeId node;
};
struct SeatVacated {  // no worker of this job is left there
  JobId job;
  NodeId node;
};
struct CheckpointMissed {  // workers that did not end within the checkpoint timeout and were killed
  JobId job;
  Generation generation = 0;
  NodeId node;
  std::vector<std::string> workers;
};
struct OutputKept {  // what a node had of the job's output is here, whole
  JobId job;
  NodeId node;
  Generation generation = 0;  // the last that ran there
  uint64_t files = 0;
  uint64_t bytes = 0;
};
struct OutputMissing {  // it could not be brought; it may still come later
  JobId job;
  NodeId node;
  std::string reason;
};
struct JobProfiled {  // its workers told what they have found out about it
  JobId job;
  JobProfile profile;
};
struct JobSized {  // decided: how many workers an adaptive job is to have
  JobId job;
  int workers = 0;     // of the nodes that are there
  int worthwhile = 0;  // with more than these each would do too little, however many nodes there were
  std::string reason;
};
struct JobStopping {
  JobId job;
  bool failed = false;  // it ends as failed (a timeout), else as stopped
  std::string reason;
};
enum class JobResult { kSucceeded, kFailed, kStopped };
std::string_view to_string(JobResult result);
// Why a job's failure was final. Numbers are a format.
enum class JobEndCause { kOther, kRestartsUsed, kSameCrash };
std::string_view to_string(JobEndCause cause);  // "same-crash"
struct JobEnded {
  JobId job;
  JobResult result = JobResult::kSucceeded;
  std::string reason;
  JobEndCause cause = JobEndCause::kOther;
};

using Event = std::variant<HeadStarted, ClusterConfigured, ShutdownRequested, JournalLost, NodeRequested, NodeCreated,
                           NodeFailed, NodeJoined, NodeLost, NodeDraining, NodeRemoving, NodeGone, NodeStepped,
                           NodeUpdating, NodeRefreshing, NodeRefreshed, StrayFound, ResourcesRequested, ScaleHeld,
                           JobSubmitted, JobHeld, JobPlaced, RestartCharged, JobStarted, SeatFailed, SeatDone,
                           SeatVacated, CheckpointMissed, OutputKept, OutputMissing, JobStopping, JobEnded,
                           JobProfiled, JobSized, NodeKept>;

struct Record {
  uint64_t offset = 0;
  WallTime time{};
  Event event;
};

std::string_view type_name(const Event& event);  // "job-placed"
std::string describe(const Event& event);        // one sentence for people
std::optional<JobId> job_of(const Event& event);
std::optional<NodeId> node_of(const Event& event);

// One journal record: {"v":1,"t":micros,"type":...,...}. The offset is the journal's.
std::string encode(WallTime time, const Event& event);
// Throws an Error that names the offset for anything that is not a record, or one of a newer version.
Record decode(uint64_t offset, std::string_view bytes);
nlohmann::json event_fields(const Event& event);

nlohmann::json to_json(const Reasons& reasons);
nlohmann::json to_json(const elastic::Failure& failure);

inline constexpr int kRecordVersion = 1;

}  // namespace rubato::cluster

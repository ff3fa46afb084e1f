// Job, Pod, Status: what the operator knows of a job and its pods, whatever kind of manifest it came from. Values only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "elasticjob/node_notice.h"
#include "kubernetes/resource.h"
#include "model/job_profile.h"

namespace rubato::elasticjob {

using kubernetes::ObjectName;

// The manifests that we reconcile. All but the first only with --adopt.
enum class Kind {
  kElasticJob,       // rubato.dev/v1 ElasticJob
  kTorchElasticJob,  // elastic.pytorch.org/v1alpha1 ElasticJob
  kAdaptdlJob,       // adaptdl.petuum.com/v1 AdaptDLJob
  kPytorchJob,       // kubeflow.org/v1 PyTorchJob with an elasticPolicy
};
inline constexpr Kind kAllKinds[] = {Kind::kElasticJob, Kind::kTorchElasticJob, Kind::kAdaptdlJob, Kind::kPytorchJob};
const kubernetes::Resource& resource_of(Kind kind);
std::string_view to_string(Kind kind);                  // "elasticjobs.rubato.dev": the CRD's name
std::optional<Kind> parse_kind(std::string_view text);  // that, or the short names of docs/kubernetes.md

// Which pods go when a job has ended.
enum class CleanPods { kNone, kRunning, kAll };
std::string_view to_string(CleanPods policy);

// What a pod's container runs.
enum class Launch {
  kRubato,  // our launcher around the program
  kAsIs,    // command and arguments as the kind's own controller would build them
};

enum class Phase { kPending, kRunning, kRestarting, kSuspended, kSucceeded, kFailed };
std::string_view to_string(Phase phase);
std::optional<Phase> parse_phase(std::string_view text);
constexpr bool is_final(Phase phase) { return phase == Phase::kSucceeded || phase == Phase::kFailed; }

// Why a job does not get on, for conditions and events.
struct Block {
  std::string reason;   // "ImagePullFailed", "Unschedulable", "QuotaExceeded", ...; empty: nothing blocks
  std::string message;  // names the pod
  bool operator==(const Block&) const = default;
};

struct Condition {
  std::string type;
  bool is_true = false;
  std::string reason, message;
  std::string since;  // lastTransitionTime, as written
  bool operator==(const Condition&) const = default;
};

// What the operator writes back.
struct Status {
  Phase phase = Phase::kPending;
  int64_t observed_generation = 0;
  int replicas = 0;                         // pods that are there and not ending
  int ready = 0;                            // of them: joined the group
  int groups = 0;                           // of a job whose pods are told their number: groups that were made
  int failures = 0;                         // times that the group, or a pod of it, failed
  std::string start_time, completion_time;  // RFC 3339, empty: not yet
  std::string reason, message;              // of the phase
  Block block;
  std::vector<Condition> conditions;
  bool operator==(const Status&) const = default;
};

// The size that the operator chose for an adaptive job.
struct SizeNote {
  int workers = 0;
  std::string at;  // RFC 3339
  std::string reason;
  int room = 0;  // more workers found no room then; 0: nobody knows
};

// A job whose size follows what its workers report; see sizing.h.
struct Adaptive {
  int least = 1, most = 1;
  double least_utility = 0.5;  // a worker is worth it while it gives so much of a first one's speed
  int processes = 1;           // in each pod
  std::optional<JobProfile> profile;
  std::optional<SizeNote> sized;
};

struct Job {
  Kind kind = Kind::kElasticJob;
  ObjectName name;
  std::string uid;
  std::string resource_version;
  uint64_t seen_version = 0;  // resourceVersion as a number: only to drop older news of the same job
  int64_t generation = 0;
  bool deleting = false;

  int min_replicas = 1;
  int max_replicas = 1;
  int replicas = 1;        // wanted; within [min, max]
  std::string range_note;  // what was asked for, where that is out of the range; empty: it is in it
  int first_index = 0;
  std::string nproc = "1";
  int max_restarts = 0;            // of workers inside the group, by the launcher
  int backoff_limit = 3;           // failures that are forgiven
  bool ends_by_exit_code = false;  // Kubeflow's ExitCode policy: 1 to 127 is final, from 128 on it is tried again
  bool suspended = false;
  CleanPods clean_pods = CleanPods::kRunning;
  std::optional<int64_t> ttl_s;              // after the end
  std::optional<int64_t> active_deadline_s;  // since the start
  Launch launch = Launch::kRubato;
  bool ready_means_joined = true;  // no readiness probe of the user's own
  bool is_rigid = false;           // a pod is told how many there are: when that changes, all of them are made anew
  std::string etcd;                // external rendezvous; empty: embedded in the group itself
  std::string container;           // the one that trains; empty: the first
  std::string pod_template;        // JSON text: kept for each job, read when a pod is made
  uint64_t template_hash = 0;      // of what its pods are made from
  std::string invalid;             // why it cannot be run; empty: it can
  bool ignored = false;            // none of ours: nothing is done or written
  std::string priority_class;      // of its pods; empty: the template's
  std::string checkpoint_claim;    // a volume for checkpoints; empty: none
  std::string checkpoint_path, checkpoint_sub_path;

  std::shared_ptr<const Adaptive> adaptive;  // null: its size is what its manifest says

  // Who else writes the status of an adopted job, and when; see other_controller.h.
  std::string other_writer;
  std::optional<WallTime> other_wrote, we_wrote;

  Status status;            // as last written
  std::string status_text;  // the same as it is in the API: what it says already is not written again
};

enum class PodPhase { kPending, kRunning, kSucceeded, kFailed, kUnknown };
std::string_view to_string(PodPhase phase);

struct Pod {
  std::string name, uid, owner_uid;
  ObjectName job;
  int index = -1;
  int attempt = 0;  // the job's failures when it was made
  int group = 0;    // of a rigid job: which group it belongs to, and of what size
  int group_size = 0;
  bool is_host = false;  // it opened the group's rendezvous
  PodPhase phase = PodPhase::kPending;
  bool deleting = false;
  std::optional<WallTime> delete_by;  // when its node has ended it, if the node is alive; only of one that is deleting
  bool disrupted = false;             // the condition DisruptionTarget: the cluster ended it (from 1.26 on)
  bool ready = false;
  bool joined = false;           // its trainer is ready, whatever sidecars and the node's controller say
  int restarts = 0;              // of the container that trains, by its kubelet
  std::optional<int> exit_code;  // of the container that trains; of an init container that failed
  std::string reason;            // "Evicted", "OOMKilled", "Error"
  std::string message;           // what is told of its end beside that: the program was not found, its last words
  std::optional<WallTime> created;
  std::optional<WallTime> started;
  std::optional<WallTime> finished;  // of one that has ended: never absent, if not exact where nobody ran
  std::string node;
  std::string address;
  std::string held_by;               // a finalizer that keeps it; only of one that is deleting
  std::string tolerated;             // see tolerated_notices()
  NodeNotice notice;                 // of its node; filled in when it is decided
  bool lingers = false;              // the trainer has ended, other containers still run
  int group_min = 0, group_max = 0;  // the range that its launcher was started with; 0: not told
  uint64_t template_hash = 0;        // the job's when it was made; 0: not told
  Block waiting;                     // why it does not start, if that is told
  uint64_t seen_version = 0;         // resourceVersion as a number: only to drop older news of the same pod

  bool ended() const { return phase == PodPhase::kSucceeded || phase == PodPhase::kFailed; }
};

// Nodes have clocks of their own: an end that was seen as it came is by ours, and none is in the future. `before`: the
// same pod as it was last known; null: it was not. A list tells of the past: what it has of the pod's times stands.
void settle_times(Pod& pod, const Pod* before, WallTime now, bool as_it_came);

// A deletion, an exit by SIGTERM (143), an eviction, a lost node or a preemption is nobody's failure.
bool is_excused(const Pod& pod);

// What the objects of a job are named after: the job itself. A name that is too long for them, has dots or begins with
// a digit, which a service may not, is changed and gets eight digits of its hash.
std::string base_name(const std::string& job);
std::string label_value(const std::string& job);     // at most 63 characters; mostly the name itself
std::string worker_name(const Job& job, int index);  // BASE-worker-N
std::string service_name(const Job& job);            // BASE-workers: headless, all pods of the job

}  // namespace rubato::elasticjob

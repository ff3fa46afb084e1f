// admit: the one front door. Whoever brings a request (the HTTP API, the simulator's people, an operator) asks here
// whether it may be done to the cluster as it is, and gets the events that do it.
//
// Pure: the same state and request give the same answer. An admission without events asks for nothing new: the request
// is a repetition, or what it wants is so already.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cluster/event.h"
#include "cluster/state.h"
#include "core/error.h"

namespace rubato::reconcile {

struct SubmitJob {
  JobSpec spec;
  JobId id;                // for a new job; who asks has seen that no job has it
  std::string request_id;  // the same one again is the same job; empty: always a new one
  std::string rerun_of;
  bool package_is_here = true;
  std::optional<JobId> pending;  // a job with this request id that is on its way to the journal
};

struct StopJob {
  JobId job;
  std::string reason;
};

struct ConfigureCluster {
  ClusterSpec spec;
  std::string text;
  bool no_restart = false;
  bool restart = false;
};

struct RequestResources {
  std::vector<cluster::Bundle> bundles;
};

struct DrainNode {
  NodeId node;
  std::string reason;
  WallTime deadline{};  // by then it is to be empty; zero: when it will
};

// It takes work again. Refused when its own machine has said that it goes away.
struct KeepNode {
  NodeId node;
  std::string reason;
};

// A person knows that this node's machine is dead: jobs need not wait until it has surely ended its workers.
struct DeclareNodeLost {
  NodeId node;
  std::string by;
  bool is_heard = false;  // its agent is connected
};

struct ShutDown {};

using Request = std::variant<SubmitJob, StopJob, ConfigureCluster, RequestResources, DrainNode, KeepNode,
                             DeclareNodeLost, ShutDown>;

enum class Refusal {
  kShuttingDown,
  kQueueFull,
  kPackageMissing,
  kOtherCluster,
  kIsolationChanged,
  kTooManyNodes,
  kNoSuchJob,
  kNoSuchNode,
  kNodeLives,
  kNodeGoes,
  kTooLargeToRecord,
};

// The error that a person gets for it.
struct Refused {
  Refusal reason = Refusal::kShuttingDown;
  Error error;
};

struct Admitted {
  std::vector<cluster::Event> events;
  JobId job;  // of SubmitJob: the new one, or the one that the same request made before
};

using Admission = std::variant<Admitted, Refused>;

struct AdmitLimits {
  size_t record_bytes_max = SIZE_MAX;  // of the journal: what cannot be written down is refused
};

Admission admit(const cluster::State& state, const Request& request, WallTime now, const AdmitLimits& limits = {});

// How many nodes this cluster has at the least.
int64_t nodes_wanted(const ClusterSpec& spec);

// The same for callers to whom a refusal is an error: throws it.
Admitted admit_or_throw(const cluster::State& state, const Request& request, WallTime now,
                        const AdmitLimits& limits = {});

}  // namespace rubato::reconcile

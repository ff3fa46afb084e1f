#include "reconcile/admit.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/limits.h"

namespace rubato::reconcile {

using cluster::State;

namespace {

Refused refuse(Refusal reason, ErrorCode code, std::string message, std::string hint = {}) {
  return Refused{reason, Error(code, std::move(message), "", std::move(hint))};
}

Refused refuse_while_shutting_down() {
  return refuse(Refusal::kShuttingDown, ErrorCode::kConflict, "the cluster is shutting down",
                "start it again with: rubato up");
}

template <class E>
Admitted one_event(E event) {
  Admitted out;
  out.events.emplace_back(std::move(event));
  return out;
}

Admission admit_one(const State& state, const SubmitJob& request) {
  if (!request.request_id.empty()) {
    // Asked again because the answer got lost: whatever holds for new jobs does not matter to this one.
    const auto known = state.requests.find(request.request_id);
    if (known != state.requests.end()) return Admitted{{}, known->second};
    if (request.pending) return Admitted{{}, *request.pending};
  }
  if (state.shutting_down) return refuse_while_shutting_down();
  if (!request.package_is_here) {
    return refuse(Refusal::kPackageMissing, ErrorCode::kConflict, "the job's package is not here (yet)",
                  "upload it first");
  }
  if (state.queued.size() >= kQueuedJobsMax) {
    return refuse(Refusal::kQueueFull, ErrorCode::kUnavailable,
                  fmt::format("the queue is full ({} jobs)", state.queued.size()));
  }
  cluster::JobSubmitted submitted;
  submitted.job = request.id;
  submitted.spec = request.spec;
  submitted.request_id = request.request_id;
  submitted.rerun_of = request.rerun_of;
  Admitted out = one_event(std::move(submitted));
  out.job = request.id;
  return out;
}

Admission admit_one(const State& state, const StopJob& request) {
  const auto job = state.jobs.find(request.job);
  if (job == state.jobs.end()) {
    return refuse(Refusal::kNoSuchJob, ErrorCode::kNotFound, fmt::format("there is no job '{}'", request.job.value),
                  "rubato jobs --all lists the jobs");
  }
  if (cluster::ended(job->second.phase) || job->second.phase == cluster::JobPhase::kStopping) {
    return Admitted{{}, request.job};
  }
  Admitted out = one_event(cluster::JobStopping{request.job, false, request.reason});
  out.job = request.job;
  return out;
}

Admission admit_one(const State& state, const ConfigureCluster& request) {
  const ClusterSpec& spec = request.spec;
  if (state.spec && state.spec->name != spec.name) {
    return refuse(Refusal::kOtherCluster, ErrorCode::kConflict,
                  fmt::format("this cluster is '{}', the file is for '{}'", state.spec->name, spec.name));
  }
  if (state.spec && state.spec->isolation != spec.isolation && !state.nodes.empty()) {
    return refuse(Refusal::kIsolationChanged, ErrorCode::kConflict,
                  "the isolation of a cluster cannot change while it has nodes", "rubato down, then rubato up");
  }
  const int64_t wanted = nodes_wanted(spec);
  if (wanted > kNodesLedMax) {
    return refuse(Refusal::kTooManyNodes, ErrorCode::kUsage,
                  fmt::format("{} nodes are more than a head can lead", wanted));
  }
  const bool same = state.spec && *state.spec == spec && state.spec_text == request.text;
  if (same && !state.shutting_down && !request.restart) return Admitted{};
  return one_event(cluster::ClusterConfigured{spec, request.text, request.no_restart, request.restart});
}

Admission admit_one(const State& state, const RequestResources& request) {
  if (state.shutting_down) return refuse_while_shutting_down();
  cluster::ResourcesRequested requested;
  requested.bundles = request.bundles;
  return one_event(std::move(requested));
}

Admission admit_one(const State& state, const DrainNode& request) {
  const auto found = state.nodes.find(request.node);
  if (found == state.nodes.end()) {
    return refuse(Refusal::kNoSuchNode, ErrorCode::kNotFound, fmt::format("there is no node '{}'", request.node.value),
                  "rubato status lists the nodes");
  }
  cluster::NodeDraining draining;
  draining.node = request.node;
  draining.reason = request.reason;
  draining.deadline = request.deadline;
  const cluster::Node& node = found->second;
  switch (node.phase) {
    case cluster::NodePhase::kUp:
      return one_event(std::move(draining));
    case cluster::NodePhase::kRequested:
    case cluster::NodePhase::kStarting:
      return one_event(cluster::NodeRemoving{request.node, request.reason});
    case cluster::NodePhase::kDraining: {
      // A deadline where there was none, or another one of the same person's.
      const bool news = request.deadline != WallTime{} && !node.noticed && request.deadline != node.deadline;
      return news ? Admission(one_event(std::move(draining))) : Admission(Admitted{});
    }
    case cluster::NodePhase::kLost:
    case cluster::NodePhase::kRemoving:
      return Admitted{};  // it goes already
  }
  CHECK(false);
}

Admission admit_one(const State& state, const KeepNode& request) {
  const auto found = state.nodes.find(request.node);
  if (found == state.nodes.end()) {
    return refuse(Refusal::kNoSuchNode, ErrorCode::kNotFound, fmt::format("there is no node '{}'", request.node.value),
                  "rubato status lists the nodes");
  }
  const cluster::Node& node = found->second;
  if (node.phase == cluster::NodePhase::kUp) return Admitted{};
  if (node.phase != cluster::NodePhase::kDraining || node.noticed) {
    return refuse(Refusal::kNodeGoes, ErrorCode::kConflict,
                  fmt::format("node '{}' cannot be kept: {}", request.node.value,
                              node.noticed ? node.reason : "it is " + std::string(to_string(node.phase))));
  }
  return one_event(cluster::NodeKept{request.node, request.reason});
}

Admission admit_one(const State& state, const DeclareNodeLost& request) {
  const auto found = state.nodes.find(request.node);
  const bool is_waited_for = std::ranges::any_of(
      state.beside_cut_off, [&](const JobId& id) { return state.jobs.at(id).cut_off.contains(request.node); });
  if (found == state.nodes.end() && !is_waited_for) {
    return refuse(Refusal::kNoSuchNode, ErrorCode::kNotFound, fmt::format("there is no node '{}'", request.node.value),
                  "rubato status lists the nodes");
  }
  if (request.is_heard) {
    return refuse(Refusal::kNodeLives, ErrorCode::kConflict,
                  fmt::format("node '{}' is not lost: its agent is connected", request.node.value),
                  "to have its jobs moved and the node removed: DELETE /api/v1/nodes/NODE");
  }
  const bool going = found == state.nodes.end() || found->second.phase == cluster::NodePhase::kLost ||
                     found->second.phase == cluster::NodePhase::kRemoving;
  if (going && !is_waited_for) return Admitted{};
  return one_event(cluster::NodeLost{request.node, fmt::format("{} says that it is dead", request.by)});
}

Admission admit_one(const State&, const ShutDown&) { return one_event(cluster::ShutdownRequested{}); }

}  // namespace

int64_t nodes_wanted(const ClusterSpec& spec) {
  int64_t wanted = spec.head_type.empty() ? 0 : 1;
  for (const auto& [name, type] : spec.types) wanted += type.min_workers;
  return wanted;
}

Admission admit(const State& state, const Request& request, WallTime now, const AdmitLimits& limits) {
  Admission admission = std::visit([&](const auto& one) { return admit_one(state, one); }, request);
  const Admitted* const admitted = std::get_if<Admitted>(&admission);
  if (!admitted || limits.record_bytes_max == SIZE_MAX) return admission;
  for (const cluster::Event& event : admitted->events) {
    const size_t bytes = cluster::encode(now, event).size();
    if (bytes <= limits.record_bytes_max) continue;
    return refuse(Refusal::kTooLargeToRecord, ErrorCode::kUsage,
                  fmt::format("the journal takes {} bytes at once, and this has {}", limits.record_bytes_max, bytes),
                  "ask for less, or put the data into a file of the working directory");
  }
  return admission;
}

Admitted admit_or_throw(const State& state, const Request& request, WallTime now, const AdmitLimits& limits) {
  Admission admission = admit(state, request, now, limits);
  if (Refused* const refused = std::get_if<Refused>(&admission)) throw std::move(refused->error);
  return std::move(std::get<Admitted>(admission));
}

}  // namespace rubato::reconcile

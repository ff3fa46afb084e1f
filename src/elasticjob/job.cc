#include "elasticjob/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "core/sha256.h"

namespace rubato::elasticjob {

namespace {

constexpr size_t kBaseBytesMax = 51;  // with "-worker-9999" it is still the name of a host (63)
constexpr size_t kHashDigits = 8;
constexpr size_t kLabelBytesMax = 63;

}  // namespace

const kubernetes::Resource& resource_of(Kind kind) {
  static const kubernetes::Resource ours{"rubato.dev", "v1", "elasticjobs", "ElasticJob"};
  static const kubernetes::Resource torch{"elastic.pytorch.org", "v1alpha1", "elasticjobs", "ElasticJob"};
  static const kubernetes::Resource adaptdl{"adaptdl.petuum.com", "v1", "adaptdljobs", "AdaptDLJob"};
  static const kubernetes::Resource pytorch{"kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"};
  switch (kind) {
    case Kind::kElasticJob:
      return ours;
    case Kind::kTorchElasticJob:
      return torch;
    case Kind::kAdaptdlJob:
      return adaptdl;
    case Kind::kPytorchJob:
      return pytorch;
  }
  return ours;
}

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::kElasticJob:
      return "elasticjobs.rubato.dev";
    case Kind::kTorchElasticJob:
      return "elasticjobs.elastic.pytorch.org";
    case Kind::kAdaptdlJob:
      return "adaptdljobs.adaptdl.petuum.com";
    case Kind::kPytorchJob:
      return "pytorchjobs.kubeflow.org";
  }
  return "";
}

std::optional<Kind> parse_kind(std::string_view text) {
  for (const Kind kind : kAllKinds) {
    if (text == to_string(kind)) return kind;
  }
  if (text == "elasticjob") return Kind::kTorchElasticJob;  // ours needs no --adopt
  if (text == "adaptdljob") return Kind::kAdaptdlJob;
  if (text == "pytorchjob") return Kind::kPytorchJob;
  return std::nullopt;
}

std::string_view to_string(CleanPods policy) {
  switch (policy) {
    case CleanPods::kNone:
      return "None";
    case CleanPods::kRunning:
      return "Running";
    case CleanPods::kAll:
      return "All";
  }
  return "";
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kPending:
      return "Pending";
    case Phase::kRunning:
      return "Running";
    case Phase::kRestarting:
      return "Restarting";
    case Phase::kSuspended:
      return "Suspended";
    case Phase::kSucceeded:
      return "Succeeded";
    case Phase::kFailed:
      return "Failed";
  }
  return "";
}

std::optional<Phase> parse_phase(std::string_view text) {
  for (const Phase phase :
       {Phase::kPending, Phase::kRunning, Phase::kRestarting, Phase::kSuspended, Phase::kSucceeded, Phase::kFailed}) {
    if (text == to_string(phase)) return phase;
  }
  return std::nullopt;
}

std::string_view to_string(PodPhase phase) {
  switch (phase) {
    case PodPhase::kPending:
      return "Pending";
    case PodPhase::kRunning:
      return "Running";
    case PodPhase::kSucceeded:
      return "Succeeded";
    case PodPhase::kFailed:
      return "Failed";
    case PodPhase::kUnknown:
      return "Unknown";
  }
  return "";
}

bool is_excused(const Pod& pod) {
  if (pod.phase != PodPhase::kFailed) return false;
  if (pod.deleting || pod.disrupted) return true;
  // "Shutdown" and "NodeShutdown": the kubelet's graceful end of a node; the others are the API's own.
  for (const std::string_view reason :
       {"Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "UnexpectedAdmissionError",
        "NodeAffinity", "TopologyAffinityError", "ContainerStatusUnknown"}) {
    if (pod.reason == reason) return true;
  }
  // "OutOfcpu", "OutOfpods", "OutOfnvidia.com/gpu": the node had no room after all; "Outof" before 1.22.
  if (pod.reason.starts_with("OutOf") || pod.reason.starts_with("Outof")) return true;
  // containerd's word for a container that it lost sight of: the machine was started anew.
  if (pod.reason == "Unknown" && pod.exit_code == 255) return true;
  // No program of it ever ended, and nobody says why: its node was taken away (PodGC).
  if (!pod.exit_code && pod.reason.empty()) return true;
  return pod.exit_code == 128 + SIGTERM;
}

void settle_times(Pod& pod, const Pod* before, WallTime now, bool as_it_came) {
  if (before != nullptr && before->uid != pod.uid) before = nullptr;
  const auto settle = [&](std::optional<WallTime>& at, const std::optional<WallTime>& known, bool is_same) {
    if (!at) return;
    if (before != nullptr && is_same && known) {
      at = *known;
    } else {
      at = before != nullptr && as_it_came ? now : std::min(*at, now);
    }
  };
  settle(pod.started, before != nullptr ? before->started : std::nullopt,
         before != nullptr && before->restarts == pod.restarts);
  settle(pod.finished, before != nullptr ? before->finished : std::nullopt, true);
}

std::string base_name(const std::string& job) {
  const bool has_digit_first = !job.empty() && job.front() >= '0' && job.front() <= '9';
  if (job.size() <= kBaseBytesMax && job.find('.') == std::string::npos && !has_digit_first) return job;
  std::string out = (has_digit_first ? "j-" : "") + job;
  std::ranges::replace(out, '.', '-');
  if (out.size() > kBaseBytesMax - kHashDigits - 1) out.resize(kBaseBytesMax - kHashDigits - 1);
  while (out.ends_with('-')) out.pop_back();
  return fmt::format("{}-{}", out, sha256_hex(job).substr(0, kHashDigits));
}

std::string label_value(const std::string& job) { return job.size() <= kLabelBytesMax ? job : base_name(job); }

std::string worker_name(const Job& job, int index) {
  return fmt::format("{}-worker-{}", base_name(job.name.name), index);
}
std::string service_name(const Job& job) { return base_name(job.name.name) + "-workers"; }

}  // namespace rubato::elasticjob

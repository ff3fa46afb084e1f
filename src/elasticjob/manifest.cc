#include "elasticjob/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/hash.h"
#include "core/timestamp.h"
#include "elasticjob/adopt.h"
#include "elasticjob/launch_command.h"
#include "elasticjob/other_controller.h"
#include "elasticjob/sizing.h"
#include "kubernetes/client.h"

namespace rubato::elasticjob {

using kubernetes::bool_in;
using kubernetes::int_in;
using kubernetes::list_in;
using kubernetes::object_in;
using kubernetes::text_in;
using nlohmann::json;

namespace {

constexpr int kReplicasMax = 10'000;
constexpr size_t kMessageBytesMax = 1024;

uint64_t number_of(const std::string& text) {
  uint64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

std::optional<int64_t> maybe_int(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

// int-or-string.
std::string number_or_text(const json& object, const char* key, std::string absent) {
  const auto found = object.find(key);
  if (found == object.end()) return absent;
  if (found->is_number_integer()) return std::to_string(found->get<int64_t>());
  return found->is_string() && !found->get<std::string>().empty() ? found->get<std::string>() : absent;
}

CleanPods read_clean_pods(const std::string& text) {
  if (text == "None") return CleanPods::kNone;
  if (text == "All") return CleanPods::kAll;
  return CleanPods::kRunning;
}

void read_own_spec(Job& job, const json& spec, const json& annotations) {
  settle_replicas(job, maybe_int(spec, "replicas"), maybe_int(spec, "minReplicas"), maybe_int(spec, "maxReplicas"));
  job.nproc = number_or_text(spec, "nprocPerNode", "1");
  job.max_restarts = static_cast<int>(std::clamp<int64_t>(int_in(spec, "maxRestarts", 3), 0, 1'000'000));
  job.backoff_limit = static_cast<int>(std::clamp<int64_t>(int_in(spec, "backoffLimit", 3), 0, 1'000'000));
  job.suspended = bool_in(spec, "suspend");
  job.clean_pods = read_clean_pods(text_in(spec, "cleanPodPolicy"));
  job.ttl_s = maybe_int(spec, "ttlSecondsAfterFinished");
  job.active_deadline_s = maybe_int(spec, "activeDeadlineSeconds");
  job.etcd = text_in(object_in(spec, "rendezvous"), "etcd");
  job.container = text_in(spec, "container");
  job.priority_class = text_in(spec, "priorityClassName");
  const json& checkpoint = object_in(spec, "checkpoint");
  job.checkpoint_claim = text_in(checkpoint, "claim");
  job.checkpoint_path = text_in(checkpoint, "mountPath").empty() ? "/checkpoint" : text_in(checkpoint, "mountPath");
  job.checkpoint_sub_path = text_in(checkpoint, "subPath");
  check_template(job, object_in(spec, "template"));
  if (!spec.contains("adaptive") || !spec["adaptive"].is_object() || !job.invalid.empty()) return;
  const json& utility = spec["adaptive"].contains("leastUtility") ? spec["adaptive"]["leastUtility"] : json();
  read_adaptive(job, annotations, job.min_replicas, job.max_replicas,
                utility.is_number() ? utility.get<double>() : kLeastUtility);
  if (!job.adaptive->sized) return;
  job.replicas = job.adaptive->sized->workers;
  job.range_note.clear();  // `replicas` is only where it began
}

void read_own_status(Job& job, const json& status) {
  Status& out = job.status;
  out.phase = parse_phase(text_in(status, "phase")).value_or(Phase::kPending);
  out.observed_generation = int_in(status, "observedGeneration");
  out.replicas = static_cast<int>(int_in(status, "replicas"));
  out.ready = static_cast<int>(int_in(status, "readyReplicas"));
  out.failures = static_cast<int>(int_in(status, "failures"));
  out.start_time = text_in(status, "startTime");
  out.completion_time = text_in(status, "completionTime");
  out.reason = text_in(status, "reason");
  out.message = text_in(status, "message");
  out.conditions = read_conditions(status);
  for (const Condition& condition : out.conditions) {
    if (condition.type == "Blocked" && condition.is_true) out.block = {condition.reason, condition.message};
  }
}

// A merge patch removes what is null.
json or_null(const std::string& text) { return text.empty() ? json() : json(text); }

// ---- pods ----

// Whether the program can be put under our launcher.
void check_program(Job& job, const json& trainer) {
  const json& command = list_in(trainer, "command");
  const json& args = list_in(trainer, "args");
  const std::string name = text_in(trainer, "name");
  const auto first = [](const json& list) {
    return list.empty() || !list[0].is_string() ? "" : list[0].get<std::string>();
  };
  // torchelastic's images begin with its launcher.
  if (command.empty() && first(args).starts_with('-') && job.kind != Kind::kTorchElasticJob) {
    job.invalid = fmt::format(
        "container '{}' has args without a command: the program of its image cannot be known; write command: "
        "[python, train.py]",
        name);
    return;
  }
  std::vector<std::string> program;
  for (const json* list : {&command, &args}) {
    for (const json& one : *list) {
      if (one.is_string()) program.push_back(one.get<std::string>());
    }
  }
  if (hides_a_launcher(program)) {
    job.invalid = fmt::format(
        "container '{}' starts torchrun in a shell: a launcher inside ours; write its arguments as the command "
        "([torchrun, train.py]), or python in place of torchrun",
        name);
  }
}

PodPhase read_pod_phase(const std::string& text) {
  for (const PodPhase phase : {PodPhase::kPending, PodPhase::kRunning, PodPhase::kSucceeded, PodPhase::kFailed}) {
    if (text == to_string(phase)) return phase;
  }
  return PodPhase::kUnknown;
}

// Reasons of a waiting container that no time heals by itself.
std::string blocking_reason(const std::string& reason) {
  for (const std::string_view pull :
       {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
        "RegistryUnavailable", "SignatureValidationFailed", "ImageVolumeMountFailed"}) {
    if (reason == pull) return "ImagePullFailed";
  }
  for (const std::string_view config :
       {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
        "PreCreateHookError", "PreStartHookError", "PostStartHookError"}) {
    if (reason == config) return "ContainerCannotStart";
  }
  return "";
}

// Never half a character: a status reads back as it was written, or it would be written again in each turn.
std::string message_in(const json& object) {
  std::string out = text_in(object, "message");
  if (out.size() <= kMessageBytesMax) return out;
  size_t end = kMessageBytesMax;
  while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xc0) == 0x80) --end;
  out.resize(end);
  return out;
}

void read_waiting(Pod& pod, const json& status) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const json& container : list_in(status, list)) {
      const json& waiting = object_in(object_in(container, "state"), "waiting");
      const std::string reason = blocking_reason(text_in(waiting, "reason"));
      if (reason.empty() || !pod.waiting.reason.empty()) continue;
      pod.waiting = {reason, fmt::format("pod {}, container {}: {}: {}", pod.name, text_in(container, "name"),
                                         text_in(waiting, "reason"), message_in(waiting))};
    }
  }
}

void later_of(std::optional<WallTime>& time, const std::string& text) {
  const auto at = parse_time(text);
  if (at && (!time || *at > *time)) time = at;
}

// How the container that trains ended is how the pod ended, whatever others beside it do.
void read_trainer(Pod& pod, const json& status, const std::string& name) {
  const json& containers = list_in(status, "containerStatuses");
  const json* trainer = containers.empty() ? nullptr : &containers.front();
  for (const json& container : containers) {
    if (!name.empty() && text_in(container, "name") == name) trainer = &container;
  }
  if (trainer == nullptr) return;
  pod.joined = bool_in(*trainer, "ready");
  pod.restarts = static_cast<int>(std::clamp<int64_t>(int_in(*trainer, "restartCount"), 0, 1'000'000));
  const json& state = object_in(*trainer, "state");
  const json& ended = object_in(state, "terminated");
  pod.started = parse_time(text_in(ended.empty() ? object_in(state, "running") : ended, "startedAt"));
  if (ended.empty()) return;
  pod.exit_code = static_cast<int>(int_in(ended, "exitCode"));
  if (pod.reason.empty()) pod.reason = text_in(ended, "reason");
  if (pod.message.empty()) pod.message = message_in(ended);
  later_of(pod.finished, text_in(ended, "finishedAt"));
}

void read_failed_init(Pod& pod, const json& status) {
  // A sidecar is an init container too: one that crashes beside a trainer is started again, and ends nothing.
  if (pod.phase != PodPhase::kFailed || pod.started) return;
  for (const json& container : list_in(status, "initContainerStatuses")) {
    const json& ended = object_in(object_in(container, "state"), "terminated");
    const int code = static_cast<int>(int_in(ended, "exitCode"));
    if (code == 0 || pod.exit_code) continue;
    pod.exit_code = code;
    if (pod.reason.empty()) pod.reason = fmt::format("init container {}", text_in(container, "name"));
    if (pod.message.empty()) pod.message = message_in(ended);
    later_of(pod.finished, text_in(ended, "finishedAt"));
  }
}

// A pod that no container ever ran in has no time of an end: the latest that is told of it must do.
void settle_end(Pod& pod, const json& document) {
  if (!pod.ended()) {
    pod.finished.reset();
    return;
  }
  pod.ready = pod.joined = false;
  if (pod.finished) return;
  const json& status = object_in(document, "status");
  for (const json& condition : list_in(status, "conditions")) {
    const std::string type = text_in(condition, "type");
    if (type == "Ready" || type == "DisruptionTarget") later_of(pod.finished, text_in(condition, "lastTransitionTime"));
  }
  later_of(pod.finished, text_in(status, "startTime"));
  later_of(pod.finished, text_in(object_in(document, "metadata"), "creationTimestamp"));
}

// A sidecar that runs on, or one that fails, does not hide that the trainer is done.
void judge_by_trainer(Pod& pod, const json& spec, bool told_why) {
  if (!pod.exit_code) return;
  const std::string restarts = text_in(spec, "restartPolicy");
  const bool final_end = restarts == "Never" || (restarts == "OnFailure" && *pod.exit_code == 0);
  if (pod.phase == PodPhase::kRunning && final_end) {
    pod.lingers = true;
    pod.phase = *pod.exit_code == 0 ? PodPhase::kSucceeded : PodPhase::kFailed;
  }
  if (pod.phase == PodPhase::kFailed && *pod.exit_code == 0 && !told_why && !pod.disrupted)
    pod.phase = PodPhase::kSucceeded;
}

void read_pod_conditions(Pod& pod, const json& status) {
  for (const json& condition : list_in(status, "conditions")) {
    const std::string type = text_in(condition, "type");
    const bool is_true = text_in(condition, "status") == "True";
    if (type == "Ready") pod.ready = is_true;
    if (type == "DisruptionTarget") pod.disrupted = is_true;
    // "SchedulingGated": somebody (Kueue, say) admits the pod first; from 1.26 on.
    const std::string why = text_in(condition, "reason");
    const bool waits = why == "Unschedulable" || why == "SchedulingGated";
    if (type == "PodScheduled" && !is_true && waits && pod.waiting.reason.empty()) {
      pod.waiting = {why, fmt::format("pod {}: {}", pod.name, message_in(condition))};
    }
  }
}

uint64_t hash_of_template(const Job& job) {
  RunningHash out;
  for (const std::string* text : {&job.pod_template, &job.container, &job.etcd, &job.priority_class,
                                  &job.checkpoint_claim, &job.checkpoint_path, &job.checkpoint_sub_path})
    out.add(*text);
  return out.value();
}

void read_kind(Job& job, const json& document) {
  const json& status = object_in(document, "status");
  switch (job.kind) {
    case Kind::kElasticJob:
      read_own_spec(job, object_in(document, "spec"), object_in(object_in(document, "metadata"), "annotations"));
      read_own_status(job, status);
      break;
    case Kind::kTorchElasticJob:
      read_torch_elastic_job(job, document);
      break;
    case Kind::kAdaptdlJob:
      read_adaptdl_job(job, document);
      break;
    case Kind::kPytorchJob:
      read_pytorch_job(job, document);
      break;
  }
}

}  // namespace

void read_metadata(Job& job, const json& document) {
  const json& metadata = object_in(document, "metadata");
  job.name = {text_in(metadata, "namespace"), text_in(metadata, "name")};
  job.uid = text_in(metadata, "uid");
  job.resource_version = text_in(metadata, "resourceVersion");
  job.seen_version = kubernetes::version_number(job.resource_version);
  job.generation = int_in(metadata, "generation");
  job.status_text = object_in(document, "status").dump();
  job.deleting = !text_in(metadata, "deletionTimestamp").empty();
  if (job.kind != Kind::kElasticJob) read_status_writers(job, document);
}

void settle_replicas(Job& job, std::optional<int64_t> replicas, std::optional<int64_t> least,
                     std::optional<int64_t> most) {
  const int64_t wanted = replicas.value_or(most.value_or(least.value_or(1)));
  const int64_t low = least.value_or(std::min(wanted, most.value_or(wanted)));
  const int64_t high = most.value_or(std::max(wanted, low));
  if (low < 1 || high < low || high > kReplicasMax) {
    job.invalid = fmt::format("minReplicas {} and maxReplicas {} are no range from 1 to {}", low, high, kReplicasMax);
    return;
  }
  job.min_replicas = static_cast<int>(low);
  job.max_replicas = static_cast<int>(high);
  job.replicas = static_cast<int>(std::clamp(wanted, low, high));
  if (job.replicas != wanted) {
    job.range_note = fmt::format("{} workers are asked for; {} run, for minReplicas is {} and maxReplicas is {}",
                                 wanted, job.replicas, low, high);
  }
}

void check_template(Job& job, const json& pod_template) {
  job.pod_template = pod_template.dump();
  const json& containers = list_in(object_in(pod_template, "spec"), "containers");
  if (containers.empty()) {
    job.invalid = "the pod template has no container";
    return;
  }
  const json* trainer = &containers.front();
  for (const json& container : containers) {
    if (!job.container.empty() && text_in(container, "name") == job.container) trainer = &container;
  }
  if (!job.container.empty() && text_in(*trainer, "name") != job.container) {
    job.invalid = fmt::format("no container of the pod template is named '{}'", job.container);
    return;
  }
  job.ready_means_joined = !trainer->contains("readinessProbe");
  const bool has_program = !list_in(*trainer, "command").empty() || !list_in(*trainer, "args").empty();
  if (job.launch == Launch::kRubato && !has_program) {
    job.invalid = fmt::format(
        "container '{}' has no command: the program of its image cannot be known; write "
        "command: [python, train.py]",
        text_in(*trainer, "name"));
  }
  if (job.launch == Launch::kRubato && job.invalid.empty()) check_program(job, *trainer);
}

Job read_job(Kind kind, const json& document) {
  Job job;
  job.kind = kind;
  read_metadata(job, document);
  try {
    read_kind(job, document);
  } catch (const json::exception& error) {
    // Their schemas let through what no pod can be made of.
    job.invalid = fmt::format("the manifest is malformed: {}", error.what());
  }
  job.template_hash = hash_of_template(job);
  return job;
}

Pod read_pod(const json& document) {
  Pod pod;
  const json& metadata = object_in(document, "metadata");
  const json& labels = object_in(metadata, "labels");
  const json& annotations = object_in(metadata, "annotations");
  pod.name = text_in(metadata, "name");
  pod.uid = text_in(metadata, "uid");
  const std::string whole_name = text_in(annotations, kAnnotationJob);
  pod.job = {text_in(metadata, "namespace"), whole_name.empty() ? text_in(labels, kLabelJob) : whole_name};
  for (const json& owner : list_in(metadata, "ownerReferences")) {
    if (bool_in(owner, "controller")) pod.owner_uid = text_in(owner, "uid");
  }
  const std::string index = text_in(labels, kLabelIndex);
  pod.index = index.empty() ? -1 : static_cast<int>(number_of(index));
  pod.attempt = static_cast<int>(number_of(text_in(annotations, kAnnotationAttempt)));
  pod.group = static_cast<int>(number_of(text_in(annotations, kAnnotationGroup)));
  pod.group_size = static_cast<int>(number_of(text_in(annotations, kAnnotationSize)));
  pod.is_host = text_in(annotations, kAnnotationHost) == "true";
  const std::string made_from = text_in(annotations, kAnnotationTemplate);
  std::from_chars(made_from.data(), made_from.data() + made_from.size(), pod.template_hash, 16);
  pod.deleting = !text_in(metadata, "deletionTimestamp").empty();
  pod.created = parse_time(text_in(metadata, "creationTimestamp"));
  pod.delete_by = parse_time(text_in(metadata, "deletionTimestamp"));
  const json& finalizers = list_in(metadata, "finalizers");
  if (pod.deleting && !finalizers.empty() && finalizers[0].is_string()) pod.held_by = finalizers[0].get<std::string>();
  const std::string range = text_in(annotations, kAnnotationRange);
  if (const size_t colon = range.find(':'); colon != std::string::npos) {
    pod.group_min = static_cast<int>(number_of(range.substr(0, colon)));
    pod.group_max = static_cast<int>(number_of(range.substr(colon + 1)));
  }
  pod.seen_version = kubernetes::version_number(text_in(metadata, "resourceVersion"));
  const json& status = object_in(document, "status");
  pod.phase = read_pod_phase(text_in(status, "phase"));
  pod.reason = text_in(status, "reason");
  pod.message = message_in(status);
  const bool told_why = !pod.reason.empty();
  read_waiting(pod, status);
  read_trainer(pod, status, text_in(annotations, kAnnotationContainer));
  read_failed_init(pod, status);
  read_pod_conditions(pod, status);
  const json& spec = object_in(document, "spec");
  pod.node = text_in(spec, "nodeName");
  pod.address = text_in(status, "podIP");
  pod.tolerated = tolerated_notices(spec);
  judge_by_trainer(pod, spec, told_why);
  settle_end(pod, document);
  return pod;
}

json conditions_document(const Status& status) {
  json out = json::array();
  for (const Condition& condition : status.conditions) {
    json one = {{"type", condition.type},
                {"status", condition.is_true ? "True" : "False"},
                {"reason", condition.reason},
                {"lastTransitionTime", condition.since}};
    // Old servers, built by a newer Go, take an empty text for null.
    if (!condition.message.empty()) one["message"] = condition.message;
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<Condition> read_conditions(const json& status) {
  std::vector<Condition> out;
  for (const json& one : list_in(status, "conditions")) {
    out.push_back({text_in(one, "type"), text_in(one, "status") == "True", text_in(one, "reason"),
                   text_in(one, "message"), text_in(one, "lastTransitionTime")});
  }
  return out;
}

std::string selector_of(const Job& job) {
  return fmt::format("{}={},{}={}", kLabelJob, label_value(job.name.name), kLabelKind, to_string(job.kind));
}

json own_status(const Job& job, const Status& status) {
  return {{"status",
           {{"phase", to_string(status.phase)},
            {"observedGeneration", status.observed_generation},
            {"replicas", status.replicas},
            {"wanted", job.replicas},
            {"readyReplicas", status.ready},
            {"failures", status.failures},
            {"selector", selector_of(job)},
            {"startTime", or_null(status.start_time)},
            {"completionTime", or_null(status.completion_time)},
            {"reason", or_null(status.reason)},
            {"message", or_null(status.message)},
            {"conditions", conditions_document(status)}}}};
}

json status_patch(const Job& job, const Status& status) {
  json out = job.kind == Kind::kElasticJob ? own_status(job, status) : adopted_status_patch(job, status);
  json after = json::parse(job.status_text);
  const json before = after;
  after.merge_patch(out["status"]);
  return after == before ? json() : out;
}

json metadata_patch(const Job& job, const Status& status) {
  if (job.kind == Kind::kElasticJob || job.status.failures == status.failures) return json();
  return {{"metadata", {{"annotations", {{kAnnotationFailures, std::to_string(status.failures)}}}}}};
}

}  // namespace rubato::elasticjob

#include "elasticjob/adopt.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "elasticjob/manifest.h"
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

// Without a backoffLimit their controllers try for ever.
constexpr int kForEver = 1'000'000;
constexpr int kPytorchPort = 23456;  // of Kubeflow's pytorchjob-port
constexpr int kAdaptdlPort = 47000;  // where AdaptDL's controller begins to count
constexpr int kAdaptdlPorts = 10'000;
// AdaptDL's own examples name no maxReplicas: it has no bound but the cluster's. Ours keeps a mistaken profile cheap.
constexpr int kAdaptdlMost = 64;
constexpr const char* kAdaptdlMemory = "adaptdl-shm";
constexpr const char* kTrainingOperator = "kubeflow.org/training-operator";  // of runPolicy.managedBy
constexpr int kElasticPort = 10291;                                          // of torchelastic's elasticjob-port

std::optional<int64_t> maybe(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

void read_run_policy(Job& job, const json& policy) {
  const std::string clean = text_in(policy, "cleanPodPolicy");
  job.clean_pods = clean == "None" ? CleanPods::kNone : clean == "All" ? CleanPods::kAll : CleanPods::kRunning;
  job.ttl_s = maybe(policy, "ttlSecondsAfterFinished");
  job.active_deadline_s = maybe(policy, "activeDeadlineSeconds");
  job.backoff_limit = static_cast<int>(std::clamp<int64_t>(int_in(policy, "backoffLimit", kForEver), 0, kForEver));
  job.suspended = bool_in(policy, "suspend");
}

void read_restart_policy(Job& job, const std::string& policy) {
  if (policy == "Never") job.backoff_limit = 0;
  job.ends_by_exit_code = policy == "ExitCode";
}

void read_adopted_status(Job& job, const json& document) {
  const json& status = object_in(document, "status");
  Status& out = job.status;
  out.conditions = read_conditions(status);
  // Their status has no observedGeneration: one with conditions has been seen.
  if (!out.conditions.empty()) out.observed_generation = job.generation;
  out.start_time = text_in(status, "startTime");
  out.completion_time = text_in(status, "completionTime");
  const std::string failures = text_in(object_in(object_in(document, "metadata"), "annotations"), kAnnotationFailures);
  out.failures = failures.empty() ? 0 : std::atoi(failures.c_str());
  for (const Condition& condition : out.conditions) {
    if (!condition.is_true) continue;
    const std::optional<Phase> phase = condition.type == "Created" ? Phase::kPending : parse_phase(condition.type);
    if (!phase) continue;
    out.phase = *phase;
    out.reason = condition.reason;
    out.message = condition.message;
    if (is_final(*phase)) break;
  }
}

void read_launcher(Job& job, const json& document) {
  const json& annotations = object_in(object_in(document, "metadata"), "annotations");
  job.launch = text_in(annotations, kAnnotationLauncher) == "rubato" ? Launch::kRubato : Launch::kAsIs;
}

json& trainer_of(json& pod_template, const std::string& name) {
  json& containers = pod_template["spec"]["containers"];
  for (json& container : containers) {
    if (text_in(container, "name") == name) return container;
  }
  return containers.front();
}

void add_port(json& container, const char* name, int port) {
  for (const json& one : list_in(container, "ports")) {
    if (text_in(one, "name") == name) return;
  }
  container["ports"].push_back({{"name", name}, {"containerPort", port}});
}

int port_named(const json& container, const char* name, int absent) {
  for (const json& one : list_in(container, "ports")) {
    if (text_in(one, "name") == name) return static_cast<int>(int_in(one, "containerPort", absent));
  }
  return absent;
}

void build_torch_elastic(const Job& job, json& pod_template) {
  json& container = trainer_of(pod_template, "elasticjob-worker");
  add_port(container, "elasticjob-port", kElasticPort);
  json args = {"--rdzv_backend=etcd", "--rdzv_endpoint=" + job.etcd, "--rdzv_id=" + job.name.name,
               fmt::format("--nnodes={}:{}", job.min_replicas, job.max_replicas)};
  for (const json& one : list_in(container, "args")) args.push_back(one);
  container["args"] = std::move(args);
}

// Data loaders of PyTorch need more than the 64 MB that a container has.
void add_shared_memory(json& container) {
  for (const json& one : list_in(container, "volumeMounts")) {
    if (text_in(one, "mountPath") == "/dev/shm") return;
  }
  container["volumeMounts"].push_back({{"name", kAdaptdlMemory}, {"mountPath", "/dev/shm"}});
}

// Without ADAPTDL_SUPERVISOR_URL (pod_manifest.cc) a worker takes its master from ADAPTDL_MASTER_ADDR.
void build_adaptdl(const Job& job, json& pod_template, const MakePod& order) {
  for (json& container : pod_template["spec"]["containers"]) {
    add_env(container, "ADAPTDL_JOB_ID", to_string(job.name));
    add_env(container, "ADAPTDL_MASTER_ADDR", worker_name(job, 0));
    add_env(container, "ADAPTDL_MASTER_PORT", std::to_string(kAdaptdlPort + order.group % kAdaptdlPorts));
    add_env(container, "ADAPTDL_REPLICA_RANK", std::to_string(order.index));
    add_env(container, "ADAPTDL_NUM_REPLICAS", std::to_string(job.replicas));
    add_env(container, "ADAPTDL_NUM_NODES", std::to_string(job.replicas));
    add_env(container, "ADAPTDL_NUM_RESTARTS", std::to_string(order.group));
    add_env(container, "ADAPTDL_SCHED_VERSION", "0.2.11");
    add_shared_memory(container);
  }
  pod_template["spec"]["volumes"].push_back({{"name", kAdaptdlMemory}, {"emptyDir", {{"medium", "Memory"}}}});
  json& metadata = pod_template["metadata"];
  metadata["labels"].update({{"adaptdl", "true"}, {"adaptdl/job", label_value(job.name.name)}});
  metadata["annotations"].update({{"adaptdl/group", std::to_string(order.group)},
                                  {"adaptdl/rank", std::to_string(order.index)},
                                  {"adaptdl/replicas", std::to_string(job.replicas)}});
  pod_template["spec"]["restartPolicy"] = "Never";
}

// In the policy; of late in the specification itself.
std::optional<std::string> processes_of(const json& spec, const json& policy) {
  const json* given = policy.contains("nProcPerNode") ? &policy["nProcPerNode"]
                      : spec.contains("nprocPerNode") ? &spec["nprocPerNode"]
                                                      : nullptr;
  if (given == nullptr) return std::nullopt;
  return given->is_string() ? given->get<std::string>() : given->dump();
}

void build_pytorch(const Job& job, json& pod_template, const json& spec) {
  const json& policy = object_in(spec, "elasticPolicy");
  json& container = trainer_of(pod_template, "pytorch");
  add_port(container, "pytorchjob-port", kPytorchPort);
  const std::string backend = text_in(policy, "rdzvBackend").empty() ? "c10d" : text_in(policy, "rdzvBackend");
  const std::string host = text_in(policy, "rdzvHost").empty() ? worker_name(job, 0) : text_in(policy, "rdzvHost");
  const auto port = int_in(policy, "rdzvPort", port_named(container, "pytorchjob-port", kPytorchPort));
  const std::string id = text_in(policy, "rdzvId").empty() ? job.name.name : text_in(policy, "rdzvId");
  add_env(container, "PYTHONUNBUFFERED", "1");
  add_env(container, "PET_RDZV_BACKEND", backend);
  add_env(container, "PET_RDZV_ENDPOINT", fmt::format("{}:{}", host, port));
  add_env(container, "PET_RDZV_ID", id);
  add_env(container, "PET_NNODES", fmt::format("{}:{}", job.min_replicas, job.max_replicas));
  if (processes_of(spec, policy)) add_env(container, "PET_NPROC_PER_NODE", job.nproc);
  if (policy.contains("maxRestarts")) add_env(container, "PET_MAX_RESTARTS", std::to_string(job.max_restarts));
  if (bool_in(policy, "standalone")) add_env(container, "PET_STANDALONE", "");
  std::string conf;
  for (const json& entry : list_in(policy, "rdzvConf")) {
    conf += (conf.empty() ? "" : ",") + text_in(entry, "key") + "=" + text_in(entry, "value");
  }
  if (!conf.empty()) add_env(container, "PET_RDZV_CONF", conf);
}

}  // namespace

void add_env(json& container, const std::string& name, const std::string& value) {
  for (const json& one : list_in(container, "env")) {
    if (text_in(one, "name") == name) return;
  }
  container["env"].push_back({{"name", name}, {"value", value}});
}

void read_torch_elastic_job(Job& job, const json& document) {
  const json& spec = object_in(document, "spec");
  const json& worker = object_in(object_in(spec, "replicaSpecs"), "Worker");
  read_launcher(job, document);
  const json& nested = object_in(spec, "runPolicy");
  read_run_policy(job, nested.empty() ? spec : nested);  // inline in their Go type
  read_restart_policy(job, text_in(worker, "restartPolicy"));
  settle_replicas(job, maybe(worker, "replicas"), maybe(spec, "minReplicas"), maybe(spec, "maxReplicas"));
  job.container = "elasticjob-worker";
  job.etcd = text_in(spec, "rdzvEndpoint");
  if (job.etcd.empty() && job.launch == Launch::kAsIs) {
    job.invalid =
        "spec.rdzvEndpoint is empty: name the etcd server, or annotate the job with rubato.dev/launcher: rubato";
    return;
  }
  // With our launcher the group needs no etcd.
  if (job.launch == Launch::kRubato) job.etcd.clear();
  json pod_template = object_in(worker, "template");
  const std::string policy = text_in(worker, "restartPolicy");
  pod_template["spec"]["restartPolicy"] =
      job.launch == Launch::kRubato || policy.empty() || policy == "ExitCode" ? "Never" : policy;
  job.container = text_in(trainer_of(pod_template, "elasticjob-worker"), "name");
  check_template(job, pod_template);
  read_adopted_status(job, document);
}

void read_pytorch_job(Job& job, const json& document) {
  const json& spec = object_in(document, "spec");
  const json& policy = object_in(spec, "elasticPolicy");
  // A job that says who manages it is nobody else's: Kueue's, say, which runs it on another cluster.
  const std::string manager = text_in(object_in(spec, "runPolicy"), "managedBy");
  if (policy.empty() || (!manager.empty() && manager != kTrainingOperator)) {
    job.ignored = true;
    return;
  }
  const json& replicas = object_in(spec, "pytorchReplicaSpecs");
  const json& worker = object_in(replicas, "Worker");
  read_launcher(job, document);
  // Kubeflow's own defaults.
  read_run_policy(job, object_in(spec, "runPolicy"));
  if (text_in(object_in(spec, "runPolicy"), "cleanPodPolicy").empty()) job.clean_pods = CleanPods::kNone;
  read_restart_policy(job, text_in(worker, "restartPolicy"));
  std::optional<int64_t> least = maybe(policy, "minReplicas"), most = maybe(policy, "maxReplicas");
  if (!least) least = most;
  if (!most) most = least;
  settle_replicas(job, maybe(worker, "replicas"), least, most);
  if (const std::optional<std::string> nproc = processes_of(spec, policy)) job.nproc = *nproc;
  job.max_restarts = static_cast<int>(std::clamp<int64_t>(int_in(policy, "maxRestarts", 0), 0, kForEver));
  read_adopted_status(job, document);
  if (replicas.contains("Master")) {
    job.invalid = "an elastic PyTorchJob with a Master is not supported: make all of them Workers";
    return;
  }
  json pod_template = object_in(worker, "template");
  if (list_in(object_in(pod_template, "spec"), "containers").empty()) {
    job.invalid = "spec.pytorchReplicaSpecs.Worker.template has no container";
    return;
  }
  const std::string restart = text_in(worker, "restartPolicy").empty() ? "OnFailure" : text_in(worker, "restartPolicy");
  pod_template["spec"]["restartPolicy"] = job.launch == Launch::kRubato || restart == "ExitCode" ? "Never" : restart;
  job.container = text_in(trainer_of(pod_template, "pytorch"), "name");
  if (job.launch == Launch::kAsIs) build_pytorch(job, pod_template, spec);
  check_template(job, pod_template);
}

void read_adaptdl_job(Job& job, const json& document) {
  const json& spec = object_in(document, "spec");
  const json& metadata = object_in(document, "metadata");
  const json& status = object_in(document, "status");
  job.launch = Launch::kAsIs;
  job.is_rigid = true;
  job.backoff_limit = 0;  // a failed pod fails its job, as AdaptDL has it; evictions and 143 are no failures
  const std::string asked = text_in(object_in(metadata, "annotations"), kAnnotationReplicas);
  const int64_t least = std::max<int64_t>(1, int_in(spec, "minReplicas", 1));
  const int64_t wanted = asked.empty() ? least : std::max(1, std::atoi(asked.c_str()));
  const int64_t most = std::max(int_in(spec, "maxReplicas", std::max<int64_t>(kAdaptdlMost, wanted)), least);
  settle_replicas(job, wanted, 1, most);
  // A size that somebody asked for stays; one that may not be preempted is never made anew for another size.
  if (asked.empty() && bool_in(spec, "preemptible", true) && job.invalid.empty()) {
    read_adaptive(job, object_in(metadata, "annotations"), static_cast<int>(least), job.max_replicas, kLeastUtility);
    if (job.adaptive->sized) job.replicas = job.adaptive->sized->workers;
  }
  job.min_replicas = job.replicas;
  check_template(job, object_in(spec, "template"));
  const std::string phase = text_in(status, "phase");
  job.status.phase = parse_phase(phase).value_or(Phase::kPending);
  if (!phase.empty()) job.status.observed_generation = job.generation;
  job.status.groups = static_cast<int>(int_in(status, "group", -1)) + 1;
  job.status.completion_time = text_in(status, "completionTimestamp");
  const std::string failures = text_in(object_in(metadata, "annotations"), kAnnotationFailures);
  job.status.failures = failures.empty() ? 0 : std::atoi(failures.c_str());
}

json adaptdl_status(const Status& status) {
  const auto phase = [&]() -> const char* {
    switch (status.phase) {
      case Phase::kPending:
        return status.replicas == 0 ? "Pending" : "Starting";
      case Phase::kRunning:
        return "Running";
      case Phase::kRestarting:
      case Phase::kSuspended:
        return "Stopping";
      case Phase::kSucceeded:
        return "Succeeded";
      case Phase::kFailed:
        return "Failed";
    }
    return "Pending";
  };
  return {{"status",
           {{"phase", phase()},
            {"group", status.groups - 1},
            {"replicas", status.replicas},
            {"readyReplicas", status.ready},
            {"completionTimestamp", status.completion_time.empty() ? json() : json(status.completion_time)}}}};
}

namespace {

json labels_of_pytorch_worker(const Job& job) {
  return {{"training.kubeflow.org/job-name", label_value(job.name.name)},
          {"training.kubeflow.org/operator-name", "pytorchjob-controller"},
          {"training.kubeflow.org/replica-type", "worker"}};
}

std::string selector_of_pytorch(const Job& job) {
  std::string out;
  const json labels = labels_of_pytorch_worker(job);
  for (const auto& [name, value] : labels.items()) {
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", name, value.get<std::string>());
  }
  return out;
}

}  // namespace

json build_adopted_template(const Job& job, json pod_template, const MakePod& order) {
  const int index = order.index;
  json labels_of_pytorch = labels_of_pytorch_worker(job);
  labels_of_pytorch["training.kubeflow.org/replica-index"] = std::to_string(index);
  const json labels_of_torch = {{"group-name", "elastic.pytorch.org"},
                                {"job-name", label_value(job.name.name)},
                                {"replica-type", "worker"},
                                {"replica-index", std::to_string(index)}};
  switch (job.kind) {
    case Kind::kElasticJob:
      break;
    case Kind::kTorchElasticJob:
      if (job.launch == Launch::kAsIs) build_torch_elastic(job, pod_template);
      pod_template["metadata"]["labels"].update(labels_of_torch);
      break;
    case Kind::kAdaptdlJob:
      build_adaptdl(job, pod_template, order);
      break;
    case Kind::kPytorchJob:
      pod_template["metadata"]["labels"].update(labels_of_pytorch);
      break;
  }
  return pod_template;
}

// Conditions and counts as Kubeflow's common controller writes them, which torchelastic's is built on.
json adopted_status_patch(const Job& job, const Status& status) {
  if (job.kind == Kind::kAdaptdlJob) return adaptdl_status(status);
  json conditions = json::array();
  const std::string now = status.conditions.empty() ? status.start_time : status.conditions.front().since;
  const auto put = [&](const char* type, bool is_true) {
    std::string since;
    for (const Condition& condition : status.conditions) {
      if (condition.type == type) since = condition.since;
    }
    if (since.empty()) since = status.start_time.empty() ? now : status.start_time;
    conditions.push_back({{"type", type},
                          {"status", is_true ? "True" : "False"},
                          {"reason", status.reason.empty() ? "Created" : status.reason},
                          {"lastTransitionTime", since},
                          {"lastUpdateTime", since}});
    if (!status.message.empty()) conditions.back()["message"] = status.message;
  };
  const bool ended = is_final(status.phase);
  put("Created", true);
  // The last one is what kubectl shows as the job's state: one that does not run yet has no such condition.
  const bool has_run = status.phase == Phase::kRunning || status.phase == Phase::kSuspended || ended;
  if (has_run) put("Running", status.phase == Phase::kRunning);
  if (status.phase == Phase::kRestarting) put("Restarting", true);
  if (status.phase == Phase::kSuspended) put("Suspended", true);
  if (!status.block.reason.empty()) {
    put("Blocked", true);
    conditions.back()["reason"] = status.block.reason;
    conditions.back()["message"] = status.block.message;
  }
  if (status.phase == Phase::kSucceeded) put("Succeeded", true);
  if (status.phase == Phase::kFailed) put("Failed", true);
  json worker = {{"active", ended ? 0 : status.replicas},
                 {"succeeded", status.phase == Phase::kSucceeded ? job.replicas : 0},
                 {"failed", status.phase == Phase::kFailed ? 1 : 0}};
  // What a HorizontalPodAutoscaler finds the pods by, through the scale subresource.
  if (job.kind == Kind::kPytorchJob) worker["selector"] = selector_of_pytorch(job);
  return {{"status",
           {{"conditions", std::move(conditions)},
            {"replicaStatuses", {{"Worker", std::move(worker)}}},
            {"startTime", status.start_time.empty() ? json() : json(status.start_time)},
            {"completionTime", status.completion_time.empty() ? json() : json(status.completion_time)}}}};
}

}  // namespace rubato::elasticjob

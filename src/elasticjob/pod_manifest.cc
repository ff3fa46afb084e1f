#include "elasticjob/pod_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "elasticjob/adopt.h"
#include "elasticjob/launch_command.h"
#include "elasticjob/manifest.h"
#include "kubernetes/client.h"

namespace rubato::elasticjob {

using kubernetes::bool_in;
using kubernetes::int_in;
using kubernetes::list_in;
using kubernetes::object_in;
using kubernetes::text_in;
using nlohmann::json;

namespace {

constexpr std::string_view kBinaryFolder = "/opt/rubato/bin";
constexpr std::string_view kBinaryVolume = "rubato-launcher";
constexpr const char* kDefaultContainer = "kubectl.kubernetes.io/default-container";
constexpr std::string_view kCheckpointVolume = "rubato-checkpoint";
constexpr std::string_view kTemporaryVolume = "rubato-tmp";
constexpr const char* kVolumesThatMayGo = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";

json owner_of(const Job& job) {
  const kubernetes::Resource& resource = resource_of(job.kind);
  return {{"apiVersion", kubernetes::api_version(resource)},
          {"kind", resource.kind},
          {"name", job.name.name},
          {"uid", job.uid},
          {"controller", true},
          {"blockOwnerDeletion", true}};
}

json labels_of(const Job& job) {
  return {{kLabelJob, label_value(job.name.name)}, {kLabelKind, std::string(to_string(job.kind))}};
}

json& trainer_of(json& spec, const Job& job) {
  json& containers = spec["containers"];
  for (json& container : containers) {
    if (!job.container.empty() && text_in(container, "name") == job.container) return container;
  }
  return containers.front();
}

std::vector<std::string> program_of(const Job& job, const json& container) {
  std::vector<std::string> out;
  // The entry point of torchelastic's images is its launcher.
  if (job.kind == Kind::kTorchElasticJob && list_in(container, "command").empty()) out.push_back("torchrun");
  for (const char* key : {"command", "args"}) {
    for (const json& one : list_in(container, key)) {
      if (one.is_string()) out.push_back(one.get<std::string>());
    }
  }
  return out;
}

// What namespaces with the strictest Pod Security level ask of each container.
json copier_security(const json& spec) {
  json out = {{"allowPrivilegeEscalation", false},
              {"readOnlyRootFilesystem", true},
              {"capabilities", {{"drop", {"ALL"}}}},
              {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  // A pod that asks for root by itself would be refused by it.
  if (int_in(object_in(spec, "securityContext"), "runAsUser", 1) != 0) out["runAsNonRoot"] = true;
  return out;
}

// As the container that trains: a pod needs the most of both, so that it costs nothing, and quotas, limit ranges and
// the pod's class of service see what they see without it.
json copier_resources(const json& container) {
  json out = json::object();
  const json& given = object_in(container, "resources");
  for (const char* kind : {"requests", "limits"}) {
    for (const char* name : {"cpu", "memory", "ephemeral-storage"}) {
      const json& amounts = object_in(given, kind);
      if (amounts.contains(name)) out[kind][name] = amounts[name];
    }
  }
  return out;
}

void deliver_binary(json& spec, json& container, const LauncherDelivery& delivery) {
  const json mount = {{"name", kBinaryVolume}, {"mountPath", kBinaryFolder}};
  json copier = {{"name", "rubato-launcher"},
                 {"image", delivery.image},
                 {"command", {"/rubato", "k8s", "copy-binary", fmt::format("{}/rubato", kBinaryFolder)}},
                 {"volumeMounts", json::array({mount})},
                 {"securityContext", copier_security(spec)}};
  json resources = copier_resources(container);
  if (!resources.empty()) copier["resources"] = std::move(resources);
  json& first = spec["initContainers"];
  if (first.is_null()) first = json::array();
  first.insert(first.begin(), std::move(copier));
  spec["volumes"].push_back({{"name", kBinaryVolume}, {"emptyDir", json::object()}});
  container["volumeMounts"].push_back(mount);
}

bool has(const json& list, const char* key, std::string_view value) {
  return std::any_of(list.begin(), list.end(), [&](const json& one) { return text_in(one, key) == value; });
}

// The launcher keeps workers' output in the temporary folder, and Python needs one too.
void give_temporary_folder(json& spec, json& container) {
  if (!bool_in(object_in(container, "securityContext"), "readOnlyRootFilesystem")) return;
  if (has(list_in(container, "env"), "name", "TMPDIR") || has(list_in(container, "volumeMounts"), "mountPath", "/tmp"))
    return;
  spec["volumes"].push_back({{"name", kTemporaryVolume}, {"emptyDir", json::object()}});
  container["volumeMounts"].push_back({{"name", kTemporaryVolume}, {"mountPath", "/tmp"}});
}

// Such pods have their node's name service, which does not know the others; and its ports, of which each is there once.
void share_network_of_node(json& spec, json& container) {
  if (!bool_in(spec, "hostNetwork")) return;
  if (text_in(spec, "dnsPolicy").empty()) spec["dnsPolicy"] = "ClusterFirstWithHostNet";
  container["ports"].push_back(
      {{"name", "rendezvous"}, {"containerPort", kRendezvousPort}, {"hostPort", kRendezvousPort}, {"protocol", "TCP"}});
}

void use_our_launcher(json& spec, const Job& job, const MakePod& order, const LauncherDelivery& delivery) {
  json& container = trainer_of(spec, job);
  LaunchPlace place;
  place.is_host = order.is_host;
  place.pod = worker_name(job, order.index);
  place.binary = delivery.image.empty() ? delivery.path : fmt::format("{}/rubato", kBinaryFolder);
  place.grace_s = static_cast<int>(std::clamp<int64_t>(int_in(spec, "terminationGracePeriodSeconds", 30), 0, 1 << 30));
  container["command"] = launch_command(job, place, program_of(job, container));
  container.erase("args");
  if (!delivery.image.empty()) deliver_binary(spec, container, delivery);
  give_temporary_folder(spec, container);
  share_network_of_node(spec, container);
  spec["restartPolicy"] = "Never";  // the operator replaces pods; the launcher restarts workers
  spec["hostname"] = worker_name(job, order.index);
  spec["subdomain"] = service_name(job);
  // The port is open in a pod that has joined its group: ready means joined.
  const bool can_tell = job.etcd.empty() && !container.contains("readinessProbe");
  if (can_tell) {
    container["readinessProbe"] = {{"tcpSocket", {{"port", kRendezvousPort}}}, {"periodSeconds", 5}};
  }
}

// What we have put into a pod is no data that a node must be kept for; the template may name volumes of its own.
void let_own_volumes_go(json& pod) {
  json& annotations = pod["metadata"]["annotations"];
  std::string names = text_in(annotations, kVolumesThatMayGo);
  for (const json& volume : list_in(pod["spec"], "volumes")) {
    const std::string name = text_in(volume, "name");
    if (name == kBinaryVolume || name == kTemporaryVolume) names += (names.empty() ? "" : ",") + name;
  }
  if (!names.empty()) annotations[kVolumesThatMayGo] = names;
}

void mount_checkpoints(json& spec, const Job& job) {
  json& container = trainer_of(spec, job);
  spec["volumes"].push_back(
      {{"name", kCheckpointVolume}, {"persistentVolumeClaim", {{"claimName", job.checkpoint_claim}}}});
  json mount = {{"name", kCheckpointVolume}, {"mountPath", job.checkpoint_path}};
  if (!job.checkpoint_sub_path.empty()) mount["subPath"] = job.checkpoint_sub_path;
  container["volumeMounts"].push_back(std::move(mount));
  add_env(container, "RUBATO_CHECKPOINT", job.checkpoint_path);
}

json service_for(const Job& job, const std::string& name, json selector) {
  json metadata = {{"name", name},
                   {"namespace", job.name.namespace_name},
                   {"labels", labels_of(job)},
                   {"ownerReferences", json::array({owner_of(job)})}};
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", std::move(metadata)},
          {"spec",
           {{"clusterIP", "None"},
            {"publishNotReadyAddresses", true},
            {"selector", std::move(selector)},
            // For service meshes, which else wait for the client to speak first.
            {"ports", json::array({{{"name", "rendezvous"}, {"port", kRendezvousPort}, {"appProtocol", "tcp"}}})}}}};
}

}  // namespace

json make_pod(const Job& job, const MakePod& order, const LauncherDelivery& delivery,
              const std::string& supervisor_url) {
  json pod = build_adopted_template(job, json::parse(job.pod_template), order);
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  json& metadata = pod["metadata"];
  metadata["name"] = worker_name(job, order.index);
  metadata["namespace"] = job.name.namespace_name;
  metadata["labels"].update(labels_of(job));
  metadata["labels"][kLabelIndex] = std::to_string(order.index);
  if (label_value(job.name.name) != job.name.name) metadata["annotations"][kAnnotationJob] = job.name.name;
  metadata["annotations"][kAnnotationTemplate] = fmt::format("{:016x}", job.template_hash);
  metadata["annotations"][kAnnotationAttempt] = std::to_string(order.attempt);
  metadata["annotations"][kAnnotationHost] = order.is_host ? "true" : "false";
  const std::string trainer = text_in(trainer_of(pod["spec"], job), "name");
  metadata["annotations"][kAnnotationContainer] = trainer;
  // Which one `kubectl logs` and `exec` mean beside sidecars, also those that a mesh adds in front.
  if (!metadata["annotations"].contains(kDefaultContainer)) metadata["annotations"][kDefaultContainer] = trainer;
  if (job.launch == Launch::kRubato) {
    metadata["annotations"][kAnnotationRange] = fmt::format("{}:{}", job.min_replicas, job.max_replicas);
  }
  if (job.is_rigid) {
    metadata["annotations"][kAnnotationGroup] = std::to_string(order.group);
    metadata["annotations"][kAnnotationSize] = std::to_string(job.replicas);
  }
  metadata["ownerReferences"] = json::array({owner_of(job)});
  for (const char* made_by_server : {"uid", "resourceVersion", "creationTimestamp", "generateName"}) {
    metadata.erase(made_by_server);
  }
  if (job.launch == Launch::kRubato) {
    use_our_launcher(pod["spec"], job, order, delivery);
    let_own_volumes_go(pod);
    if (!job.checkpoint_claim.empty()) mount_checkpoints(pod["spec"], job);
    if (!job.priority_class.empty()) pod["spec"]["priorityClassName"] = job.priority_class;
  } else {
    pod["spec"]["hostname"] = worker_name(job, order.index);
  }
  if (!supervisor_url.empty()) {
    for (json& container : pod["spec"]["containers"]) add_env(container, "ADAPTDL_SUPERVISOR_URL", supervisor_url);
  }
  return pod;
}

std::vector<json> make_services(const Job& job) {
  if (job.launch == Launch::kRubato) return {service_for(job, service_name(job), labels_of(job))};
  std::vector<json> out;
  for (int index = job.first_index; index < job.first_index + job.replicas; ++index) {
    json selector = labels_of(job);
    selector[kLabelIndex] = std::to_string(index);
    out.push_back(service_for(job, worker_name(job, index), std::move(selector)));
  }
  return out;
}

json make_event(const Job& job, bool is_warning, const std::string& reason, const std::string& message,
                const std::string& suffix, WallTime now) {
  const kubernetes::Resource& resource = resource_of(job.kind);
  const std::string at = format_time(now).substr(0, 19) + "Z";
  return {
      {"apiVersion", "v1"},
      {"kind", "Event"},
      {"metadata",
       {{"name", fmt::format("{}.{}", label_value(job.name.name), suffix)}, {"namespace", job.name.namespace_name}}},
      {"involvedObject",
       {{"apiVersion", kubernetes::api_version(resource)},
        {"kind", resource.kind},
        {"name", job.name.name},
        {"namespace", job.name.namespace_name},
        {"uid", job.uid},
        {"resourceVersion", job.resource_version}}},
      {"type", is_warning ? "Warning" : "Normal"},
      {"reason", reason},
      {"message", message.substr(0, 1000)},
      {"source", {{"component", "rubato-operator"}}},
      {"firstTimestamp", at},
      {"lastTimestamp", at},
      {"count", 1}};
}

}  // namespace rubato::elasticjob

#include "clouds/kubernetes/pod_launch.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/timestamp.h"
#include "kubernetes/client.h"
#include "model/cluster_spec.h"
#include "provider/pod_address.h"
#include "provider/pod_variables.h"

namespace rubato::clouds {
namespace {

using kubernetes::list_in;
using kubernetes::object_in;
using kubernetes::text_in;
using nlohmann::json;

// Process 1 of the container: it buries what agents leave, and ends when it is asked to. A pod is asked once (deleted,
// evicted, its machine drained), and only this process is: agents hear it from here, so that their workers save.
// A home on a volume need not be there yet.
constexpr const char* kWait = R"sh(mkdir -p "$HOME"
tell() {
  heard=1
  for f in "$HOME"/.rubato/clusters/*/nodes/*/daemon.pid; do
    [ -r "$f" ] && kill "$1" "$(cat "$f")" 2>/dev/null && heard=0
  done
  return $heard
}
trap 'tell -TERM && while tell -0; do sleep 0.2 || sleep 1; done; exit 0' TERM INT
while :; do sleep 86400 & wait $!; done
)sh";
// A container that was started again finds its home as it was: the head goes on, unless it was ended by `down`.
constexpr const char* kResume = R"sh(s=${XDG_STATE_HOME:-}; case $s in /*) ;; *) s=$HOME/.local/state ;; esac
d=$s/rubato/clusters/$RUBATO_CLUSTER
r=$HOME/.rubato/bin/rubato
[ -s "$d/supervisor/wanted" ] && [ -x "$r" ] && "$r" daemon start "$d/supervisor" supervise --dir "$d"
)sh";
constexpr const char* kOwnHome = "rubato-home";  // the volume of a home that goes with its pod
constexpr int kGraceSeconds = 30;
// Of the head's pod: those who pack machines better are not to take it for one that may go.
constexpr const char* kStays[][2] = {{"cluster-autoscaler.kubernetes.io/safe-to-evict", "false"},
                                     {"karpenter.sh/do-not-disrupt", "true"}};
// A registry may be away for a moment; a name that is none stays so.
constexpr auto kImageTimeout = std::chrono::seconds(60);

bool names(const json& list, const char* key, const std::string& value) {
  for (const json& one : list) {
    if (text_in(one, key) == value) return true;
  }
  return false;
}

// Everything that is put on a node is below its home, which a container's own layers need not have room for.
void give_home(json& container, json& spec) {
  json& env = container["env"];
  if (!env.is_array()) env = json::array();
  if (names(env, "name", "HOME")) return;  // theirs: perhaps on a volume that outlives the pod
  env.push_back({{"name", "HOME"}, {"value", kPodHome}});
  json& mounts = container["volumeMounts"];
  if (!mounts.is_array()) mounts = json::array();
  if (names(mounts, "mountPath", kPodHome)) return;
  mounts.push_back({{"name", kOwnHome}, {"mountPath", kPodHome}});
  json& volumes = spec["volumes"];
  if (!volumes.is_array()) volumes = json::array();
  volumes.push_back({{"name", kOwnHome}, {"emptyDir", json::object()}});
}

// A head outlives its container, and its pod too where its home is on a volume: then with another address.
void let_head_resume(json& container, const std::string& cluster) {
  json& env = container["env"];
  if (!names(env, "name", "RUBATO_CLUSTER")) env.push_back({{"name", "RUBATO_CLUSTER"}, {"value", cluster}});
  if (names(env, "name", provider::kHeadAddressVariable)) return;
  env.push_back({{"name", provider::kHeadAddressVariable},
                 {"valueFrom", {{"fieldRef", {{"apiVersion", "v1"}, {"fieldPath", "status.podIP"}}}}}});
}

struct Waiting {
  std::string reason, message;
};
Waiting waiting_of(const json& status) {
  for (const char* kind : {"initContainerStatuses", "containerStatuses"}) {
    for (const json& one : list_in(status, kind)) {
      const json& waiting = object_in(object_in(one, "state"), "waiting");
      if (!waiting.empty()) return {text_in(waiting, "reason"), text_in(waiting, "message")};
    }
  }
  return {};
}

// Of the container that is the node, whatever others beside it do.
bool node_is(const json& status, const char* state) {
  for (const json& one : list_in(status, "containerStatuses")) {
    if (text_in(one, "name") == kNodeContainer) return !object_in(object_in(one, "state"), state).empty();
  }
  return false;
}

std::string why_not_scheduled(const json& status) {
  for (const json& one : list_in(status, "conditions")) {
    const bool refused = text_in(one, "type") == "PodScheduled" && text_in(one, "status") == "False";
    if (refused) return text_in(one, "message");
  }
  return "";
}

std::string end_of(const json& status) {
  std::string out = text_in(status, "reason");
  if (const std::string message = text_in(status, "message"); !message.empty()) out += ": " + message;
  if (!out.empty()) return out;
  for (const json& one : list_in(status, "containerStatuses")) {
    const json& ended = object_in(object_in(one, "state"), "terminated");
    const bool of_node = text_in(one, "name") == kNodeContainer;
    if (ended.empty() || (!out.empty() && !of_node)) continue;
    const std::string why = text_in(ended, "reason");
    const bool tells = !why.empty() && why != "Error" && why != "Completed";
    out = fmt::format("its container ended with {}{}", kubernetes::int_in(ended, "exitCode"),
                      tells ? " (" + why + ")" : "");
  }
  return out;
}

// Since when a node of the cluster can pull its images: before, it had none.
std::optional<WallTime> scheduled_at(const json& status) {
  for (const json& one : list_in(status, "conditions")) {
    const bool placed = text_in(one, "type") == "PodScheduled" && text_in(one, "status") == "True";
    if (placed) return parse_time(text_in(one, "lastTransitionTime"));
  }
  return std::nullopt;
}

void judge_pending(const PodConfig& config, const json& pod, WallTime now, CloudMachine& out) {
  const json& status = object_in(pod, "status");
  const auto created = parse_time(text_in(object_in(pod, "metadata"), "creationTimestamp"));
  const auto age = created ? now - *created : WallTime::duration(0);
  const auto scheduled = scheduled_at(status);
  const auto on_node = scheduled ? now - *scheduled : age;
  const Waiting waiting = waiting_of(status);
  const bool no_image = waiting.reason == "ErrImagePull" || waiting.reason == "ImagePullBackOff";
  const std::string unscheduled = why_not_scheduled(status);
  if (waiting.reason == "InvalidImageName" || (no_image && on_node >= kImageTimeout)) {
    out.state = MachineState::kEnded;
    out.end_reason = fmt::format("{}: {}", waiting.reason, waiting.message);
  } else if (!unscheduled.empty() && age >= config.pending_timeout) {
    out.state = MachineState::kEnded;
    out.lacked_stock = true;
    out.end_reason = "no room for the pod: " + unscheduled;
  }
}

}  // namespace

std::string head_account(const std::string& cluster) { return "rubato-" + cluster + "-head"; }

json pod_manifest(const PodConfig& config, const provider::NodeOrder& sample, const NodeId& node) {
  const json given = pod_of_config(json::parse(sample.type.node_config, nullptr, false));
  json spec = given.value("spec", json::object());
  const bool has_container = spec.is_object() && spec.contains("containers") && spec["containers"].is_array() &&
                             !spec["containers"].empty() && spec["containers"].front().is_object();
  if (!has_container) {
    throw Error(ErrorCode::kUsage, fmt::format("the node_config of '{}' is no pod", sample.type.name), "",
                "write node_config: {spec: {containers: [{image: IMAGE}]}}");
  }
  json& container = spec["containers"].front();
  container["name"] = kNodeContainer;
  if (!container.contains("command")) {
    container["command"] = {"sh", "-c", sample.of_head ? std::string(kResume) + kWait : std::string(kWait)};
    container.erase("args");
  }
  give_home(container, spec);
  if (sample.of_head) {
    let_head_resume(container, config.cluster);
  } else if (!names(container["env"], "name", provider::kHeadNameVariable)) {
    container["env"].push_back(
        {{"name", provider::kHeadNameVariable}, {"value", provider::pod_name(config.cluster, kHeadNode)}});
  }
  spec["restartPolicy"] = sample.of_head ? "Always" : "Never";
  if (!spec.contains("terminationGracePeriodSeconds")) spec["terminationGracePeriodSeconds"] = kGraceSeconds;
  if (sample.of_head) {
    if (!spec.contains("serviceAccountName")) spec["serviceAccountName"] = head_account(config.cluster);
  } else if (!spec.contains("serviceAccountName") && !spec.contains("automountServiceAccountToken")) {
    spec["automountServiceAccountToken"] = false;  // jobs have no business with the API server
  }
  const json metadata_given = given.value("metadata", json::object());
  json metadata = {{"name", provider::pod_name(config.cluster, node.value)}};
  metadata["labels"] = object_in(metadata_given, "labels");
  metadata["annotations"] = object_in(metadata_given, "annotations");
  metadata["labels"][kClusterLabelOfPods] = config.cluster;
  metadata["labels"]["app.kubernetes.io/managed-by"] = "rubato";
  if (sample.of_head) metadata["labels"][kRoleLabel] = kHeadNode;
  if (sample.of_head) {
    for (const auto& [key, value] : kStays) {
      if (!metadata["annotations"].contains(key)) metadata["annotations"][key] = value;
    }
  }
  metadata["annotations"][kNodeLabel] = node.value;
  metadata["annotations"][kLaunchAnnotation] = sample.launch_hash;
  return {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", std::move(metadata)}, {"spec", std::move(spec)}};
}

bool outlives_its_pod(const json& pod) {
  for (const json& volume : list_in(object_in(pod, "spec"), "volumes")) {
    if (text_in(volume, "name") == kOwnHome) return false;
  }
  return true;
}

json head_set(const std::string& namespace_name, json pod) {
  const json labels = pod["metadata"]["labels"];
  const std::string name = pod["metadata"]["name"];
  pod["metadata"].erase("name");
  json match = {{kClusterLabelOfPods, labels[kClusterLabelOfPods]}, {kRoleLabel, labels[kRoleLabel]}};
  return {{"apiVersion", "apps/v1"},
          {"kind", "StatefulSet"},
          {"metadata", {{"name", name}, {"namespace", namespace_name}, {"labels", labels}}},
          {"spec",
           {{"replicas", 1},
            {"serviceName", name},
            {"selector", {{"matchLabels", std::move(match)}}},
            // A head that runs is never ended for the sake of another description.
            {"updateStrategy", {{"type", "OnDelete"}}},
            {"template", {{"metadata", std::move(pod["metadata"])}, {"spec", std::move(pod["spec"])}}}}}};
}

json head_service(const std::string& namespace_name, const std::string& cluster) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata",
           {{"name", provider::pod_name(cluster, kHeadNode)},
            {"namespace", namespace_name},
            {"labels", {{kClusterLabelOfPods, cluster}, {"app.kubernetes.io/managed-by", "rubato"}}}}},
          {"spec",
           {{"clusterIP", "None"},
            {"publishNotReadyAddresses", true},
            {"selector", {{kClusterLabelOfPods, cluster}, {kRoleLabel, kHeadNode}}},
            // A headless service needs none; some clusters publish only those that have one.
            {"ports", json::array({{{"name", "head"}, {"port", 6380}, {"protocol", "TCP"}}})}}}};
}

CloudMachine machine_of_pod(const PodConfig& config, const json& pod, const std::string& namespace_name,
                            WallTime now) {
  const json& metadata = object_in(pod, "metadata");
  const json& status = object_in(pod, "status");
  const json& annotations = object_in(metadata, "annotations");
  CloudMachine out;
  out.id = pod_id(pod);
  if (const std::string node = text_in(annotations, kNodeLabel); !node.empty()) out.node = NodeId{node};
  out.launch_hash = text_in(annotations, kLaunchAnnotation);
  out.zone = text_in(object_in(pod, "spec"), "nodeName");
  const std::string phase = text_in(status, "phase");
  if (phase == "Succeeded" || phase == "Failed") {
    out.state = MachineState::kEnded;
    out.end_reason = end_of(status);
  } else if (!text_in(metadata, "deletionTimestamp").empty()) {
    out.state = MachineState::kEnding;
  } else if (phase == "Running" && node_is(status, "running")) {
    out.state = MachineState::kRunning;
    out.private_address = text_in(status, "podIP");
    if (out.private_address.empty()) return out;
    provider::PodAddress address;
    address.namespace_name = namespace_name;
    address.pod = text_in(metadata, "name");
    address.container = kNodeContainer;
    address.context = config.context;
    out.public_address = to_string(address);
  } else if (node_is(status, "terminated") && text_in(object_in(pod, "spec"), "restartPolicy") != "Always") {
    out.state = MachineState::kEnded;
    out.end_reason = end_of(status);
  } else {
    judge_pending(config, pod, now, out);
  }
  return out;
}

std::string pod_id(const json& pod) {
  const json& metadata = object_in(pod, "metadata");
  return text_in(metadata, "name") + "." + text_in(metadata, "uid");
}

PodName pod_of_id(const std::string& id) {
  const size_t dot = id.rfind('.');
  return dot == std::string::npos ? PodName{id, ""} : PodName{id.substr(0, dot), id.substr(dot + 1)};
}

}  // namespace rubato::clouds

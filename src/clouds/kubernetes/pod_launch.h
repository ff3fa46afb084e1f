// From a node's order to its pod, and from pods to what is known of machines. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "clouds/common/machine_cloud.h"
#include "clouds/kubernetes/pod_config.h"
#include "core/time.h"

namespace rubato::clouds {

inline constexpr const char* kClusterLabelOfPods = "rubato.dev/cluster";
inline constexpr const char* kRoleLabel = "rubato.dev/role";  // "head": of the pod that its service leads to
inline constexpr const char* kNodeLabel = "rubato.dev/node";
inline constexpr const char* kLaunchAnnotation = "rubato.dev/launch-config";
inline constexpr const char* kNodeContainer = "node";  // what the first container of each node is called
inline constexpr const char* kPodHome = "/home/rubato";

// The account that the head acts with.
std::string head_account(const std::string& cluster);

// The file's pod, with a name, labels and a home folder of ours; its first container waits for what is put there.
// Throws kUsage when the node_config is no pod.
nlohmann::json pod_manifest(const PodConfig& config, const provider::NodeOrder& sample, const NodeId& node);

// Whether the head's home outlives its pod: then another pod may go on in its place. Of a pod_manifest().
bool outlives_its_pod(const nlohmann::json& pod);
// Who makes the head's pod again when it is gone: a StatefulSet of the head's name around the pod.
nlohmann::json head_set(const std::string& namespace_name, nlohmann::json pod);
// The name by which workers find the head wherever its pod is: a headless service.
nlohmann::json head_service(const std::string& namespace_name, const std::string& cluster);

// What a pod is now. One that cannot start for longer than it may is said to have ended, with the reason.
CloudMachine machine_of_pod(const PodConfig& config, const nlohmann::json& pod, const std::string& namespace_name,
                            WallTime now);

// A machine's id: the pod's name and uid.
std::string pod_id(const nlohmann::json& pod);
struct PodName {
  std::string name, uid;
};
PodName pod_of_id(const std::string& id);

}  // namespace rubato::clouds

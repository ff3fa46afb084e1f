#include "clouds/kubernetes/pod_launch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "clouds/kubernetes/pod_surroundings.h"
#include "core/timestamp.h"
#include "model/cluster_file.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;

const WallTime kNow = *parse_time("2026-11-18T12:00:00Z");

PodConfig config() {
  PodConfig out;
  out.cluster = "lab";
  out.namespace_name = "ml";
  out.context = "prod";
  return out;
}

provider::NodeOrder order(const std::string& node_config, bool of_head = false) {
  provider::NodeOrder out;
  out.type.name = "worker";
  out.type.node_config = node_config;
  out.launch_hash = "h1";
  out.of_head = of_head;
  return out;
}

constexpr const char* kPod = R"({"metadata": {"generateName": "x-", "labels": {"team": "a"}},
  "spec": {"nodeSelector": {"gpu": "yes"},
           "containers": [{"name": "ray-node", "image": "torch:2"}, {"name": "log"}]}})";

TEST(PodManifest, IsTheFilesPodWithOurName) {
  const json pod = pod_manifest(config(), order(kPod), NodeId{"worker-3"});
  EXPECT_EQ(pod["metadata"]["name"], "lab-worker-3");
  EXPECT_FALSE(pod["metadata"].contains("generateName"));
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(pod["metadata"]["labels"][kClusterLabelOfPods], "lab");
  EXPECT_EQ(pod["spec"]["nodeSelector"]["gpu"], "yes");
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
  EXPECT_EQ(pod["spec"]["automountServiceAccountToken"], false);
  const json& container = pod["spec"]["containers"][0];
  EXPECT_EQ(container["name"], kNodeContainer);
  EXPECT_EQ(container["image"], "torch:2");
  EXPECT_EQ(container["command"][0], "sh");
  EXPECT_EQ(container["env"][0], (json{{"name", "HOME"}, {"value", kPodHome}}));
  EXPECT_EQ(container["volumeMounts"][0]["mountPath"], kPodHome);
  EXPECT_EQ(pod["spec"]["containers"][1]["name"], "log");
}

TEST(PodManifest, KeepsWhatTheFileSays) {
  const json pod = pod_manifest(config(), order(R"({"pod": {"spec": {"serviceAccountName": "mine", "containers": [
    {"image": "i", "command": ["wait"], "args": ["x"], "env": [{"name": "HOME", "value": "/data"}]}]}}})", true),
                                NodeId{"head"});
  EXPECT_EQ(pod["spec"]["serviceAccountName"], "mine");
  EXPECT_EQ(pod["spec"]["containers"][0]["command"], json::array({"wait"}));
  EXPECT_EQ(pod["spec"]["containers"][0]["args"], json::array({"x"}));
  EXPECT_EQ(pod["spec"]["containers"][0]["env"][0], (json{{"name", "HOME"}, {"value", "/data"}}));
  EXPECT_FALSE(pod["spec"].contains("volumes"));
  EXPECT_EQ(pod_manifest(config(), order(kPod, true), NodeId{"head"})["spec"]["serviceAccountName"], "rubato-lab-head");
}

// As to kubectl and to Ray; our YAML leaves `0400` text.
TEST(PodManifest, ModesOfItsVolumesAreOctal) {
  const json pod = pod_manifest(config(), order(R"({"spec": {"containers": [{"image": "i"}], "volumes": [
    {"name": "ssh", "secret": {"secretName": "ssh", "defaultMode": "0400"}}]}})"),
                                NodeId{"worker-1"});
  EXPECT_EQ(pod["spec"]["volumes"][0]["secret"]["defaultMode"], 0400);
}

// A head whose container was killed, or whose machine was started again, must not wait for a person.
TEST(PodManifest, OfTheHeadGoesOnByItself) {
  const json pod = pod_manifest(config(), order(kPod, true), NodeId{"head"});
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Always");
  EXPECT_EQ(pod["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"], "true");
  EXPECT_EQ(pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"], "false");
  const std::string script = pod["spec"]["containers"][0]["command"][2];
  EXPECT_NE(script.find("supervise --dir"), std::string::npos);
  const json address = {{"name", "RUBATO_HEAD_ADDRESS"},
                        {"valueFrom", {{"fieldRef", {{"apiVersion", "v1"}, {"fieldPath", "status.podIP"}}}}}};
  const json& env = pod["spec"]["containers"][0]["env"];
  EXPECT_NE(std::find(env.begin(), env.end(), address), env.end()) << env;
  const json worker = pod_manifest(config(), order(kPod), NodeId{"worker-1"});
  EXPECT_EQ(worker["spec"]["containers"][0]["command"][2].get<std::string>().find("supervise"), std::string::npos);
  EXPECT_FALSE(worker["metadata"]["annotations"].contains("karpenter.sh/do-not-disrupt"));
}

TEST(PodManifest, OfAHeadWhoseHomeIsOnAVolumeIsMadeAgain) {
  EXPECT_FALSE(outlives_its_pod(pod_manifest(config(), order(kPod, true), NodeId{"head"})));
  const json pod = pod_manifest(config(), order(R"({"spec": {"containers": [
    {"image": "i", "env": [{"name": "HOME", "value": "/data"}]}]}})", true), NodeId{"head"});
  EXPECT_TRUE(outlives_its_pod(pod));
  const json set = head_set("ml", pod);
  EXPECT_EQ(set["metadata"]["name"], "lab-head");
  EXPECT_EQ(set["spec"]["template"]["spec"], pod["spec"]);
  EXPECT_FALSE(set["spec"]["template"]["metadata"].contains("name"));
  const json& labels = set["spec"]["template"]["metadata"]["labels"];
  for (const auto& [key, value] : set["spec"]["selector"]["matchLabels"].items()) EXPECT_EQ(labels[key], value) << key;
  const json service = head_service("ml", "lab");
  for (const auto& [key, value] : service["spec"]["selector"].items()) EXPECT_EQ(labels[key], value) << key;
  const json worker = pod_manifest(config(), order(kPod), NodeId{"worker-1"});
  EXPECT_FALSE(worker["metadata"]["labels"].contains(kRoleLabel));
  const json name = {{"name", "RUBATO_HEAD_NAME"}, {"value", service["metadata"]["name"]}};
  const json& env = worker["spec"]["containers"][0]["env"];
  EXPECT_NE(std::find(env.begin(), env.end(), name), env.end()) << env;
}

TEST(PodManifest, RefusesWhatIsNoPod) {
  for (const char* bad : {"{}", R"({"spec": {}})", R"({"spec": {"containers": []}})", R"({"spec": 3})", "[]"})
    EXPECT_THROW(pod_manifest(config(), order(bad), NodeId{"w"}), Error) << bad;
}

json pod_in(const json& status, const std::string& created = "2026-11-18T11:59:50Z") {
  json pod = pod_manifest(config(), order(kPod), NodeId{"worker-3"});
  pod["metadata"]["uid"] = "u-1";
  pod["metadata"]["creationTimestamp"] = created;
  pod["status"] = status;
  return pod;
}

const json kRuns = {{"phase", "Running"},
                    {"podIP", "10.1.2.3"},
                    {"containerStatuses", {{{"name", "node"}, {"state", {{"running", {{"startedAt", "x"}}}}}}}}};

TEST(PodMachine, RunsWhenItsContainerDoes) {
  const CloudMachine machine = machine_of_pod(config(), pod_in(kRuns), "ml", kNow);
  EXPECT_EQ(machine.state, MachineState::kRunning);
  EXPECT_EQ(machine.id, "lab-worker-3.u-1");
  EXPECT_EQ(machine.node, NodeId{"worker-3"});
  EXPECT_EQ(machine.launch_hash, "h1");
  EXPECT_EQ(machine.private_address, "10.1.2.3");
  EXPECT_EQ(machine.public_address, "pod:ml/lab-worker-3/node@prod");
  json other = kRuns;
  other["containerStatuses"][0]["name"] = "log";
  EXPECT_EQ(machine_of_pod(config(), pod_in(other), "ml", kNow).state, MachineState::kStarting);
  EXPECT_EQ(machine_of_pod(config(), pod_in(json::object()), "ml", kNow).state, MachineState::kStarting);
}

TEST(PodMachine, EndsAndSaysWhy) {
  json leaving = pod_in(kRuns);
  leaving["metadata"]["deletionTimestamp"] = "2026-11-18T12:00:10Z";
  EXPECT_EQ(machine_of_pod(config(), leaving, "ml", kNow).state, MachineState::kEnding);
  const json evicted = {{"phase", "Failed"}, {"reason", "Evicted"}, {"message", "low on disk"}};
  const CloudMachine machine = machine_of_pod(config(), pod_in(evicted), "ml", kNow);
  EXPECT_EQ(machine.state, MachineState::kEnded);
  EXPECT_EQ(machine.end_reason, "Evicted: low on disk");
  EXPECT_FALSE(machine.lacked_stock);
}

TEST(PodMachine, HasEndedWhenItsContainerHasThoughOthersRunOn) {
  json status = kRuns;
  status["containerStatuses"][0]["name"] = "log";
  const json ended = {{"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}}}};
  status["containerStatuses"].push_back({{"name", "node"}, {"state", ended}});
  const CloudMachine machine = machine_of_pod(config(), pod_in(status), "ml", kNow);
  EXPECT_EQ(machine.state, MachineState::kEnded);
  EXPECT_EQ(machine.end_reason, "its container ended with 137 (OOMKilled)");
}

TEST(PodMachine, OfTheHeadComesBackWhenItsContainerDoes) {
  json pod = pod_in(kRuns);
  pod["spec"]["restartPolicy"] = "Always";
  pod["status"]["containerStatuses"][0]["state"] = {{"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}}}};
  EXPECT_EQ(machine_of_pod(config(), pod, "ml", kNow).state, MachineState::kStarting);
}

TEST(PodMachine, WithoutRoomIsGivenUpAfterItsTime) {
  const json status = {
      {"phase", "Pending"},
      {"conditions", {{{"type", "PodScheduled"}, {"status", "False"}, {"message", "0/2 nodes are available"}}}}};
  EXPECT_EQ(machine_of_pod(config(), pod_in(status), "ml", kNow).state, MachineState::kStarting);
  const CloudMachine late = machine_of_pod(config(), pod_in(status, "2026-11-18T11:49:00Z"), "ml", kNow);
  EXPECT_EQ(late.state, MachineState::kEnded);
  EXPECT_TRUE(late.lacked_stock);
  EXPECT_EQ(late.end_reason, "no room for the pod: 0/2 nodes are available");
}

TEST(PodMachine, WithoutItsImageIsGivenUp) {
  const auto waits = [](const char* reason) {
    const json waiting = {{"waiting", {{"reason", reason}, {"message", "no torch:2"}}}};
    return json{{"phase", "Pending"}, {"containerStatuses", json::array({{{"name", "node"}, {"state", waiting}}})}};
  };
  EXPECT_EQ(machine_of_pod(config(), pod_in(waits("ImagePullBackOff")), "ml", kNow).state, MachineState::kStarting);
  const json old = pod_in(waits("ImagePullBackOff"), "2026-11-18T11:58:00Z");
  const CloudMachine late = machine_of_pod(config(), old, "ml", kNow);
  EXPECT_EQ(late.state, MachineState::kEnded);
  EXPECT_EQ(late.end_reason, "ImagePullBackOff: no torch:2");
  // A pod that waited for its node has only begun to pull.
  json placed = old;
  placed["status"]["conditions"] = json::array(
      {{{"type", "PodScheduled"}, {"status", "True"}, {"lastTransitionTime", "2026-11-18T11:59:50Z"}}});
  EXPECT_EQ(machine_of_pod(config(), placed, "ml", kNow).state, MachineState::kStarting);
  EXPECT_EQ(machine_of_pod(config(), pod_in(waits("InvalidImageName")), "ml", kNow).state, MachineState::kEnded);
}

TEST(PodConfig, ReadsQuantities) {
  EXPECT_EQ(parse_quantity_milli("500m"), 500);
  EXPECT_EQ(parse_quantity_milli("2"), 2000);
  EXPECT_EQ(parse_quantity_milli("0.5"), 500);
  EXPECT_EQ(parse_quantity_milli("4Gi"), int64_t{4} * 1024 * 1024 * 1024 * 1000);
  for (const char* bad : {"", "x", "-1", "4Q", "1e30Ti"}) EXPECT_FALSE(parse_quantity_milli(bad)) << bad;
}

TEST(PodConfig, OffersWhatTheContainerMayUse) {
  const auto offer = pod_offer(nlohmann::ordered_json::parse(
      R"({"spec": {"containers": [{"resources": {"limits": {"cpu": 4, "nvidia.com/gpu": 2},
          "requests": {"cpu": "1", "memory": "1Gi"}}}]}})"));
  ASSERT_TRUE(offer);
  EXPECT_EQ(offer->resources.of(kCpu), 4000);
  EXPECT_EQ(offer->resources.of(kGpu), 2000);
  EXPECT_EQ(offer->resources.of(kMemory), 1 << 30);
  EXPECT_FALSE(pod_offer(nlohmann::ordered_json::parse(R"({"spec": {"containers": [{}]}})")));
}

TEST(PodConfig, SaysWhereAPodIsNone) {
  const ClusterFile file = read_cluster_file(
      "cluster_name: c\nprovider: {type: kubernetes, services: []}\nmax_workers: 1\nhead_node_type: h\n"
      "available_node_types:\n  h: {node_config: {spec: {containers: [{name: x}]}}}\n  w: {node_config: {}}\n",
      "c.yaml");
  std::vector<std::string> messages;
  for (const Finding& one : file.findings) {
    if (one.severity == Severity::kUnfilled) messages.push_back(one.message);
  }
  EXPECT_EQ(messages, (std::vector<std::string>{"the container has no image", "this node_config has no containers"}));
}

TEST(HeadAccountManifests, GiveRightsOnPodsOnly) {
  const auto all = account_manifests("ml", "lab", head_account_of("lab", kPod));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["kind"], "ServiceAccount");
  EXPECT_EQ(all[1]["rules"][0]["resources"], json::array({"pods"}));
  EXPECT_EQ(all[1]["rules"][1]["resources"], json::array({"pods/exec"}));
  EXPECT_EQ(all[1]["rules"].size(), 2u);
  EXPECT_EQ(all[2]["subjects"][0]["name"], "rubato-lab-head");
  const auto theirs = account_manifests("ml", "lab", head_account_of("lab", R"({"spec":{"serviceAccountName":"me"}})"));
  ASSERT_EQ(theirs.size(), 2u);
  EXPECT_EQ(theirs[1]["subjects"][0]["name"], "me");
}

}  // namespace
}  // namespace rubato::clouds

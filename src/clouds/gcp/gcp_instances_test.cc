// Machines of Compute Engine against tests/gcp/fake_gcp.py, which checks requests by Google's schema, runs out of stock
// and is late.
#include "clouds/gcp/gcp_instances.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "clouds/gcp/gcp_surroundings.h"
#include "gcp/fake_gcp_testing.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using provider::LaunchErrors;
using provider::Machine;
using provider::NodeOrder;
using Names = std::vector<std::string>;

class GcpInstancesTest : public gcp::FakeGcpFixture {
 protected:
  void SetUp() override {
    gcp::FakeGcpFixture::SetUp();
    around.project = project;
    around.region = "us-west1";
    around.zones = {"us-west1-a", "us-west1-b"};
    around.subnetwork = "projects/" + project + "/regions/us-west1/subnetworks/default";
    around.images = {{"worker", "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"}};
    fresh();
  }

  // As a head that has just started.
  void fresh(bool on_head = true) {
    GcpMachinesSettings of_cloud;
    of_cloud.env = settings.env;
    of_cloud.around = around;
    CloudInstancesSettings of;
    of.head_key = "ssh-ed25519 AAAA rubato-lab";
    if (on_head) of.own = Machine();
    of.poll_min = of.poll_max = 50ms;
    of.known_timeout = 5s;
    auto cloud = std::make_unique<GcpMachines>(world, std::move(of_cloud));
    instances = std::make_unique<CloudInstances>(world, std::move(cloud), std::move(of), Log());
    const json told = {
        {"cluster", cluster}, {"project", project}, {"region", "us-west1"}, {"cache_stopped_nodes", cache}};
    instances->configure(told.dump());
  }

  static NodeOrder order(const std::string& node, const std::string& hash = "hash") {
    NodeOrder out;
    out.node.value = node;
    out.type.name = "worker";
    out.type.node_config = R"({"machineType": "n1-standard-2"})";
    out.launch_hash = hash;
    return out;
  }

  template <class Result>
  Result get(Task<Result> task) {
    std::optional<Result> out;
    runtime.run(get_in(std::move(task), out));
    return std::move(*out);
  }
  template <class Result>
  static Task<int> get_in(Task<Result> task, std::optional<Result>& out) {
    out.emplace(co_await std::move(task));
    co_return 0;
  }
  void remove(const std::string& node) { runtime.run(remove_in(*instances, NodeId{node})); }
  static Task<int> remove_in(CloudInstances& all, NodeId node) {
    provider::NodeRemoval removal(std::move(node));
    co_await all.remove(std::move(removal), true);
    co_return 0;
  }
  std::vector<std::string> listed() {
    std::vector<std::string> out;
    for (const NodeId& node : get(instances->list())) out.push_back(node.value);
    return out;
  }
  ErrorCode failure_of_create(const std::string& node) {
    return code_of([&] { get(instances->create(order(node))); });
  }

  GcpSurroundings around;
  bool cache = true;
  std::string cluster = "lab";
  std::unique_ptr<CloudInstances> instances;
};

TEST_F(GcpInstancesTest, ANodeHasOneMachineHoweverOftenItIsAskedFor) {
  const Machine machine = get(instances->create(order("worker-1")));
  EXPECT_FALSE(machine.host.host.empty());
  EXPECT_EQ(get(instances->create(order("worker-1"))).id, machine.id);
  fresh();
  EXPECT_EQ(get(instances->create(order("worker-1"))).id, machine.id);
  EXPECT_EQ(get(instances->find(NodeId{"worker-2"})), std::nullopt);
  EXPECT_EQ(listed(), Names{"worker-1"});
  EXPECT_EQ(calls("instances.insert"), 1);
}

// The head that asked is dead, and lists have not heard of the machine yet: only its name is left.
TEST_F(GcpInstancesTest, AHeadThatDiedBehindTheRequestFindsItsMachine) {
  set({{"consistency_s", 1.0}});
  EXPECT_TRUE(get(instances->launch({order("worker-1"), order("worker-2")})).empty());
  fresh();
  EXPECT_TRUE(get(instances->launch({order("worker-1"), order("worker-2")})).empty());
  get(instances->create(order("worker-1")));
  get(instances->create(order("worker-2")));
  EXPECT_EQ(listed(), (Names{"worker-1", "worker-2"}));
  EXPECT_EQ(control("POST", "/_fake/instances", json::object()).size(), 2u);
}

TEST_F(GcpInstancesTest, AServerThatCannotWaitIsAskedAgainAndAgain) {
  set({{"refuse", {{"zoneOperations.wait", {"notFound", 404}}}}, {"operation_s", 1.0}});
  EXPECT_FALSE(get(instances->create(order("worker-1"))).id.empty());
  EXPECT_EQ(calls("zoneOperations.wait"), 1);
  EXPECT_GE(calls("zoneOperations.get"), 2);
  EXPECT_LE(calls("zoneOperations.get"), 5) << "with pauses that grow";
}

TEST_F(GcpInstancesTest, AWaitThatDoesNotWaitIsRepeatedWithPauses) {
  set({{"habits", {"impatient"}}, {"operation_s", 1.0}});
  EXPECT_FALSE(get(instances->create(order("worker-1"))).id.empty());
  EXPECT_LE(calls("zoneOperations.wait"), 5);
}

TEST_F(GcpInstancesTest, AMachineIsFoundThatItsOperationDoesNotName) {
  set({{"habits", {"no target id"}}});
  const std::string id = get(instances->create(order("worker-1"))).id;
  EXPECT_FALSE(id.ends_with('.')) << id;
  EXPECT_EQ(get(instances->find(NodeId{"worker-1"}))->id, id);
}

// A server that takes no notice of filters must not cost strangers their machines.
TEST_F(GcpInstancesTest, MachinesOfOthersAreNeverTouched) {
  get(instances->create(order("worker-1")));
  set({{"habits", {"no filters"}}});
  cluster = "other";
  fresh();
  EXPECT_TRUE(listed().empty());
  EXPECT_EQ(get(instances->end_all()), 0u);
  EXPECT_EQ(calls("instances.delete"), 0);
}

// An error that is told at once, by a cloud whose clock is two minutes behind ours, is this request's own.
TEST_F(GcpInstancesTest, WhetherAnOperationIsOldIsTheCloudsTimeToTell) {
  set({{"clock_offset_s", -120}, {"operation_s", 0.3}, {"stock", {{"n1-standard-2", 0}}}});
  EXPECT_EQ(failure_of_create("worker-1"), ErrorCode::kNoCapacity);
  EXPECT_EQ(calls("instances.insert"), 2) << "once in each zone";
}

TEST_F(GcpInstancesTest, ManyNodesAreFewLists) {
  std::vector<NodeOrder> orders;
  for (int i = 1; i <= 40; ++i) orders.push_back(order("worker-" + std::to_string(i)));
  EXPECT_TRUE(get(instances->launch(orders)).empty());
  std::set<std::string> ids;
  for (const NodeOrder& one : orders) ids.insert(get(instances->create(one)).id);
  EXPECT_EQ(ids.size(), 40u);
  EXPECT_EQ(calls("instances.insert"), 40);
  EXPECT_LE(calls("instances.aggregatedList"), 20);
  control("POST", "/_fake/forget", json::object());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(listed().size(), 40u);
  EXPECT_EQ(calls("instances.aggregatedList"), 3);
}

TEST_F(GcpInstancesTest, WhatOneZoneHasNotIsAskedForInTheNext) {
  set({{"stock", {{"n1-standard-2/us-west1-a", 2}, {"n1-standard-2/us-west1-b", 1}}}});
  const std::vector<NodeOrder> orders = {order("worker-1"), order("worker-2"), order("worker-3"), order("worker-4")};
  const LaunchErrors errors = get(instances->launch(orders));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors.begin()->second.code, ErrorCode::kNoCapacity);
  EXPECT_EQ(listed().size(), 3u);
  EXPECT_EQ(failure_of_create("worker-9"), ErrorCode::kNoCapacity);
  // The failed request is remembered by Google under its id: later it must be another.
  set({{"stock", json::object()}});
  EXPECT_FALSE(get(instances->create(order("worker-9"))).id.empty());
}

TEST_F(GcpInstancesTest, AQuotaIsToldApartAndAsksNowhereElse) {
  for (const bool in_operation : {false, true}) {
    set({{"quota", {{"CPUS", 1}}}, {"quota_in_operation", in_operation}});
    control("POST", "/_fake/forget", json::object());
    EXPECT_EQ(failure_of_create("worker-1"), ErrorCode::kQuota);
    EXPECT_EQ(calls("instances.insert"), 1);
  }
}

TEST_F(GcpInstancesTest, AMissingPermissionIsNamed) {
  set({{"deny", {{"*", {"compute.instances.create"}}}}});
  EXPECT_EQ(failure_of_create("worker-1"), ErrorCode::kAuth);
  EXPECT_NE(last_error.find("compute.instances.create"), std::string::npos);
}

TEST_F(GcpInstancesTest, WhatCanNeverWorkIsAUsageError) {
  around.images["worker"] = "projects/nobody/global/images/none";
  fresh();
  EXPECT_EQ(failure_of_create("worker-1"), ErrorCode::kUsage);
}

TEST_F(GcpInstancesTest, AStoppedMachineIsStartedForTheNextNodeOfItsKind) {
  const std::string id = get(instances->create(order("worker-1"))).id;
  remove("worker-1");
  EXPECT_TRUE(listed().empty());
  EXPECT_EQ(calls("instances.stop"), 1);
  EXPECT_EQ(calls("instances.delete"), 0);
  std::string started, last;
  for (int i = 3; i < 60 && started != id; ++i) {
    last = "worker-" + std::to_string(i);
    started = get(instances->create(order(last))).id;
  }
  EXPECT_EQ(started, id);
  EXPECT_EQ(get(instances->find(NodeId{last}))->id, id);
}

TEST_F(GcpInstancesTest, WithoutTheCacheMachinesEnd) {
  cache = false;
  fresh();
  get(instances->create(order("worker-1")));
  remove("worker-1");
  remove("worker-1");
  EXPECT_EQ(calls("instances.stop"), 0);
  compare_with_golden("machines");
  // The same name again, though Google remembers the request of the one that ended.
  EXPECT_FALSE(get(instances->create(order("worker-1"))).id.empty());
}

// A preemptible machine that was taken is stopped, not deleted, and its disk costs money.
TEST_F(GcpInstancesTest, ASpotMachineThatWasTakenIsSwept) {
  NodeOrder spot = order("worker-1");
  spot.type.node_config = R"({"machineType": "n1-standard-2", "scheduling": [{"preemptible": true}]})";
  spot.offering.market = Market::kSpot;
  const std::string id = get(instances->create(spot)).id;
  control("POST", "/_fake/preempt", {{"instance", id.substr(0, id.rfind('.'))}});
  EXPECT_EQ(listed(), Names{"worker-1"}) << "there is something to end";
  EXPECT_EQ(get(instances->find(NodeId{"worker-1"})), std::nullopt);
  remove("worker-1");
  EXPECT_GE(calls("instances.delete"), 1);
}

TEST_F(GcpInstancesTest, EndAllTakesStoppedOnesToo) {
  get(instances->create(order("worker-1")));
  get(instances->create(order("worker-2")));
  remove("worker-1");
  EXPECT_EQ(get(instances->end_all()), 2u);
  EXPECT_EQ(get(instances->end_all()), 0u);
  EXPECT_TRUE(control("POST", "/_fake/instances", json::object()).empty());
}

TEST_F(GcpInstancesTest, SlowdownsAndFailuresAreTriedAgain) {
  set({{"throttle", {{"compute", 2}}}, {"fail", {{"compute", 1}}}});
  EXPECT_FALSE(get(instances->create(order("worker-1"))).id.empty());
}

// ---- what surrounds them ----

class GcpSurroundingsTest : public GcpInstancesTest {
 protected:
  FoundGcpSurroundings prepare(const std::string& provider = "",
                               const std::string& config = "{machineType: e2-medium}") {
    file = read_cluster_file("cluster_name: lab\nprovider: {type: gcp, project_id: " + project + ", region: us-west1" +
                                 provider + "}\navailable_node_types:\n  a:\n    node_config: " + config +
                                 "\nhead_node_type: a\nmax_workers: 2\n",
                             "c.yaml");
    GcpSurroundingsOrder wanted;
    wanted.config = gcp_config_from_json(compile_gcp_config(file));
    wanted.file = &file;
    wanted.public_key = "ssh-ed25519 PERSON";
    wanted.env = settings.env;
    return run<FoundGcpSurroundings>(
        [wanted](gcp::Client& client) { return prepare_gcp_surroundings(client, wanted); });
  }
  RemovedSurroundings tear_down() {
    const GcpConfig config = gcp_config_from_json(compile_gcp_config(file));
    return run<RemovedSurroundings>(
        [config](gcp::Client& client) { return remove_gcp_surroundings(client, config); });
  }
  ErrorCode failure_of(const std::string& provider, const std::string& config = "{machineType: e2-medium}") {
    return code_of([&] { prepare(provider, config); });
  }

  ClusterFile file;
};

TEST_F(GcpSurroundingsTest, EverythingIsMadeOnceAndRemoved) {
  const FoundGcpSurroundings first = prepare();
  EXPECT_TRUE(first.new_account);
  EXPECT_FALSE(first.around.head_account.empty());
  EXPECT_EQ(first.around.network_tag, "rubato-lab-node");
  compare_with_golden("surroundings");
  control("POST", "/_fake/forget", json::object());
  const FoundGcpSurroundings second = prepare();
  EXPECT_FALSE(second.new_account);
  EXPECT_EQ(second.around, first.around);
  EXPECT_EQ(calls("firewalls.insert") + calls("firewalls.patch"), 0);
  const RemovedSurroundings removed = tear_down();
  EXPECT_EQ(removed.removed.size(), 3u) << "two rules and an account";
  EXPECT_TRUE(tear_down().removed.empty());
}

TEST_F(GcpSurroundingsTest, WhatCannotBeRemovedIsKeptWithItsReason) {
  prepare();
  set({{"refuse", {{"firewalls.delete", {"forbidden", 403}}}}});
  const RemovedSurroundings removed = tear_down();
  EXPECT_EQ(removed.removed.size(), 1u) << "the account";
  ASSERT_EQ(removed.kept.size(), 2u);
  EXPECT_NE(removed.kept[0].find("firewall rule rubato-lab-ssh: compute firewalls.delete: forbidden"),
            std::string::npos)
      << removed.kept[0];
}

TEST_F(GcpSurroundingsTest, AServerThatKnowsNoProjectsIsNoted) {
  for (const char* call : {"get_project", "test_permissions"}) {
    set({{"refuse", {{call, {"notFound", 404}}}}});
    const FoundGcpSurroundings found = prepare();
    ASSERT_EQ(found.notes.size(), 1u) << call;
    EXPECT_NE(found.notes[0].find("cannot be checked"), std::string::npos) << found.notes[0];
  }
}

TEST_F(GcpSurroundingsTest, EndpointsTravelToTheHead) {
  settings.env["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"] = settings.env["RUBATO_GCP_ENDPOINT"] + "/compute/v1/";
  settings.env["STORAGE_EMULATOR_HOST"] = "http://10.0.0.1:4443";
  const FoundGcpSurroundings found = prepare();
  const std::map<std::string, std::string> wanted = {
      {"CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", url + "/compute/v1/"},
      {"STORAGE_EMULATOR_HOST", "http://10.0.0.1:4443"}};
  EXPECT_EQ(found.around.endpoints, wanted);
  EXPECT_EQ(gcp_surroundings_from_json(to_json(found.around)), found.around);
  around = found.around;
  around.images = {{"worker", "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"}};
  around.endpoint.clear();
  around.endpoints["CLOUDSDK_API_ENDPOINT_OVERRIDES_OAUTH2"] = url;
  for (const char* name : {"RUBATO_GCP_ENDPOINT", "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"}) settings.env.erase(name);
  fresh();
  EXPECT_FALSE(get(instances->create(order("worker-1"))).id.empty());
}

TEST_F(GcpSurroundingsTest, MissingPermissionsAreToldTogether) {
  set({{"deny", {{"*", {"compute.firewalls.create", "iam.serviceAccounts.create"}}}}});
  EXPECT_EQ(failure_of(""), ErrorCode::kAuth);
  EXPECT_NE(last_error.find("compute.firewalls.create, iam.serviceAccounts.create"), std::string::npos);
}

TEST_F(GcpSurroundingsTest, WhatDoesNotExistIsTheFilesFault) {
  EXPECT_EQ(failure_of(", availability_zone: us-west1-z"), ErrorCode::kUsage);
  EXPECT_EQ(failure_of("", "{acceleratorType: v2-8}"), ErrorCode::kUsage);
  EXPECT_NE(last_error.find("this is a TPU"), std::string::npos);
  EXPECT_EQ(failure_of("", "{machineType: n1-standard-3}"), ErrorCode::kUsage);
  EXPECT_NE(last_error.find("there is no machine type"), std::string::npos);
  EXPECT_EQ(failure_of("", "{machineType: e2-medium, disks: [{boot: true, initializeParams: {sourceImage: "
                           "projects/nobody/global/images/family/none}}]}"),
            ErrorCode::kUsage);
}

// A shared VPC: rules in our own project would be of a network that is not there.
TEST_F(GcpSurroundingsTest, ANetworkOfAnotherProjectIsLeftToIt) {
  for (const char* card : {"network: projects/host/global/networks/shared",
                           "subnetwork: https://www.googleapis.com/compute/v1/projects/host/regions/us-west1/subnetworks/"
                           "default"}) {
    control("POST", "/_fake/forget", json::object());
    const FoundGcpSurroundings found =
        prepare("", fmt::format("{{machineType: e2-medium, networkInterfaces: [{{{}}}]}}", card));
    EXPECT_EQ(calls("firewalls.insert"), 0) << card;
    EXPECT_EQ(found.around.network_tag, "rubato-lab-node");
    ASSERT_EQ(found.notes.size(), 1u);
    EXPECT_TRUE(found.notes[0].starts_with("note: projects/host/")) << found.notes[0];
  }
}

TEST_F(GcpSurroundingsTest, SshIsNeverOpenToTheWorld) {
  prepare();
  for (const json& one : control("GET", "/_fake/requests")) {
    if (one["operation"] != "firewalls.insert") continue;
    EXPECT_EQ(one.dump().find("0.0.0.0/0"), std::string::npos) << one;
  }
  EXPECT_EQ(failure_of(", use_internal_ips: true"), ErrorCode::kUsage) << "from where is not known";
}

}  // namespace
}  // namespace rubato::clouds

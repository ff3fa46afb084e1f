// Machines of Compute Engine against tests/gcp/fake_gcp.py, which checks requests by Google's schema, runs out of stock
// and is late.
#include "clouds/gcp/gcp_instances.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "clouds/common/instances_testing.h"
#include "clouds/gcp/gcp_login.h"
#include "clouds/gcp/gcp_surroundings.h"
#include "gcp/fake_gcp_testing.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using provider::LaunchErrors;
using provider::Machine;
using provider::NodeOrder;
using Names = std::vector<std::string>;

class GcpInstancesTest : public InstancesFixture<gcp::FakeGcpFixture> {
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
    of_cloud.own_key = "ssh-ed25519 AAAA rubato-lab";
    const json told = {
        {"cluster", cluster}, {"project", project}, {"region", "us-west1"}, {"cache_stopped_nodes", cache}};
    make_instances(std::make_unique<GcpMachines>(world, std::move(of_cloud)), on_head, told.dump());
  }

  static NodeOrder order(const std::string& node, const std::string& hash = "hash") {
    NodeOrder out;
    out.node.value = node;
    out.type.name = "worker";
    out.type.node_config = R"({"machineType": "n1-standard-2"})";
    out.launch_hash = hash;
    return out;
  }

  GcpSurroundings around;
  bool cache = true;
  std::string cluster = "lab";
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
  EXPECT_EQ(failure_of_create(order("worker-1")), ErrorCode::kNoCapacity);
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
  EXPECT_EQ(failure_of_create(order("worker-9")), ErrorCode::kNoCapacity);
  // The failed request is remembered by Google under its id: later it must be another.
  set({{"stock", json::object()}});
  EXPECT_FALSE(get(instances->create(order("worker-9"))).id.empty());
}

TEST_F(GcpInstancesTest, AQuotaIsToldApartAndAsksNowhereElse) {
  for (const bool in_operation : {false, true}) {
    set({{"quota", {{"CPUS", 1}}}, {"quota_in_operation", in_operation}});
    control("POST", "/_fake/forget", json::object());
    EXPECT_EQ(failure_of_create(order("worker-1")), ErrorCode::kQuota);
    EXPECT_EQ(calls("instances.insert"), 1);
  }
}

TEST_F(GcpInstancesTest, AMissingPermissionIsNamed) {
  set({{"deny", {{"*", {"compute.instances.create"}}}}});
  EXPECT_EQ(failure_of_create(order("worker-1")), ErrorCode::kAuth);
  EXPECT_NE(last_error.find("compute.instances.create"), std::string::npos);
}

TEST_F(GcpInstancesTest, WhatCanNeverWorkIsAUsageError) {
  around.images["worker"] = "projects/nobody/global/images/none";
  fresh();
  EXPECT_EQ(failure_of_create(order("worker-1")), ErrorCode::kUsage);
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

// The key goes to OS Login once, and the machines' user is the account's.
TEST_F(GcpInstancesTest, WithOsLoginMachinesHaveTheAccountsUser) {
  around.uses_login = true;
  fresh();
  const Machine machine = get(instances->create(order("worker-1")));
  EXPECT_TRUE(machine.host.user.starts_with("sa_")) << machine.host.user;
  EXPECT_EQ(get(instances->create(order("worker-2"))).host.user, machine.host.user);
  EXPECT_EQ(calls("import_key"), 1);
  // Another head, and a project that has changed its mind: the machines are as they were made.
  around.uses_login = false;
  fresh();
  EXPECT_EQ(get(instances->create(order("worker-1"))).host.user, machine.host.user);
  EXPECT_EQ(calls("import_key"), 1) << "the key is there";
  EXPECT_EQ(get(instances->create(order("worker-3"))).host.user, "");
}

TEST_F(GcpInstancesTest, WhoMayNotUseOsLoginIsToldTheRole) {
  around.uses_login = true;
  set({{"refuse", {{"import_key", {"forbidden", 403}}}}});
  fresh();
  Error failed(ErrorCode::kFailed, "");
  try {
    get(instances->create(order("worker-1")));
  } catch (const Error& error) {
    failed = error;
  }
  EXPECT_EQ(failed.code, ErrorCode::kAuth);
  EXPECT_NE(failed.hint.find("roles/compute.osAdminLogin"), std::string::npos) << failed.hint;
  EXPECT_EQ(calls("instances.insert"), 0);
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

  static Task<std::string> import_as(gcp::Client& client, std::string key, std::string comment) {
    const std::string account = co_await gcp::login_account(client);
    co_return co_await gcp::ensure_login_key(client, account, key, comment);
  }
  Task<RemovedSurroundings> forget(gcp::Client& client) {
    RemovedSurroundings out;
    const GcpConfig config = gcp_config_from_json(compile_gcp_config(file));
    co_await remove_login(client, config, file, false, out);
    co_return out;
  }
  static Task<size_t> count_keys(gcp::Client& client) {
    const std::string account = co_await gcp::login_account(client);
    const gcp::LoginProfile profile = co_await gcp::login_profile(client, account);
    co_return profile.keys.size();
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

TEST_F(GcpSurroundingsTest, OsLoginOfTheProjectIsRespected) {
  EXPECT_FALSE(prepare().around.uses_login);
  set({{"project_metadata", {{"enable-oslogin", "TRUE"}}}});
  EXPECT_TRUE(prepare().around.uses_login);
  json granted;
  for (const json& one : control("GET", "/_fake/requests")) {
    if (one["operation"] == "set_iam_policy") granted = one["parameters"]["body"]["policy"]["bindings"].back();
  }
  EXPECT_EQ(granted["role"], "roles/compute.osAdminLogin") << "the head logs in to its machines, and to no others";
  EXPECT_NE(granted["condition"]["expression"].get<std::string>().find("ray-lab-"), std::string::npos);
  set({{"deny", {{"*", {"compute.instances.osAdminLogin"}}}}});
  EXPECT_NE(prepare().notes.front().find("without sudo"), std::string::npos);
  set({{"deny", {{"*", {"compute.instances.osAdminLogin", "compute.instances.osLogin"}}}}});
  EXPECT_EQ(failure_of(""), ErrorCode::kAuth);
  EXPECT_NE(last_error.find("OS Login"), std::string::npos);
  const std::string off = "{machineType: e2-medium, metadata: {items: [{key: enable-oslogin, value: 'FALSE'}]}}";
  EXPECT_TRUE(prepare("", off).notes.empty()) << "no machine of the file has it";
}

TEST_F(GcpSurroundingsTest, OnlyOurKeyIsRemovedFromOsLogin) {
  prepare("", "{machineType: e2-medium, metadata: {items: [{key: enable-oslogin, value: 'TRUE'}]}}");
  const auto import = [&](const std::string& key, const std::string& comment) {
    return run<std::string>([key, comment](gcp::Client& client) { return import_as(client, key, comment); });
  };
  const std::string ours = login_comment(gcp_config_from_json(compile_gcp_config(file)));
  import("ssh-ed25519 AAAA mine", "other");
  const std::string user = import("ssh-ed25519 BBBB mine", ours);
  EXPECT_EQ(import("ssh-ed25519 AAAA mine", ours), user) << "one that is there keeps its comment";
  const RemovedSurroundings removed = run<RemovedSurroundings>([this](gcp::Client& client) { return forget(client); });
  ASSERT_EQ(removed.removed.size(), 1u);
  EXPECT_NE(removed.removed[0].find("SSH key in OS Login"), std::string::npos);
  EXPECT_EQ(run<size_t>([](gcp::Client& client) { return count_keys(client); }), 1u);
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

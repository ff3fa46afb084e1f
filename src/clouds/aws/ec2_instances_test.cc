// Machines of EC2 against tests/aws/fake_aws.py, which checks signatures and requests, runs out of stock and is late.
#include "clouds/aws/ec2_instances.h"

#include <gtest/gtest.h>

#include "aws/ec2_network.h"
#include "aws/fake_aws_testing.h"
#include "clouds/aws/surroundings.h"
#include "clouds/common/instances_testing.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using provider::LaunchErrors;
using provider::Machine;
using provider::NodeOrder;

class Ec2InstancesTest : public InstancesFixture<aws::FakeAwsFixture> {
 protected:
  void SetUp() override {
    aws::FakeAwsFixture::SetUp();
    fresh();
  }

  // As a head that has just started.
  void fresh(bool on_head = true) {
    Ec2Settings of_cloud;
    of_cloud.env = settings.env;
    of_cloud.around = around;
    of_cloud.new_profile = new_profile;
    of_cloud.profile_pause = 10ms;
    const json told = {{"cluster", cluster}, {"region", "eu-west-1"}, {"cache_stopped_nodes", cache}};
    make_instances(std::make_unique<Ec2Machines>(world, std::move(of_cloud)), on_head, told.dump());
  }

  static NodeOrder order(const std::string& node, const std::string& hash = "hash") {
    NodeOrder out;
    out.node.value = node;
    out.type.name = "worker";
    out.type.node_config = R"({"InstanceType": "m5.large"})";
    out.launch_hash = hash;
    return out;
  }

  int calls(const std::string& operation) {
    int count = 0;
    for (const json& one : control("GET", "/_fake/requests")) count += one["operation"] == operation ? 1 : 0;
    return count;
  }
  Ec2Surroundings around = [] {
    Ec2Surroundings out;
    out.region = "eu-west-1";
    out.subnets = {{"subnet-aaaaaaaa", "eu-west-1a"}, {"subnet-bbbbbbbb", "eu-west-1b"}};
    out.images = {{"worker", "ami-0000000000000002"}};
    return out;
  }();
  bool cache = true, new_profile = false;
  std::string cluster = "lab";
};

using Names = std::vector<std::string>;

TEST_F(Ec2InstancesTest, ANodeHasOneMachineHoweverOftenItIsAskedFor) {
  const Machine machine = get(instances->create(order("worker-1")));
  EXPECT_FALSE(machine.host.host.empty());
  EXPECT_TRUE(machine.id.starts_with("i-"));
  EXPECT_EQ(get(instances->create(order("worker-1"))).id, machine.id);
  fresh();
  EXPECT_EQ(get(instances->create(order("worker-1"))).id, machine.id);
  EXPECT_EQ(get(instances->find(NodeId{"worker-1"}))->id, machine.id);
  EXPECT_EQ(get(instances->find(NodeId{"worker-2"})), std::nullopt);
  EXPECT_EQ(listed(), Names{"worker-1"});
  EXPECT_EQ(calls("RunInstances"), 1);
}

// The head that asked is dead, and the cloud has not heard of the machine yet: only the token is left.
TEST_F(Ec2InstancesTest, AHeadThatDiedBehindTheRequestFindsItsMachine) {
  set({{"consistency_s", 1.0}});
  const LaunchErrors none = get(instances->launch({order("worker-1"), order("worker-2")}));
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(calls("RunInstances"), 1);
  fresh();
  get(instances->launch({order("worker-1"), order("worker-2")}));
  get(instances->create(order("worker-1")));
  get(instances->create(order("worker-2")));
  EXPECT_EQ(listed(), (Names{"worker-1", "worker-2"}));
}

TEST_F(Ec2InstancesTest, ManyNodesAreOneRequestAndFewLists) {
  std::vector<NodeOrder> orders;
  for (int i = 1; i <= 40; ++i) orders.push_back(order("worker-" + std::to_string(i)));
  EXPECT_TRUE(get(instances->launch(orders)).empty());
  std::set<std::string> ids;
  for (const NodeOrder& one : orders) ids.insert(get(instances->create(one)).id);
  EXPECT_EQ(ids.size(), 40u);
  EXPECT_EQ(calls("RunInstances"), 1);
  EXPECT_LE(calls("DescribeInstances"), 20);
  EXPECT_EQ(listed().size(), 40u);
  control("POST", "/_fake/forget", json::object());
  for (int i = 0; i < 3; ++i) listed();
  EXPECT_EQ(calls("DescribeInstances"), 3);
}

TEST_F(Ec2InstancesTest, WhatOnePlaceHasNotIsAskedForInTheNext) {
  set({{"stock", {{"m5.large/eu-west-1a", 2}, {"m5.large/eu-west-1b", 1}}}});
  const std::vector<NodeOrder> orders = {order("worker-1"), order("worker-2"), order("worker-3"), order("worker-4")};
  const LaunchErrors errors = get(instances->launch(orders));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors.begin()->first, NodeId{"worker-4"});
  EXPECT_EQ(errors.begin()->second.code, ErrorCode::kNoCapacity);
  EXPECT_EQ(listed(), (Names{"worker-1", "worker-2", "worker-3"}));
  EXPECT_EQ(failure_of_create(order("worker-4")), ErrorCode::kNoCapacity);
  NodeOrder elsewhere = order("worker-5");
  elsewhere.offering.zone = "eu-west-1c";
  EXPECT_EQ(code_of([&] { get(instances->create(elsewhere)); }), ErrorCode::kNoCapacity) << "it has no subnet there";
}

TEST_F(Ec2InstancesTest, APlaceIsAskedUntilItGivesNone) {
  set({{"habits", {"one at a time"}}, {"stock", {{"m5.large/eu-west-1a", 2}}}});
  const std::vector<NodeOrder> orders = {order("worker-1"), order("worker-2"), order("worker-3")};
  EXPECT_TRUE(get(instances->launch(orders)).empty());
  EXPECT_EQ(listed(), (Names{"worker-1", "worker-2", "worker-3"}));
  std::map<std::string, int> zones;
  for (const json& one : control("GET", "/_fake/requests")) {
    if (one["operation"] == "RunInstances") ++zones[one["parameters"]["SubnetId"]];
  }
  EXPECT_EQ(zones, (std::map<std::string, int>{{"subnet-aaaaaaaa", 3}, {"subnet-bbbbbbbb", 1}}));
}

TEST_F(Ec2InstancesTest, WithoutAnIndexMachinesAreNamedInOrder) {
  set({{"habits", {"no launch index"}}});
  const std::vector<NodeOrder> orders = {order("worker-1"), order("worker-2"), order("worker-3")};
  EXPECT_TRUE(get(instances->launch(orders)).empty());
  std::set<std::string> ids;
  for (const NodeOrder& one : orders) ids.insert(get(instances->create(one)).id);
  EXPECT_EQ(ids.size(), 3u);
  fresh();
  EXPECT_EQ(listed(), (Names{"worker-1", "worker-2", "worker-3"}));
  for (const NodeOrder& one : orders) EXPECT_TRUE(ids.contains(get(instances->create(one)).id));
  EXPECT_EQ(calls("RunInstances"), 1);
}

// A server that takes no notice of filters must not cost strangers their machines.
TEST_F(Ec2InstancesTest, MachinesOfOthersAreNeverTouched) {
  get(instances->create(order("worker-1")));
  set({{"habits", {"no filters"}}});
  cluster = "other";
  fresh();
  EXPECT_TRUE(listed().empty());
  EXPECT_EQ(get(instances->end_all()), 0u);
  EXPECT_EQ(calls("TerminateInstances"), 0);
}

TEST_F(Ec2InstancesTest, MachinesThatTheServerLeavesUntaggedAreTagged) {
  set({{"habits", {"no tags with requests"}}});
  const std::vector<NodeOrder> orders = {order("worker-1"), order("worker-2")};
  EXPECT_TRUE(get(instances->launch(orders)).empty());
  fresh();
  EXPECT_EQ(listed(), (Names{"worker-1", "worker-2"}));
  EXPECT_EQ(get(instances->end_all()), 2u);
}

// As often as one likes: each life of a cluster has tokens of its own.
TEST_F(Ec2InstancesTest, ANodesNameComesAgainInEachLifeOfTheCluster) {
  for (int life = 0; life < 10; ++life) {
    around.incarnation = std::to_string(life);
    fresh();
    get(instances->create(order("worker-1")));
    EXPECT_EQ(get(instances->end_all()), 1u);
  }
  EXPECT_EQ(calls("RunInstances"), 10);
}

TEST_F(Ec2InstancesTest, AQuotaIsToldApartAndAsksNowhereElse) {
  set({{"vcpus_max", 1}});
  EXPECT_EQ(failure_of_create(order("worker-1")), ErrorCode::kQuota);
  EXPECT_EQ(calls("RunInstances"), 1);
}

TEST_F(Ec2InstancesTest, WhatCanNeverWorkIsAUsageError) {
  around.images["worker"] = "ami-9";
  fresh();
  EXPECT_EQ(failure_of_create(order("worker-1")), ErrorCode::kUsage);
  EXPECT_NE(last_error.find("InvalidAMIID.NotFound"), std::string::npos);
}

TEST_F(Ec2InstancesTest, AKeyThatWasJustMadeIsWaitedFor) {
  around.key_name = "fresh";
  aws::Tags tags{{"rubato-cluster", "lab"}};
  run<aws::KeyPair>(
      [tags](aws::Client& client) { return aws::import_key_pair(client, "fresh", "ssh-ed25519 AAAA", tags); });
  set({{"unknown", {{"InvalidKeyPair.NotFound", 2}}}});
  fresh();
  EXPECT_NE(get(instances->create(order("worker-1"))).id, "");
  EXPECT_EQ(calls("RunInstances"), 3);
}

// EC2 says the same of a profile that it has not heard of yet, and of a type that there will never be.
TEST_F(Ec2InstancesTest, ATypeThatDoesNotExistIsNotWaitedForAsANewProfileIs) {
  new_profile = true;
  fresh();
  NodeOrder wrong = order("worker-1");
  wrong.type.node_config = R"({"InstanceType": "m5.xlarge"})";  // not of this region
  EXPECT_EQ(code_of([&] { get(instances->create(wrong)); }), ErrorCode::kUsage);
  EXPECT_NE(last_error.find("InvalidParameterValue"), std::string::npos) << last_error;
  EXPECT_EQ(calls("RunInstances"), 1);
}

TEST_F(Ec2InstancesTest, AStoppedMachineIsStartedForTheNextNodeOfItsKind) {
  const std::string id = get(instances->create(order("worker-1"))).id;
  remove("worker-1");
  EXPECT_TRUE(listed().empty());
  EXPECT_EQ(calls("StopInstances"), 1);
  EXPECT_EQ(calls("TerminateInstances"), 0);
  // Until it has stopped, and for another kind, there is a new one.
  EXPECT_NE(get(instances->create(order("worker-2", "other"))).id, id);
  const auto restarted = [&](const std::string& node) { return get(instances->create(order(node))).id; };
  std::string started, last;
  for (int i = 3; i < 60 && started != id; ++i) {
    const std::string node = "worker-" + std::to_string(i);
    started = restarted(node);
    last = node;
  }
  EXPECT_EQ(started, id);
  EXPECT_EQ(get(instances->find(NodeId{last}))->id, id);
}

TEST_F(Ec2InstancesTest, AStoppedWorkerNeverBecomesTheHead) {
  const std::string worker = get(instances->create(order("worker-1"))).id;
  remove("worker-1");
  fresh(false);  // as `up` on a person's machine
  NodeOrder head = order("head");
  head.of_head = true;
  const std::string id = get(instances->create(head)).id;
  EXPECT_NE(id, worker);
  head.launch_hash = "of another file";
  EXPECT_EQ(get(instances->create(head)).id, id);
}

TEST_F(Ec2InstancesTest, WithoutTheCacheMachinesEnd) {
  cache = false;
  fresh();
  get(instances->create(order("worker-1")));
  remove("worker-1");
  remove("worker-1");
  EXPECT_EQ(calls("TerminateInstances"), 1);
  EXPECT_EQ(calls("StopInstances"), 0);
  EXPECT_TRUE(listed().empty());
  // The same name again, though its token has a machine that ended.
  EXPECT_FALSE(get(instances->create(order("worker-1"))).id.empty());
}

TEST_F(Ec2InstancesTest, EndAllTakesStoppedOnesToo) {
  get(instances->create(order("worker-1")));
  get(instances->create(order("worker-2")));
  remove("worker-1");
  EXPECT_EQ(get(instances->end_all()), 2u);
  EXPECT_EQ(get(instances->end_all()), 0u);
}

TEST_F(Ec2InstancesTest, TheHeadsOwnMachineIsNeverTouched) {
  NodeOrder head = order("head");
  head.of_head = true;
  EXPECT_TRUE(get(instances->create(head)).id.empty());
  remove("head");
  EXPECT_TRUE(listed().empty());
  EXPECT_EQ(calls("RunInstances"), 0);
}

}  // namespace
}  // namespace rubato::clouds

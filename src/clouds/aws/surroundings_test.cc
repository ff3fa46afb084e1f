// What surrounds machines of EC2, against tests/aws/fake_aws.py.
#include "clouds/aws/surroundings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "aws/fake_aws_testing.h"
#include "aws/identity.h"
#include "aws/storage.h"
#include "clouds/aws/ec2_head.h"
#include "clouds/aws/ec2_instances.h"
#include "clouds/aws/file_systems.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using provider::HeadMachine;
using provider::HeadMachineSettings;

Task<void> launch_and_end(aws::Client& client, json config) {
  aws::Launch launch;
  launch.config = &config;
  launch.count = 1;
  launch.client_token = "volumes";
  const std::vector<aws::Instance> made = co_await aws::run_instances(client, launch);
  std::vector<std::string> ids{made.front().id};
  (void)co_await aws::terminate_instances(client, ids);
  for (std::string state; state != "terminated";) {
    std::vector<aws::Filter> none;
    const auto found = co_await aws::describe_instances(client, ids, none);
    state = found.empty() ? "terminated" : found.front().state;
  }
}

class Ec2SurroundingsTest : public aws::FakeAwsFixture {
 protected:
  void SetUp() override {
    aws::FakeAwsFixture::SetUp();
    write("{InstanceType: m5.large, ImageId: ami-0000000000000002}");
  }

  void write(const std::string& worker) {
    const std::string head = "{InstanceType: m5.large, ImageId: ami-0000000000000002}";
    file = read_cluster_file("cluster_name: lab\nprovider: {type: aws, region: eu-west-1, ssh_from: " + ssh_from +
                                 provider + "}\navailable_node_types:\n  head: {node_config: " + head +
                                 ", max_workers: 0}\n  worker: {node_config: " + worker +
                                 ", max_workers: 2}\nhead_node_type: head\nmax_workers: 2\n",
                             "c.yaml");
    for (const Finding& one : file.findings) EXPECT_NE(one.severity, Severity::kError) << one.message;
  }

  FoundSurroundings prepare() {
    SurroundingsOrder order;
    order.config = ec2_config_from_json(compile_ec2_config(file));
    order.file = &file;
    order.public_key = "ssh-ed25519 AAAA person";
    order.env = settings.env;
    return run<FoundSurroundings>([order](aws::Client& client) { return prepare_surroundings(client, order); });
  }
  RemovedSurroundings tear_down() {
    const Ec2Config config = ec2_config_from_json(compile_ec2_config(file));
    const std::set<std::string> placements = placement_groups_of(file);
    return run<RemovedSurroundings>(
        [config, placements](aws::Client& client) { return remove_surroundings(client, config, placements); });
  }

  HeadMachine head(bool up) {
    HeadMachineSettings of;
    of.cluster_folder = folder + "/cluster";
    of.authorized_keys = {"ssh-ed25519 AAAA person"};
    for (const auto& [name, value] : settings.env) of.env.push_back(name + "=" + value);
    HeadMachine out;
    runtime.run(head_in(*this, std::move(of), up, out));
    return out;
  }
  static Task<int> head_in(Ec2SurroundingsTest& test, HeadMachineSettings of, bool up, HeadMachine& out) {
    Task<HeadMachine> task = up ? make_ec2_head(test.world, test.file, of) : end_ec2_head(test.world, test.file, of);
    out = co_await std::move(task);
    co_return 0;
  }

  static Task<int> list_in(Ec2Machines& machines, std::vector<CloudMachine>& out) {
    co_await machines.open();
    out = co_await machines.list();
    co_return 0;
  }

  static Task<int> end_in(Ec2Machines& machines, std::vector<std::string>& states) {
    co_await machines.open();
    json config = {{"InstanceType", "m5.large"}, {"ImageId", "ami-0000000000000002"}};
    aws::Launch launch;
    launch.config = &config;
    const auto made = co_await aws::run_instances(machines.client(), std::move(launch));
    std::vector<std::string> ids{"i-0123456789abcdef0", made.front().id};
    co_await machines.end(std::move(ids));
    std::vector<std::string> any;
    std::vector<aws::Filter> none;
    const auto found = co_await aws::describe_instances(machines.client(), std::move(any), std::move(none));
    for (const aws::Instance& one : found) states.push_back(one.state);
    co_return 0;
  }

  json asked(const std::string& operation) {
    json out = json::array();
    for (const json& one : control("GET", "/_fake/requests")) {
      if (one["operation"] == operation) out.push_back(one["parameters"]);
    }
    return out;
  }

  std::vector<aws::Rule> rules_of(const std::string& group) {
    const auto found = run<std::vector<aws::SecurityGroup>>([group](aws::Client& client) {
      std::vector<std::string> ids{group};
      std::vector<aws::Filter> none;
      return aws::describe_security_groups(client, std::move(ids), std::move(none));
    });
    return found.front().ingress;
  }

  ClusterFile file;
  std::string provider, ssh_from = "203.0.113.7";
};

TEST_F(Ec2SurroundingsTest, WhatCannotBeRemovedIsKeptWithItsReason) {
  prepare();
  set({{"refuse",
        {{"DeleteKeyPair", {"UnauthorizedOperation", 403}}, {"DescribeSecurityGroups", {"InvalidAction", 400}}}}});
  const RemovedSurroundings removed = tear_down();
  EXPECT_EQ(removed.removed, std::vector<std::string>{"role rubato-lab-head-eu-west-1"});
  ASSERT_EQ(removed.kept.size(), 2u);
  EXPECT_TRUE(removed.kept[0].starts_with("security groups: ec2 DescribeSecurityGroups: InvalidAction"))
      << removed.kept[0];
  EXPECT_TRUE(removed.kept[1].starts_with("key pair rubato-lab-")) << removed.kept[1];
  EXPECT_NE(removed.kept[1].find("UnauthorizedOperation"), std::string::npos);
  EXPECT_TRUE(asked("DescribePlacementGroups").empty()) << "the file names none";
}

// What EC2 makes is not known everywhere at once, and an answer may be lost on its way: the thing is there then.
TEST_F(Ec2SurroundingsTest, WhatWasJustMadeMayNotBeKnownYet) {
  set({{"unknown", {{"InvalidGroup.NotFound", 1}}}});
  const FoundSurroundings found = prepare();
  EXPECT_EQ(asked("AuthorizeSecurityGroupIngress").size(), 3u) << "two rules, the first of them twice";
  EXPECT_EQ(rules_of(found.around.security_group).size(), 2u);
}

TEST_F(Ec2SurroundingsTest, AnAnswerThatWasLostIsNoOtherThing) {
  write("{InstanceType: m5.large, ImageId: ami-0000000000000002, Placement: {GroupName: near}}");
  set({{"lose", {{"CreateSecurityGroup", 1}, {"ImportKeyPair", 1}, {"CreatePlacementGroup", 1}}}});
  const FoundSurroundings found = prepare();
  EXPECT_EQ(asked("CreateSecurityGroup").size(), 2u);
  EXPECT_EQ(rules_of(found.around.security_group).size(), 2u);
  EXPECT_EQ(asked("ImportKeyPair").size(), 2u);
  EXPECT_EQ(asked("CreatePlacementGroup").size(), 2u);
  EXPECT_EQ(tear_down().removed.size(), 4u) << "group, key pair, placement group, role";
}

TEST_F(Ec2SurroundingsTest, AStrangersGroupOfThatNameIsNotTakenForOurs) {
  const auto make = [&](const std::string& tag) {
    return run<std::string>([tag](aws::Client& client) {
      return aws::create_security_group(client, "rubato-lab", "nodes", "vpc-0fake0000000001", {{tag, "lab"}});
    });
  };
  make("owner");
  EXPECT_EQ(code_of([&] { make("rubato-cluster"); }), ErrorCode::kConflict);
}

TEST_F(Ec2SurroundingsTest, SshIsAllowedFromWhereTheFileSaysNow) {
  const auto sources = [&](const std::string& from) {
    ssh_from = from;
    write("{InstanceType: m5.large, ImageId: ami-0000000000000002}");
    std::set<std::string> out;
    for (const aws::Rule& one : rules_of(prepare().around.security_group)) {
      if (one.from_port == 22) out.insert(one.cidrs.begin(), one.cidrs.end());
    }
    return out;
  };
  using Ranges = std::set<std::string>;
  EXPECT_EQ(sources("203.0.113.7"), Ranges{"203.0.113.7/32"});
  // EC2 adds none of a rule's ranges where it has one of them.
  EXPECT_EQ(sources("[203.0.113.7, 198.51.100.9/24]"), (Ranges{"203.0.113.7/32", "198.51.100.0/24"}));
  EXPECT_EQ(sources("198.51.100.0/24"), Ranges{"198.51.100.0/24"}) << "what is not said any more is closed";
  EXPECT_EQ(sources("[198.51.100.0/24, \"2001:db8::/32\"]"), (Ranges{"198.51.100.0/24", "2001:db8::/32"}));
  EXPECT_EQ(sources("198.51.100.0/24"), Ranges{"198.51.100.0/24"}) << "nor of IPv6";
  set({{"refuse", {{"RevokeSecurityGroupIngress", {"UnauthorizedOperation", 403}}}}});
  EXPECT_EQ(sources("203.0.113.8"), (Ranges{"203.0.113.8/32", "198.51.100.0/24"}));
  const std::vector<std::string> notes = prepare().notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(notes[0].starts_with("note: SSH is still allowed from where")) << notes[0];
}

TEST_F(Ec2SurroundingsTest, PlacementGroupsOfTheFileGoToo) {
  write("{InstanceType: m5.large, ImageId: ami-0000000000000002, Placement: {GroupName: near}}");
  prepare();
  const RemovedSurroundings removed = tear_down();
  EXPECT_NE(std::ranges::find(removed.removed, "placement group near"), removed.removed.end());
  EXPECT_TRUE(removed.kept.empty());
}

TEST_F(Ec2SurroundingsTest, VolumesThatStayAreNamed) {
  const json config = {
      {"ImageId", "ami-0000000000000002"},
      {"InstanceType", "m5.large"},
      {"BlockDeviceMappings", {{{"DeviceName", "/dev/sdf"}, {"Ebs", {{"VolumeSize", 9}}}}}},
      {"TagSpecifications", {{{"ResourceType", "volume"}, {"Tags", {{{"Key", "rubato-cluster"}, {"Value", "lab"}}}}}}}};
  act([config](aws::Client& client) { return launch_and_end(client, config); });
  const RemovedSurroundings removed = tear_down();
  ASSERT_EQ(removed.kept.size(), 1u);
  EXPECT_TRUE(removed.kept[0].starts_with("volume vol-")) << removed.kept[0];
  EXPECT_NE(removed.kept[0].find("9 GB"), std::string::npos) << removed.kept[0];
  file.name = "other";
  EXPECT_TRUE(tear_down().kept.empty());
}

TEST_F(Ec2SurroundingsTest, StrangersThingsStayWhateverTheFilterLetsThrough) {
  prepare();
  set({{"habits", {"no filters"}}});
  file.name = "other";
  tear_down();
  EXPECT_TRUE(asked("DeleteSecurityGroup").empty());
  EXPECT_TRUE(asked("DeleteKeyPair").empty());
}

// Whoever makes a machine with a profile must be allowed to pass its role.
TEST_F(Ec2SurroundingsTest, TheHeadMayGiveWorkersTheRolesThatTheFileNames) {
  aws::InstanceRole own;
  own.name = "data-readers";
  const std::string profile =
      run<std::string>([own](aws::Client& client) { return aws::ensure_instance_role(client, own); });
  write("{InstanceType: m5.large, ImageId: ami-0000000000000002, IamInstanceProfile: {Arn: '" + profile + "'}}");
  prepare();
  const auto passed = [&] {
    const json policy = json::parse(asked("PutRolePolicy").back()["PolicyDocument"].get<std::string>());
    for (const json& one : policy["Statement"]) {
      if (one["Sid"] == "GiveRoles") return one["Resource"].dump();
    }
    return std::string();
  };
  EXPECT_EQ(passed(), R"(["arn:aws:iam::*:role/rubato-*","arn:aws:iam::123456789012:role/data-readers"])");
  set({{"refuse", {{"GetInstanceProfile", {"AccessDenied", 403}}}}});
  EXPECT_EQ(code_of([&] { prepare(); }), ErrorCode::kAuth) << "the head's own profile cannot be read either";
  set({{"refuse", json::object()}});
  write("{InstanceType: m5.large, ImageId: ami-0000000000000002, IamInstanceProfile: {Name: nobodys}}");
  EXPECT_EQ(code_of([&] { prepare(); }), ErrorCode::kUsage);
  EXPECT_NE(last_error.find("there is no instance profile 'nobodys'"), std::string::npos);
}

TEST_F(Ec2SurroundingsTest, WorkersGetAProfileForTheBucketsOfTheFile) {
  EXPECT_TRUE(prepare().around.worker_profile.empty());
  provider = ", s3_buckets: [training-data]";
  write("{InstanceType: m5.large, ImageId: ami-0000000000000002}");
  const FoundSurroundings found = prepare();
  EXPECT_TRUE(found.around.worker_profile.ends_with("instance-profile/rubato-lab-workers-eu-west-1"));
  for (const json& one : asked("PutRolePolicy")) {
    if (one["RoleName"] != "rubato-lab-workers-eu-west-1") continue;
    const std::string policy = one["PolicyDocument"];
    EXPECT_NE(policy.find("arn:aws:s3:::training-data/*"), std::string::npos);
    EXPECT_EQ(policy.find("ec2:"), std::string::npos) << "and for nothing else";
  }
  const RemovedSurroundings removed = tear_down();
  EXPECT_NE(std::ranges::find(removed.removed, "role rubato-lab-workers-eu-west-1"), removed.removed.end());
}

// Servers that are not AWS's.
TEST_F(Ec2SurroundingsTest, WhatTheServerLeavesUntaggedIsTaggedAndRemoved) {
  set({{"habits", {"no tags with requests"}}});
  prepare();
  prepare();
  EXPECT_EQ(asked("AuthorizeSecurityGroupIngress").size(), 2u) << "the second time it is known as ours";
  const RemovedSurroundings removed = tear_down();
  EXPECT_EQ(removed.removed.size(), 3u) << "the group, the key, the role";
}

TEST_F(Ec2SurroundingsTest, WithoutADefaultNetworkTheOnlyOneIsTaken) {
  set({{"habits", {"no default VPC"}}});
  const Ec2Surroundings around = prepare().around;
  EXPECT_EQ(around.vpc, "vpc-0fake0000000001");
  EXPECT_EQ(around.subnets.size(), 3u);
}

TEST_F(Ec2SurroundingsTest, MachinesThatAreNotKnownDoNotKeepOthersAlive) {
  const FoundSurroundings found = prepare();
  Ec2Settings of;
  of.env = settings.env;
  of.around = found.around;
  Ec2Machines machines(world, std::move(of));
  machines.configure(compile_ec2_config(file));
  std::vector<std::string> left;
  runtime.run(end_in(machines, left));
  EXPECT_EQ(left, std::vector<std::string>{"shutting-down"});
}

TEST_F(Ec2SurroundingsTest, WithoutParametersTheImageIsFoundByItsName) {
  write("{InstanceType: m5.large}");
  EXPECT_EQ(prepare().around.images.at("worker"), "ami-0000000000000003");
  set({{"refuse", {{"GetParameter", {"UnknownOperationException", 400}}}}});
  EXPECT_EQ(prepare().around.images.at("worker"), "ami-0000000000000003");
  set({{"refuse", json::object()}});
  write("{InstanceType: m5.large, ImageId: 'ssm:/mine'}");
  EXPECT_EQ(code_of([&] { prepare(); }), ErrorCode::kUsage) << "one that was asked for by name is not replaced";
}

// A server that is not AWS's has other images, and may be without any.
TEST_F(Ec2SurroundingsTest, AnotherServersImageStandsIn) {
  write("{InstanceType: g5.xlarge, ImageId: latest_dlami}");
  const FoundSurroundings found = prepare();
  EXPECT_EQ(found.around.images.at("worker"), "ami-0000000000000002") << "the newest of what it has";
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("stands in for it"), std::string::npos) << found.notes[0];
}

TEST_F(Ec2SurroundingsTest, AProfileThatRayWouldMakeMayBeAbsent) {
  write(
      "{InstanceType: m5.large, ImageId: ami-0000000000000002, IamInstanceProfile: {Name: "
      "ray-autoscaler-cloudwatch-v1}}");
  const FoundSurroundings found = prepare();
  EXPECT_EQ(found.around.absent_profiles, std::vector<std::string>{"ray-autoscaler-cloudwatch-v1"});
  EXPECT_TRUE(found.around.head_profile.ends_with("instance-profile/rubato-lab-head-eu-west-1"));
  LaunchOrder order;
  order.sample.type.name = "worker";
  order.sample.type.node_config =
      R"({"InstanceType": "m5.large", "IamInstanceProfile": {"Name": "ray-autoscaler-cloudwatch-v1"}})";
  order.nodes = {NodeId{"worker-1"}};
  const Ec2Config config = ec2_config_from_json(compile_ec2_config(file));
  EXPECT_FALSE(plan_launch(config, found.around, order).front().config.contains("IamInstanceProfile"));
}

TEST_F(Ec2SurroundingsTest, SubnetsThatAreNotThereAreTheFilesFault) {
  write("{InstanceType: m5.large, ImageId: ami-0000000000000002, SubnetIds: [subnet-0123]}");
  EXPECT_EQ(code_of([&] { prepare(); }), ErrorCode::kUsage);
  EXPECT_NE(last_error.find("subnet-0123"), std::string::npos) << last_error;
}

TEST_F(Ec2SurroundingsTest, AFileSystemThatIsNamedIsMadeWithATargetInEachZoneAndKept) {
  provider = ", efs: {name: shared, mount: ~/efs}";
  write("{InstanceType: m5.large, ImageId: ami-0000000000000002}");
  const FoundSurroundings found = prepare();
  ASSERT_EQ(found.around.mounts.size(), 1u);
  EXPECT_EQ(found.around.mounts[0].path, "~/efs");
  EXPECT_EQ(found.around.mounts[0].addresses.size(), 3u) << "one in each zone";
  EXPECT_EQ(surroundings_from_json(to_json(found.around)), found.around);
  EXPECT_EQ(asked("CreateMountTarget")[0]["SecurityGroups"][0], found.around.security_group);
  // Again: nothing new.
  EXPECT_EQ(prepare().around.mounts, found.around.mounts);
  EXPECT_EQ(asked("CreateFileSystem").size(), 1u);
  EXPECT_EQ(asked("CreateMountTarget").size(), 3u);
  const RemovedSurroundings removed = tear_down();
  ASSERT_EQ(removed.kept.size(), 1u);
  EXPECT_TRUE(removed.kept[0].starts_with("file system 'shared' (fs-")) << removed.kept[0];
  EXPECT_NE(removed.kept[0].find("remove: true"), std::string::npos);
  EXPECT_NE(std::ranges::find(removed.removed, "security group rubato-lab"), removed.removed.end());
  EXPECT_TRUE(asked("DeleteFileSystem").empty());
  // The next life of the cluster has the same one.
  EXPECT_EQ(prepare().around.mounts[0].id, found.around.mounts[0].id);
  provider = ", efs: {name: shared, remove: true}";
  write("{InstanceType: m5.large, ImageId: ami-0000000000000002}");
  const RemovedSurroundings all = tear_down();
  EXPECT_TRUE(all.kept.empty()) << all.kept[0];
  EXPECT_EQ(asked("DeleteFileSystem").size(), 1u);
}

TEST_F(Ec2SurroundingsTest, AFileSystemOfSomebodyElseIsUsedAndLeftAsItIs) {
  aws::FileSystem own = run<aws::FileSystem>([](aws::Client& client) {
    return aws::create_file_system(client, "mine", aws::Tags{{"Name", "data"}});
  });
  provider = ", efs: [" + own.id + "]";
  write("{InstanceType: m5.large, ImageId: ami-0000000000000002}");
  const FoundSurroundings found = prepare();
  ASSERT_EQ(found.around.mounts.size(), 1u);
  EXPECT_EQ(found.around.mounts[0].id, own.id);
  EXPECT_EQ(found.around.mounts[0].path, "/mnt/efs1");
  const RemovedSurroundings removed = tear_down();
  ASSERT_EQ(removed.kept.size(), 1u);
  EXPECT_NE(removed.kept[0].find("it was there before"), std::string::npos);
  EXPECT_EQ(asked("DeleteMountTarget").size(), 3u) << "they have the cluster's group";
  provider = ", efs: {id: fs-00000000}";
  write("{InstanceType: m5.large, ImageId: ami-0000000000000002}");
  EXPECT_EQ(code_of([&] { prepare(); }), ErrorCode::kUsage);
  EXPECT_NE(last_error.find("has no file system 'fs-00000000'"), std::string::npos);
}

TEST(FileSystems, AreMountedFromTheTargetOfTheirZone) {
  Ec2Surroundings::Mount mount;
  mount.id = "fs-1";
  mount.path = "~/efs";
  mount.addresses = {{"eu-west-1a", "10.0.0.1"}, {"eu-west-1b", "10.0.1.1"}};
  const std::string script = mount_script(mount, "eu-west-1b");
  EXPECT_TRUE(script.starts_with("# EFS at ~/efs\n")) << script;
  EXPECT_NE(script.find("efs_server=10.0.1.1"), std::string::npos);
  EXPECT_NE(script.find("efs_folder=\"$HOME/efs\""), std::string::npos);
  EXPECT_NE(mount_script(mount, "").find("efs_server=10.0.0.1"), std::string::npos);
  EXPECT_EQ(mount_option(mount), "-v \"$HOME/efs:$HOME/efs\"");
  // What a server says is never a command.
  mount.id = "fs-1;reboot";
  mount.addresses = {{"a", "$(reboot)"}};
  EXPECT_NE(mount_script(mount, "a").find("efs_server='$(reboot)'; efs_id='fs-1;reboot'\n"), std::string::npos);
}

// Each life of a cluster has tokens of its own, also when its file and its machine are the same.
TEST_F(Ec2SurroundingsTest, AnUnchangedFileGoesUpAndDownAsOftenAsOneLikes) {
  set({{"boot_s", 0.0}, {"shutdown_s", 0.0}});
  std::set<std::string> tokens;
  for (int life = 0; life < 10; ++life) {
    const std::string id = head(true).instance;
    EXPECT_EQ(head(true).instance, id);
    tokens.insert(asked("RunInstances").back()["ClientToken"]);
    EXPECT_TRUE(head(false).found);
  }
  EXPECT_EQ(tokens.size(), 10u);
  EXPECT_EQ(asked("RunInstances").size(), 10u);
}

// The head asks where `up` asked, though nothing on its machine says so.
TEST_F(Ec2SurroundingsTest, EndpointsTravelToTheHead) {
  const HeadMachine made = head(true);
  EXPECT_EQ(made.carry["endpoints"]["AWS_ENDPOINT_URL_EC2"], url);
  settings.env.erase("AWS_ENDPOINT_URL");
  Ec2Settings of;
  of.env = settings.env;
  of.around = surroundings_from_json(made.carry);
  Ec2Machines machines(world, std::move(of));
  machines.configure({{"cluster", "lab"}, {"region", "eu-west-1"}});
  std::vector<CloudMachine> found;
  runtime.run(list_in(machines, found));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, made.instance);
}

}  // namespace
}  // namespace rubato::clouds

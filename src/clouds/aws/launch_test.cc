#include "clouds/aws/launch.h"

#include <gtest/gtest.h>

#include "clouds/aws/surroundings.h"
#include "rest/base64.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;

std::vector<NodeId> nodes(std::initializer_list<const char*> names) {
  std::vector<NodeId> out;
  for (const char* name : names) out.push_back(NodeId{name});
  return out;
}

Ec2Config lab() {
  Ec2Config config;
  config.cluster = "lab";
  config.region = "eu-west-1";
  return config;
}

Ec2Surroundings around() {
  Ec2Surroundings out;
  out.region = "eu-west-1";
  out.subnets = {{"subnet-a", "eu-west-1a"}, {"subnet-b", "eu-west-1b"}};
  out.security_group = "sg-1";
  out.key_name = "rubato-lab-1";
  out.head_profile = "arn:aws:iam::1:instance-profile/rubato-lab-head";
  out.images = {{"worker", "ami-1"}};
  return out;
}

LaunchOrder order(const json& config, std::vector<NodeId> names = nodes({"worker-1"})) {
  LaunchOrder out;
  out.sample.type.name = "worker";
  out.sample.type.node_config = config.dump();
  out.sample.launch_hash = "hash";
  out.nodes = std::move(names);
  out.head_key = "ssh-ed25519 AAAA rubato-lab";
  return out;
}

std::string tag_of(const LaunchRequest& request, const std::string& resource, std::string_view key) {
  for (const json& one : request.config["TagSpecifications"]) {
    for (const json& tag : one["Tags"]) {
      if (one["ResourceType"] == resource && tag["Key"] == key) return tag["Value"];
    }
  }
  return "-";
}

TEST(Ec2Nodes, NamesOfARequestFitIntoOneTag) {
  const auto many = nodes({"gpu-9", "gpu-10", "gpu-11", "a.b-c-1", "head"});
  EXPECT_EQ(pack_nodes(many), "gpu-9:11,a.b-c-1,head");
  EXPECT_EQ(unpack_nodes("gpu-9:11,a.b-c-1,head"), many);
  EXPECT_EQ(pack_nodes(nodes({"x-2", "x-1", "x-01"})), "x-2,x-1,x-01");
  std::vector<NodeId> odd;
  for (int i = 0; i < 40; ++i) odd.push_back(NodeId{"worker-" + std::to_string(100 + 2 * i)});
  EXPECT_EQ(pack_nodes(odd), std::nullopt) << "EC2's tags hold 256 characters";
  EXPECT_TRUE(unpack_nodes("x-5:3").empty());
  EXPECT_TRUE(unpack_nodes("x-1:9999999").empty()) << "nobody makes so many at once";
}

TEST(Ec2Nodes, AMachineBelongsToTheNodeAtItsIndex) {
  aws::Instance one;
  one.tags = {{std::string(kBatchTag), "worker-3:5"}};
  one.launch_index = 2;
  EXPECT_EQ(node_of(one), NodeId{"worker-5"});
  one.launch_index = 3;
  EXPECT_EQ(node_of(one), std::nullopt);
  one.tags.emplace_back(kNodeTag, "worker-9");  // started again for another
  EXPECT_EQ(node_of(one), NodeId{"worker-9"});
}

TEST(Ec2Launch, FillsInWhatThePersonDidNotSay) {
  const auto plan = plan_launch(lab(), around(), order({{"InstanceType", "m5.large"}}));
  ASSERT_EQ(plan.size(), 2u);
  const json& config = plan[0].config;
  EXPECT_EQ(config["ImageId"], "ami-1");
  EXPECT_EQ(config["KeyName"], "rubato-lab-1");
  EXPECT_EQ(config["SecurityGroupIds"], json({"sg-1"}));
  EXPECT_EQ(config["SubnetId"], "subnet-a");
  EXPECT_EQ(plan[1].config["SubnetId"], "subnet-b");
  EXPECT_FALSE(config.contains("IamInstanceProfile")) << "the head's role is the head's alone";
  EXPECT_EQ(rest::unbase64(config["UserData"].get<std::string>()),
            "#cloud-config\nssh_authorized_keys:\n  - ssh-ed25519 AAAA rubato-lab\n");
  EXPECT_EQ(tag_of(plan[0], "instance", "rubato-node"), "worker-1");
  EXPECT_EQ(tag_of(plan[0], "instance", "ray-node-type"), "worker");
  EXPECT_EQ(tag_of(plan[0], "volume", "rubato-cluster"), "lab");
  EXPECT_NE(token_of(plan[0], 0), token_of(plan[1], 0));
  EXPECT_NE(token_of(plan[0], 0), token_of(plan[0], 1));
  EXPECT_LE(token_of(plan[0], 0).size(), 64u);
}

TEST(Ec2Launch, ThePersonsOwnCountsFirst) {
  const json config = {
      {"KeyName", "mine"},
      {"SecurityGroupIds", {"sg-own"}},
      {"SubnetIds", {"subnet-x", "subnet-y"}},
      {"TagSpecifications",
       {{{"ResourceType", "instance"},
         {"Tags", {{{"Key", "Name"}, {"Value", "mine"}}, {{"Key", "rubato-cluster"}, {"Value", "x"}}}}}}}};
  const auto plan = plan_launch(lab(), around(), order(config));
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[1].config["SubnetId"], "subnet-y");
  EXPECT_FALSE(plan[0].config.contains("SubnetIds"));
  EXPECT_EQ(plan[0].config["KeyName"], "mine");
  EXPECT_EQ(plan[0].config["SecurityGroupIds"], json({"sg-own"}));
  EXPECT_EQ(tag_of(plan[0], "instance", "Name"), "mine");
  EXPECT_EQ(tag_of(plan[0], "instance", "rubato-cluster"), "lab") << "by it machines are found";
}

TEST(Ec2Launch, VolumesGoWithTheirMachineUnlessThePersonSaysOtherwise) {
  const json disks = json::parse(R"([{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 140}},
                                     {"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 9, "DeleteOnTermination": false}},
                                     {"DeviceName": "/dev/sdg", "VirtualName": "ephemeral0"}])");
  const auto plan = plan_launch(lab(), around(), order({{"InstanceType", "m5.large"}, {"BlockDeviceMappings", disks}}));
  const json& made = plan[0].config["BlockDeviceMappings"];
  EXPECT_EQ(made[0]["Ebs"]["DeleteOnTermination"], true);
  EXPECT_EQ(made[1]["Ebs"]["DeleteOnTermination"], false);
  EXPECT_FALSE(made[2].contains("Ebs"));
}

TEST(Ec2Launch, TheZoneOfTheOfferingDecidesTheSubnets) {
  LaunchOrder one = order(json::object());
  one.sample.offering.zone = "eu-west-1b";
  EXPECT_EQ(plan_launch(lab(), around(), one).front().config["SubnetId"], "subnet-b");
  one.sample.offering.zone = "eu-west-1c";
  try {
    plan_launch(lab(), around(), one);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kNoCapacity) << "the autoscaler tries another zone";
  }
}

TEST(Ec2Launch, TheMarketIsTheOfferings) {
  LaunchOrder one =
      order({{"InstanceMarketOptions", {{"MarketType", "spot"}, {"SpotOptions", {{"MaxPrice", "0.1"}}}}}});
  EXPECT_FALSE(plan_launch(lab(), around(), one)[0].config.contains("InstanceMarketOptions"));
  one.sample.offering.market = Market::kSpot;
  const auto plan = plan_launch(lab(), around(), one);
  EXPECT_EQ(plan[0].config["InstanceMarketOptions"]["SpotOptions"]["MaxPrice"], "0.1");
  EXPECT_EQ(tag_of(plan[0], "spot-instances-request", "rubato-cluster"), "lab");
}

TEST(Ec2Launch, WhatATemplateSettlesIsLeftToIt) {
  Ec2Surroundings with = around();
  with.template_keys["worker"] = {"NetworkInterfaces", "KeyName", "UserData"};
  with.template_user_data["worker"] = "#!/bin/sh\necho hello\n";
  const auto plan = plan_launch(lab(), with, order({{"LaunchTemplate", {{"LaunchTemplateName", "t"}}}}));
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_FALSE(plan[0].config.contains("SubnetId"));
  EXPECT_FALSE(plan[0].config.contains("SecurityGroupIds"));
  EXPECT_FALSE(plan[0].config.contains("KeyName"));
  const std::string data = rest::unbase64(plan[0].config["UserData"].get<std::string>()).value_or("");
  EXPECT_NE(data.find("echo hello"), std::string::npos);
  EXPECT_NE(data.find("ssh-ed25519 AAAA"), std::string::npos);
}

TEST(Ec2Launch, NetworkInterfacesGetTheGroupThatTheyLack) {
  const auto plan =
      plan_launch(lab(), around(), order({{"NetworkInterfaces", {{{"DeviceIndex", 0}, {"SubnetId", "subnet-z"}}}}}));
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].config["NetworkInterfaces"][0]["Groups"], json({"sg-1"}));
  EXPECT_FALSE(plan[0].config.contains("SecurityGroupIds"));
  EXPECT_FALSE(plan[0].config.contains("SubnetId"));
}

TEST(Ec2Launch, UserDataOfAnotherFormIsRefused) {
  EXPECT_THROW(user_data_with_key("Content-Type: multipart/mixed", "ssh-ed25519 A"), Error);
  const std::string both = user_data_with_key("#cloud-config\nruncmd: [ls]\n", "ssh-ed25519 A");
  EXPECT_EQ(both.find("Content-Type: multipart/mixed"), 0u);
  EXPECT_NE(both.find("runcmd: [ls]"), std::string::npos);
}

TEST(Ec2Launch, UserDataThatEc2WouldNotTakeIsRefused) {
  LaunchOrder of = order({{"InstanceType", "m5.large"}, {"UserData", "#!/bin/sh\n" + std::string(16300, '#')}});
  EXPECT_THROW(plan_launch(lab(), around(), of), Error);
  of.head_key.clear();
  EXPECT_NO_THROW(plan_launch(lab(), around(), of)) << "without the key it fits";
}

TEST(Ec2Surroundings, ReadBackAsWritten) {
  Ec2Surroundings all = around();
  all.zones = {{"subnet-a", "eu-west-1a"}};
  all.template_keys = {{"worker", {"ImageId"}}};
  all.absent_profiles = {"ray-autoscaler-v1"};
  EXPECT_EQ(surroundings_from_json(to_json(all)), all);
  EXPECT_THROW(surroundings_from_json(json::array()), Error);
}

TEST(Ec2Images, AreFoundByIdParameterNameOrDefault) {
  const auto wish = [](const json& config) {
    const ImageWish one = image_wish(config);
    return std::to_string(static_cast<int>(one.kind)) + " " + one.text;
  };
  EXPECT_EQ(wish({{"ImageId", "ami-7"}}), "0 ami-7");
  EXPECT_EQ(wish({{"ImageId", "resolve:ssm:/mine/image"}}), "1 /mine/image");
  EXPECT_EQ(wish({{"ImageId", "name:trainer-*"}}), "2 trainer-*");
  EXPECT_NE(wish({{"ImageId", "latest_dlami"}}).find("deeplearning/ami/x86_64"), std::string::npos);
  EXPECT_NE(wish({{"InstanceType", "g5.xlarge"}}).find("deeplearning/ami/x86_64"), std::string::npos);
  EXPECT_NE(wish({{"InstanceType", "m5.large"}}).find("ubuntu/server/22.04/stable/current/amd64"), std::string::npos);
  EXPECT_NE(wish({{"InstanceType", "c6g.large"}}).find("current/arm64"), std::string::npos);
}

}  // namespace
}  // namespace rubato::clouds

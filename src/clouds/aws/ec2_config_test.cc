#include "clouds/aws/ec2_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "clouds/common/address_range.h"
#include "model/cluster_file.h"
#include "model/cluster_spec.h"

namespace rubato::clouds {
namespace {

ClusterFile read(const std::string& provider, const std::string& config = "{InstanceType: m5.large}") {
  return read_cluster_file("cluster_name: lab\nprovider: {type: aws, " + provider +
                               "}\navailable_node_types:\n  a:\n    node_config: " + config +
                               "\n    min_workers: 1\nhead_node_type: a\nmax_workers: 2\n",
                           "c.yaml");
}

std::string first_error(const ClusterFile& file) {
  for (const Finding& one : file.findings) {
    if (one.severity == Severity::kError) return one.where + " " + one.message + " | " + one.hint;
  }
  return "";
}

TEST(Ec2Config, RangesOfAddresses) {
  EXPECT_EQ(normal_cidr("203.0.113.7"), "203.0.113.7/32");
  EXPECT_EQ(normal_cidr("10.0.0.0/8"), "10.0.0.0/8");
  EXPECT_EQ(normal_cidr("2001:db8::1"), "2001:db8::1/128");
  for (const char* bad : {"", "10.0.0", "10.0.0.256", "10.0.0.0/33", "example.org", "10.0.0.0/", "1.2.3.4.5", ":"}) {
    EXPECT_EQ(normal_cidr(bad), std::nullopt) << bad;
  }
}

TEST(Ec2Config, IsCompiledFromTheFile) {
  const ClusterFile file = read(
      "region: us-east-1, availability_zone: 'us-east-1a,us-east-1b', ssh_from: 203.0.113.7, cache_stopped_nodes: no, "
      "security_group: {GroupName: g, IpPermissions: [{FromPort: 443, ToPort: 443, IpProtocol: TCP, IpRanges: "
      "[{CidrIp: 0.0.0.0/0}]}]}, key_pair: {key_name: k}, use_internal_ips: true, use_external_head_ip: true");
  EXPECT_EQ(first_error(file), "");
  const Ec2Config config = ec2_config_from_json(compile_ec2_config(file));
  EXPECT_EQ(config.cluster, "lab");
  EXPECT_EQ(config.region, "us-east-1");
  EXPECT_EQ(config.zones, (std::vector<std::string>{"us-east-1a", "us-east-1b"}));
  EXPECT_EQ(config.ssh_from, std::vector<std::string>{"203.0.113.7/32"});
  EXPECT_FALSE(config.cache_stopped);
  EXPECT_TRUE(config.internal_only);
  EXPECT_FALSE(config.internal_head);
  EXPECT_EQ(config.group_name, "g");
  ASSERT_EQ(config.rules.size(), 1u);
  EXPECT_EQ(config.rules[0].protocol, "tcp");
  EXPECT_EQ(config.rules[0].to_port, 443);
  EXPECT_EQ(config.rules[0].cidrs, std::vector<std::string>{"0.0.0.0/0"});
  EXPECT_EQ(config.key_name, "k");
}

TEST(Ec2Config, FileSystemsAreAnIdANameOrSections) {
  const auto all = [](const std::string& text) {
    const ClusterFile file = read("efs: " + text);
    EXPECT_EQ(first_error(file), "") << text;
    return ec2_config_from_json(compile_ec2_config(file)).file_systems;
  };
  EXPECT_TRUE(all("null").empty());
  EXPECT_EQ(all("fs-1")[0].id, "fs-1");
  EXPECT_EQ(all("shared")[0].name, "shared");
  const auto two = all("[{name: a, mount: ~/efs, remove: true}, fs-2]");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].mount, "~/efs");
  EXPECT_TRUE(two[0].remove);
  EXPECT_EQ(two[1].mount, "/mnt/efs2");
  EXPECT_NE(first_error(read("efs: {nmae: a}")).find("nmae"), std::string::npos);
  for (const char* bad :
       {"{}", "{id: x}", "'fs-1;x'", "{id: 'fs-1;x'}", "{id: fs-1, name: b}", "{name: a, mount: efs}",
        "{name: a, mount: '/a b'}", "{name: a, mount: '/a$(b)'}", "{name: a, mountpoint: /b}",
        "{name: a, remove: perhaps}"}) {
    EXPECT_NE(first_error(read(std::string("efs: ") + bad)), "") << bad;
  }
}

struct Bad {
  const char* provider;
  const char* config;
  const char* told;
};

TEST(Ec2Config, WhatIsWrongIsToldAtItsPlace) {
  const Bad cases[] = {
      {"ssh_from: everywhere", "{}", "c.yaml:2:33 'everywhere' is no range of addresses | write 203.0.113.7"},
      {"ssh_from: [10.0.0.0/8, 1.2.3]", "{}", "c.yaml:2:46 '1.2.3' is no range"},
      {"aws_credentials: {aws_access_key_id: AKIA}", "{}", "c.yaml:2:40 credentials in a cluster file would travel"},
      {"security_group: {IpPermissions: [{FromPort: 1, Port: 2}]}", "{}", "c.yaml:2:70"},
      {"region: r", "{InstanceTyp: m5.large}",
       "c.yaml:5:19 EC2's RunInstances does not know \"InstanceTyp\" | did you "
       "mean InstanceType?"},
      {"region: r", "{BlockDeviceMappings: {DeviceName: x}}", "c.yaml:5:40 BlockDeviceMappings must be a list"},
      {"region: r", "{BlockDeviceMappings: [{Ebs: {VolumeSize: big}}]}", "c.yaml:5:60 expected a whole number"},
      {"region: r", "{MinCount: 3}", "c.yaml:5:19 MinCount is decided by Rubato for each machine | leave it out"},
      {"region: r", "{EbsOptimized: 1}", "c.yaml:5:33 expected true or false"},
      {"region: r", "{SubnetIds: subnet-1}", "c.yaml:5:30"},
  };
  for (const Bad& bad : cases) {
    const std::string told = first_error(read(bad.provider, bad.config));
    EXPECT_EQ(told.find(bad.told), 0u) << bad.provider << " " << bad.config << "\n" << told;
  }
}

TEST(Ec2Config, UserDataThatWorkersCannotHaveIsTold) {
  const auto told = [](const std::string& data) {
    const ClusterFile file = read("region: r", "{InstanceType: m5.large, UserData: '" + data + "'}");
    for (const Finding& one : file.findings) {
      if (one.message.starts_with("UserData")) return std::string(to_string(one.severity)) + ": " + one.message;
    }
    return std::string();
  };
  EXPECT_EQ(told("#!/bin/sh ls"), "");
  EXPECT_EQ(told("#!" + std::string(16384, 'x')), "error: UserData has 16386 bytes, and EC2 takes 16384");
  EXPECT_EQ(told("Content-Type: x").find("warning: UserData is neither a shell script"), 0u);
}

TEST(Ec2Config, CloudwatchIsAcceptedWithANote) {
  const ClusterFile file = read("cloudwatch: {alarm: {config: x}}");
  EXPECT_EQ(first_error(file), "");
  const auto noted = [](const Finding& one) { return one.message.find("CloudWatch") != std::string::npos; };
  EXPECT_TRUE(std::ranges::any_of(file.findings, noted));
}

TEST(Ec2Types, FillInResourcesAndPrices) {
  const ClusterSpec spec = cluster_spec_of(
      read("region: us-east-1", "{InstanceType: g4dn.12xlarge, InstanceMarketOptions: {MarketType: spot}}"));
  const NodeType& type = spec.types.at("a");
  EXPECT_EQ(type.resources.of("CPU"), 48'000);
  EXPECT_EQ(type.resources.of("GPU"), 4'000);
  EXPECT_EQ(type.resources.of("accelerator_type:T4"), 1'000);
  ASSERT_EQ(type.offerings.size(), 1u);
  EXPECT_EQ(type.offerings[0].market, Market::kSpot);
  EXPECT_NEAR(type.offerings[0].price_per_hour, 3.912 * 0.35, 1e-9);
  EXPECT_TRUE(cluster_spec_of(read("region: r", "{InstanceType: x9.huge}")).types.at("a").resources.empty())
      << "known when one has joined";
  EXPECT_EQ(cluster_spec_of(read("region: r", "{InstanceType: g6e.xlarge}")).types.at("a").resources.of("GPU"), 1'000);
}

TEST(Ec2Types, OneThatIsNotKnownIsTold) {
  const auto told = [](const std::string& type) {
    for (const Finding& one : read("region: r", type).findings) {
      if (one.message.find("is not known here") != std::string::npos) return one.where;
    }
    return std::string();
  };
  EXPECT_EQ(told("{InstanceType: x9.huge}"), "c.yaml:5:33");
  EXPECT_EQ(told("{InstanceType: x9.huge}\n    resources: {CPU: 4}"), "");
  EXPECT_EQ(told("{InstanceType: m5.large}"), "");
}

}  // namespace
}  // namespace rubato::clouds

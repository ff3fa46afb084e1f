// What AWS tells of a cluster without anything being changed, against tests/aws/fake_aws.py.
#include "clouds/aws/ec2_survey.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "aws/account.h"
#include "aws/ec2.h"
#include "aws/fake_aws_testing.h"
#include "clouds/aws/ec2_head.h"
#include "clouds/aws/spot_prices.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using provider::CheckResult;
using provider::CloudCheck;
using provider::CloudInventory;
using provider::CloudResource;

class Ec2SurveyTest : public aws::FakeAwsFixture {
 protected:
  void SetUp() override {
    aws::FakeAwsFixture::SetUp();
    set({{"boot_s", 0.0}, {"shutdown_s", 0.0}});
    write("");
  }

  void write(const std::string& disks, const std::string& image = "ami-0000000000000002", int most = 2) {
    file = read_cluster_file(
        "cluster_name: lab\nprovider: {type: aws, region: eu-west-1, ssh_from: 203.0.113.7}\n"
        "available_node_types:\n  head: {node_config: {InstanceType: m5.large, ImageId: " +
            image + disks + "}, max_workers: 0}\n  worker: {node_config: {InstanceType: m5.large, ImageId: " + image +
            "}, max_workers: " + std::to_string(most) + "}\nhead_node_type: head\nmax_workers: " +
            std::to_string(most) + "\n",
        "c.yaml");
    for (const Finding& one : file.findings) EXPECT_NE(one.severity, Severity::kError) << one.message;
  }

  std::vector<std::string> variables() const {
    std::vector<std::string> out;
    for (const auto& [name, value] : settings.env) out.push_back(name + "=" + value);
    return out;
  }

  template <class Result>
  static Task<int> run_into(Task<Result> task, Result& out) {
    out = co_await std::move(task);
    co_return 0;
  }
  void head(bool up) {
    provider::HeadMachineSettings of;
    of.cluster_folder = folder + "/cluster";
    of.authorized_keys = {"ssh-ed25519 AAAA person"};
    of.env = variables();
    provider::HeadMachine out;
    runtime.run(run_into(up ? make_ec2_head(world, file, of) : end_ec2_head(world, file, of), out));
  }
  static Task<void> terminate(aws::Client& client, std::string id) {
    std::vector<std::string> ids{std::move(id)};
    co_await aws::terminate_instances(client, std::move(ids));
  }
  CloudInventory list() {
    CloudInventory out;
    runtime.run(run_into(list_ec2(world, file, variables()), out));
    return out;
  }
  std::vector<CloudCheck> check() {
    std::vector<CloudCheck> out;
    runtime.run(run_into(check_ec2(world, file, variables()), out));
    return out;
  }
  static CloudCheck of(const std::vector<CloudCheck>& checks, const std::string& name) {
    const auto found = std::ranges::find(checks, name, &CloudCheck::check);
    return found == checks.end() ? CloudCheck{"", CheckResult::kFail, "no such check: " + name, ""} : *found;
  }
  // What was asked that may change something.
  std::vector<std::string> changes() {
    std::vector<std::string> out;
    for (const json& one : control("GET", "/_fake/requests")) {
      const std::string operation = one["operation"];
      const bool reads = operation.starts_with("Describe") || operation.starts_with("Get") ||
                         operation.starts_with("Simulate") || one["parameters"].value("DryRun", false);
      if (!reads) out.push_back(operation);
    }
    return out;
  }
  static std::vector<std::string> kinds(const CloudInventory& inventory, bool in_use) {
    std::vector<std::string> out;
    for (const CloudResource& one : inventory.found) {
      if (one.in_use == in_use) out.push_back(one.kind);
    }
    return out;
  }

  ClusterFile file;
};

using Words = std::vector<std::string>;

TEST_F(Ec2SurveyTest, EverythingOfARunningClusterIsInUse) {
  EXPECT_TRUE(list().found.empty());
  head(true);
  const CloudInventory all = list();
  EXPECT_EQ(kinds(all, true),
            (Words{"instance", "volume", "security group", "key pair", "instance profile", "role"}));
  EXPECT_TRUE(kinds(all, false).empty());
  EXPECT_TRUE(all.unread.empty());
  EXPECT_EQ(all.found[0].detail, "head, running, m5.large");
  EXPECT_DOUBLE_EQ(all.found[0].price_per_hour.value_or(0), 0.096);
  EXPECT_EQ(all.found[0].where, "eu-west-1a");
  head(false);
  EXPECT_TRUE(list().found.empty());
}

TEST_F(Ec2SurveyTest, WithoutItsHeadEverythingIsLeftOver) {
  head(true);
  const std::string id = list().found[0].name;
  act([id](aws::Client& client) { return terminate(client, id); });
  const CloudInventory left = list();
  EXPECT_EQ(kinds(left, false), (Words{"security group", "key pair", "instance profile", "role"}));
  for (const CloudResource& one : left.found) {
    EXPECT_TRUE(one.goes_with_down);
    EXPECT_TRUE(one.remove.starts_with("aws ")) << one.remove;
  }
}

TEST_F(Ec2SurveyTest, AVolumeThatNobodyHoldsCostsMoneyAndIsNamed) {
  write(", BlockDeviceMappings: [{DeviceName: /dev/sda1, Ebs: {VolumeSize: 100, VolumeType: gp3, "
        "DeleteOnTermination: false}}]");
  head(true);
  EXPECT_TRUE(kinds(list(), false).empty());
  head(false);
  const CloudInventory left = list();
  ASSERT_EQ(kinds(left, false), Words{"volume"});
  EXPECT_FALSE(left.found[0].goes_with_down);
  EXPECT_NEAR(left.found[0].price_per_hour.value_or(0), 8.0 / 730, 1e-9);
  EXPECT_TRUE(left.found[0].remove.starts_with("aws ec2 delete-volume --volume-id vol-")) << left.found[0].remove;
}

TEST_F(Ec2SurveyTest, StrangersThingsAreNotListedWhateverTheFilterLetsThrough) {
  head(true);
  set({{"habits", {"no filters"}}});
  file.name = "other";
  EXPECT_TRUE(list().found.empty());
}

TEST_F(Ec2SurveyTest, WhatMayNotBeReadIsToldAndTheRestIsListed) {
  head(true);
  set({{"refuse", {{"DescribeVolumes", {"UnauthorizedOperation", 403}}}}});
  const CloudInventory some = list();
  EXPECT_EQ(kinds(some, true), (Words{"instance", "security group", "key pair", "instance profile", "role"}));
  ASSERT_EQ(some.unread.size(), 1u);
  EXPECT_TRUE(some.unread[0].starts_with("volumes: ec2 DescribeVolumes: UnauthorizedOperation")) << some.unread[0];
}

TEST_F(Ec2SurveyTest, ADoctorChangesNothing) {
  const std::vector<CloudCheck> checks = check();
  for (const CloudCheck& one : checks) EXPECT_EQ(one.result, CheckResult::kOk) << one.check << ": " << one.found;
  EXPECT_TRUE(of(checks, "credentials").found.starts_with("arn:aws:iam::123456789012:user/tester, by AKIAFAKE"));
  EXPECT_EQ(of(checks, "region").found, "eu-west-1, with eu-west-1a, eu-west-1b, eu-west-1c");
  EXPECT_NE(of(checks, "images").found.find("ami-0000000000000002"), std::string::npos);
  EXPECT_EQ(of(checks, "types").found, "m5.large (2 vCPUs)");
  EXPECT_EQ(of(checks, "permissions").found, "all that could be tried are there");
  EXPECT_EQ(of(checks, "ssh").found, "let in from 203.0.113.7/32");
  EXPECT_TRUE(changes().empty()) << changes().front();
}

TEST_F(Ec2SurveyTest, MissingPermissionsAreAStatementToAdd) {
  set({{"refuse",
        {{"RunInstances", {"UnauthorizedOperation", 403}}, {"CreateRole", {"AccessDenied", 403}}}}});
  const CloudCheck told = of(check(), "permissions");
  EXPECT_EQ(told.result, CheckResult::kFail);
  EXPECT_EQ(told.found, "missing: ec2:RunInstances, iam:CreateRole");
  EXPECT_NE(told.fix.find(R"({"Effect": "Allow", "Action": ["ec2:RunInstances", "iam:CreateRole"], "Resource": "*"})"),
            std::string::npos);
  // A server that has no dry runs would make things.
  set({{"habits", {"no dry runs"}}, {"refuse", {{"SimulatePrincipalPolicy", {"AccessDenied", 403}}}}});
  const CloudCheck unknown = of(check(), "permissions");
  EXPECT_EQ(unknown.result, CheckResult::kOk);
  EXPECT_NE(unknown.found.find("not tried: ec2:CreateSecurityGroup"), std::string::npos) << unknown.found;
  EXPECT_TRUE(changes().empty()) << changes().front();
}

TEST_F(Ec2SurveyTest, WhatIsNotThereIsTold) {
  write("", "ami-00000000000000ff");
  const CloudCheck image = of(check(), "images");
  EXPECT_EQ(image.result, CheckResult::kFail);
  EXPECT_NE(image.found.find("no image 'ami-00000000000000ff'"), std::string::npos) << image.found;
  EXPECT_NE(image.found.find("c.yaml:4:"), std::string::npos) << image.found;
  settings.env["AWS_SECRET_ACCESS_KEY"] = "wrong";
  const std::vector<CloudCheck> checks = check();
  ASSERT_EQ(checks.size(), 1u) << "without credentials there is nothing else to ask";
  EXPECT_EQ(checks[0].result, CheckResult::kFail);
}

TEST_F(Ec2SurveyTest, QuotasAreComparedWithWhatTheClusterMayNeed) {
  set({{"quotas", {{"L-1216C47A", 32}}}});
  EXPECT_EQ(of(check(), "quota").result, CheckResult::kOk);
  write("", "ami-0000000000000002", 20);
  const CloudCheck tight = of(check(), "quota");
  EXPECT_EQ(tight.result, CheckResult::kWarn);
  EXPECT_NE(tight.found.find("32 vCPUs; with all its workers the cluster needs 42"), std::string::npos) << tight.found;
  set({{"quotas", {{"L-1216C47A", 0}}}});
  EXPECT_EQ(of(check(), "quota").result, CheckResult::kFail);
}

TEST_F(Ec2SurveyTest, SpotPricesAreThoseOfNowForTypesWhoseFileGivesNone) {
  file = read_cluster_file(
      "cluster_name: lab\nprovider: {type: aws, region: eu-west-1, ssh_from: 203.0.113.7}\navailable_node_types:\n"
      "  head: {node_config: {InstanceType: m5.large}, max_workers: 0}\n"
      "  live: {node_config: {InstanceType: m5.large}, spot: true, max_workers: 2}\n"
      "  given: {node_config: {InstanceType: c5.4xlarge}, spot: true, spot_price_per_hour: 0.1, max_workers: 2}\n"
      "head_node_type: head\nmax_workers: 2\n",
      "c.yaml");
  std::vector<provider::LivePrice> prices;
  runtime.run(run_into(ec2_prices(world, file, variables()), prices));
  ASSERT_EQ(prices.size(), 3u) << "one in each zone";
  for (const provider::LivePrice& one : prices) EXPECT_EQ(one.node_type, "live");
  EXPECT_NEAR(prices[0].price_per_hour, 0.096 * 0.3, 1e-6);
}

TEST(Account, PrincipalsAndQuotasOfNames) {
  EXPECT_EQ(aws::principal_of("arn:aws:sts::1:assumed-role/dev/ann"), "arn:aws:iam::1:role/dev");
  EXPECT_EQ(aws::principal_of("arn:aws:iam::1:user/ann"), "arn:aws:iam::1:user/ann");
  EXPECT_EQ(aws::principal_of("arn:aws:iam::1:root"), "");
  EXPECT_EQ(aws::vcpu_quota_code("g5.xlarge", false), "L-DB2E81BA");
  EXPECT_EQ(aws::vcpu_quota_code("p4d.24xlarge", true), "L-7212CCBC");
  EXPECT_EQ(aws::vcpu_quota_code("im4gn.large", false), "L-1216C47A");
  EXPECT_EQ(aws::vcpu_quota_code("trn1.2xlarge", false), std::nullopt);
}

}  // namespace
}  // namespace rubato::clouds

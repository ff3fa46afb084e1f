#include "aws/policy.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace rubato::aws {
namespace {

using nlohmann::json;

json statements(PolicyRequest request) { return json::parse(make_policy(request))["Statement"]; }

// What is made has no tags yet that a condition could ask for: its request has.
TEST(Policy, AsksForTagsOnlyWhereThereCanBeSome) {
  PolicyRequest request;
  request.cluster = "lab";
  const std::set<std::string> making = {"ec2:RunInstances", "autoscaling:CreateAutoScalingGroup"};
  int found = 0;
  for (const json& one : statements(request)) {
    const std::string condition = one.value("Condition", json::object()).dump();
    for (const json& action : one["Action"]) {
      const std::string name = action;
      if (!making.contains(name) && name.find(":Create") == std::string::npos) continue;
      if (name == "ec2:CreateTags" || name == "elasticfilesystem:CreateMountTarget") continue;  // of what is there
      ++found;
      EXPECT_EQ(condition.find("aws:ResourceTag"), std::string::npos) << name;
    }
  }
  EXPECT_GE(found, 5);
}

TEST(Policy, TheHeadPassesOurRolesAndThoseOfTheFile) {
  PolicyRequest request;
  request.whom = PolicyFor::kHead;
  request.cluster = "lab";
  request.pass_roles = {"arn:aws:iam::1:role/readers"};
  for (const json& one : statements(request)) {
    if (one["Sid"] != "GiveRoles") continue;
    EXPECT_EQ(one["Resource"], (json{"arn:aws:iam::*:role/rubato-*", "arn:aws:iam::1:role/readers"}));
    return;
  }
  FAIL() << "nothing is said of roles";
}

// AWS makes its role for spot machines when an account asks for the first one: the head asks.
TEST(Policy, AnAccountsFirstSpotMachineMayBeAskedFor) {
  for (const PolicyFor whom : {PolicyFor::kUser, PolicyFor::kHead, PolicyFor::kWorkers}) {
    PolicyRequest request;
    request.whom = whom;
    request.cluster = "lab";
    request.partition = "aws-cn";
    request.buckets = {"data"};
    int found = 0;
    for (const json& one : statements(request)) {
      if (one["Action"] != json{"iam:CreateServiceLinkedRole"}) continue;
      ++found;
      EXPECT_EQ(one["Resource"], "arn:aws-cn:iam::*:role/aws-service-role/*");
      const json services = one["Condition"]["StringEquals"]["iam:AWSServiceName"];
      EXPECT_EQ(services[0], "spot.amazonaws.com");
    }
    EXPECT_EQ(found, whom == PolicyFor::kWorkers ? 0 : 1);
  }
}

// IAM takes 6,144 characters of a managed policy, 10,240 of a role's own; blanks do not count.
TEST(Policy, FitsIntoWhatIamTakes) {
  PolicyRequest request;
  request.cluster = "a-cluster-with-a-long-name-of-its-own";
  request.partition = "aws-us-gov";
  request.buckets = {"data", "more-data"};
  const auto size_of = [&] { return json::parse(make_policy(request)).dump().size(); };
  EXPECT_LE(size_of(), 6144u);
  request.whom = PolicyFor::kHead;
  EXPECT_LE(size_of(), 10240u);
}

}  // namespace
}  // namespace rubato::aws

#include "petctl/job_plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "aws/params.h"
#include "core/error.h"
#include "petctl/petctl_testing.h"
#include "petctl/user_data.h"
#include "petctl/user_policy.h"

namespace rubato::petctl {
namespace {

TEST(JobPlan, PetctlHasTwoGroupsAndTheNativeFormOne) {
  JobRequest request = sample_request();
  const JobPlan plan = make_plan(request, sample_specs());
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].name, "ann-job_rdzv");
  EXPECT_EQ(plan.groups[0].size, 1);
  EXPECT_EQ(plan.groups[1].name, "ann-job_worker");
  EXPECT_EQ(plan.groups[1].min_size, 1);
  EXPECT_EQ(plan.groups[1].max_size, 4);
  EXPECT_EQ(plan.place(), "s3://bucket/petctl/ann/ann-job");
  EXPECT_EQ(plan.script_key, "petctl/ann/ann-job/imagenet.tar.zst");
  EXPECT_EQ(plan.binary_key, "petctl/ann/bin/" + std::string(64, 'b') + "/rubato");
  request.rdzv_group = false;
  EXPECT_EQ(make_plan(request, sample_specs()).groups.size(), 1u);
}

TEST(JobPlan, UserDataIsTheGoldenOne) {
  const JobPlan plan = make_plan(sample_request(), sample_specs());
  EXPECT_EQ(plan.groups[0].user_data, sample_text("user_data_rdzv.txt"));
  EXPECT_EQ(plan.groups[1].user_data, sample_text("user_data_worker.txt"));
}

TEST(JobPlan, TheSameRequestGivesTheSamePlanAndAnotherGivesAnother) {
  const JobPlan plan = make_plan(sample_request(), sample_specs());
  EXPECT_EQ(make_plan(sample_request(), sample_specs()).digest, plan.digest);
  JobRequest other = sample_request();
  other.args.pop_back();
  EXPECT_NE(make_plan(other, sample_specs()).digest, plan.digest);
  EXPECT_NE(make_plan(other, sample_specs()).groups[1].template_name, plan.groups[1].template_name);
  other = sample_request();
  other.script_sha256 = std::string(64, 'd');
  EXPECT_NE(make_plan(other, sample_specs()).digest, plan.digest);
}

TEST(JobPlan, NamesAndSizesThatCannotBeAreRefused) {
  for (const char* name : {"", "a b", "-a", "a/b", "a;reboot", "ä"}) {
    JobRequest request = sample_request();
    request.name = name;
    EXPECT_THROW(make_plan(request, sample_specs()), Error) << name;
  }
  JobRequest request = sample_request();
  request.size = 5;
  EXPECT_THROW(make_plan(request, sample_specs()), Error);
  request.max_size = 0;
  EXPECT_EQ(make_plan(request, sample_specs()).groups[1].max_size, 5);
}

TEST(JobPlan, LaunchConfigIsWhatEc2Takes) {
  const JobPlan plan = make_plan(sample_request(), sample_specs());
  Found found;
  found.image = "ami-1";
  found.root_device = "/dev/sda1";
  found.security_groups = {"sg-1"};
  const nlohmann::json config = launch_config(plan.groups[1], found, group_tags(plan, plan.groups[1]));
  EXPECT_NO_THROW(aws::run_instances_params(config));
  EXPECT_EQ(config["ImageId"], "ami-1");
  EXPECT_EQ(config["IamInstanceProfile"]["Name"], "reader");
  EXPECT_EQ(config["KeyName"], "ann");
  EXPECT_EQ(config["NetworkInterfaces"][0]["Groups"][0], "sg-1");
  EXPECT_EQ(config["BlockDeviceMappings"][0]["DeviceName"], "/dev/sda1");
  EXPECT_EQ(config["MetadataOptions"]["HttpTokens"], "required");
}

TEST(JobPlan, ImagesGoWithTheAcceleratorAndTheContainer) {
  const Specs specs = sample_specs();
  EXPECT_EQ(image_parameter(specs.worker, true),
            "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id");
  EXPECT_EQ(image_parameter(specs.rdzv, true), "/aws/service/ecs/optimized-ami/amazon-linux-2023/recommended/image_id");
  EXPECT_NE(image_parameter(specs.rdzv, false).find("ubuntu"), std::string::npos);
  EXPECT_NE(image_parameter(specs.worker, false).find("nvidia"), std::string::npos);
}

TEST(JobPlan, TheMissingStatementsNameTheJobsOwnPlaceAndGroups) {
  const JobPlan plan = make_plan(sample_request(), sample_specs());
  const nlohmann::json statements = nlohmann::json::parse(wanted_statements(plan, "aws"));
  EXPECT_EQ(statements[0]["Resource"], "arn:aws:s3:::bucket/petctl/ann/ann-job/rubato/*");
  EXPECT_EQ(statements[2]["Action"][0], "autoscaling:DeleteAutoScalingGroup");
  EXPECT_EQ(statements[2]["Resource"].size(), 2u);
  const nlohmann::json policy = nlohmann::json::parse(role_policy(plan, "aws"));
  EXPECT_EQ(policy["Statement"].size(), statements.size() + 1);
}

TEST(JobPlan, ThePolicyOfAPersonHasNoWildcardsInActions) {
  const nlohmann::json policy = nlohmann::json::parse(make_user_policy({"my-data"}, "aws-cn"));
  for (const nlohmann::json& statement : policy["Statement"]) {
    for (const std::string action : statement["Action"]) EXPECT_EQ(action.find('*'), std::string::npos) << action;
  }
  EXPECT_EQ(policy["Statement"].back()["Resource"][0], "arn:aws-cn:s3:::my-data/*");
}

TEST(UserData, WhatAPersonGivesIsNotExpanded) {
  const JobPlan plan = make_plan(sample_request(), sample_specs());
  const std::string& text = plan.groups[1].user_data;
  const size_t begin = text.find("<<'RUBATO_ORDER'\n") + 17;
  const size_t end = text.find("\nRUBATO_ORDER\n", begin);
  const NodeOrder order = parse_order(text.substr(begin, end - begin));
  EXPECT_EQ(order.args, sample_request().args);
  EXPECT_EQ(text.find("$(reboot)"), text.rfind("$(reboot)"));
  EXPECT_LT(text.find("$(reboot)"), end);
}

TEST(UserData, TooLongArgumentsAreRefused) {
  JobRequest request = sample_request();
  request.args = {std::string(kUserDataMax, 'x')};
  EXPECT_THROW(make_plan(request, sample_specs()), Error);
}

TEST(JobPlan, HostsAskTheSameServersAsTheClient) {
  JobRequest request = sample_request();
  request.s3_endpoint = "http://10.0.0.9:5000";
  request.endpoints = {{"AWS_ENDPOINT_URL_AUTO_SCALING", "http://10.0.0.9:5000"},
                       {"AWS_ENDPOINT_URL_S3", "http://10.0.0.9:5000/a b"}};
  const JobPlan plan = make_plan(request, sample_specs());
  for (const GroupPlan& group : plan.groups) {
    EXPECT_NE(group.user_data.find("export HOME=/root AWS_REGION=eu-west-1 AWS_ENDPOINT_URL_AUTO_SCALING="
                                   "http://10.0.0.9:5000 AWS_ENDPOINT_URL_S3='http://10.0.0.9:5000/a b'\n"),
              std::string::npos)
        << group.user_data;
  }
}

}  // namespace
}  // namespace rubato::petctl

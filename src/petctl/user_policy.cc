#include "petctl/user_policy.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "aws/policy.h"
#include "petctl/job_plan.h"

namespace rubato::petctl {
namespace {

using Json = nlohmann::ordered_json;

Json allow(const char* id, Json actions, Json resources) {
  return {{"Sid", id}, {"Effect", "Allow"}, {"Action", std::move(actions)}, {"Resource", std::move(resources)}};
}

Json only_tagged(Json statement, const char* key) {
  statement["Condition"] = {{"StringLike", {{fmt::format("{}/{}", key, kJobTag), "*"}}}};
  return statement;
}

void add_hosts(Json& out, const std::string& partition) {
  out.push_back(allow(
      "Read",
      {"autoscaling:DescribeAutoScalingGroups", "ec2:DescribeImages", "ec2:DescribeInstances",
       "ec2:DescribeInstanceTypes", "ec2:DescribeLaunchTemplates", "ec2:DescribeSecurityGroups", "ec2:DescribeSubnets"},
      "*"));
  out.push_back(allow("ReadPublicImageNames", {"ssm:GetParameter"},
                      fmt::format("arn:{}:ssm:*::parameter/aws/service/*", partition)));
  // Auto Scaling asks for RunInstances of who makes a group from a launch template.
  out.push_back(allow("Make", {"ec2:CreateLaunchTemplate", "ec2:CreateSecurityGroup", "ec2:RunInstances"}, "*"));
  Json tags = allow("TagWhatIsMade", {"ec2:CreateTags"}, fmt::format("arn:{}:ec2:*:*:*/*", partition));
  tags["Condition"] = {
      {"StringEquals", {{"ec2:CreateAction", {"CreateLaunchTemplate", "CreateSecurityGroup", "RunInstances"}}}}};
  out.push_back(std::move(tags));
  out.push_back(only_tagged(allow("MakeGroups", {"autoscaling:CreateAutoScalingGroup"}, "*"), "aws:RequestTag"));
  out.push_back(
      only_tagged(allow("ChangeGroups", {"autoscaling:DeleteAutoScalingGroup", "autoscaling:SetDesiredCapacity"}, "*"),
                  "aws:ResourceTag"));
  out.push_back(only_tagged(allow("ChangeOwn",
                                  {"ec2:AuthorizeSecurityGroupIngress", "ec2:DeleteLaunchTemplate",
                                   "ec2:DeleteSecurityGroup", "ec2:GetConsoleOutput", "ec2:TerminateInstances"},
                                  "*"),
                            "aws:ResourceTag"));
}

void add_roles(Json& out, const std::string& partition) {
  out.push_back(allow("SeeRoles", {"iam:GetInstanceProfile", "iam:SimulatePrincipalPolicy"}, "*"));
  out.push_back(allow("OwnRoles",
                      {"iam:CreateRole", "iam:DeleteRole", "iam:PutRolePolicy", "iam:DeleteRolePolicy",
                       "iam:CreateInstanceProfile", "iam:DeleteInstanceProfile", "iam:AddRoleToInstanceProfile",
                       "iam:RemoveRoleFromInstanceProfile", "iam:TagRole", "iam:TagInstanceProfile"},
                      {fmt::format("arn:{}:iam::*:role/rubato-job-*", partition),
                       fmt::format("arn:{}:iam::*:instance-profile/rubato-job-*", partition)}));
  Json pass = allow("GiveRoles", {"iam:PassRole"}, fmt::format("arn:{}:iam::*:role/*", partition));
  pass["Condition"] = {{"StringEquals", {{"iam:PassedToService", "ec2.amazonaws.com"}}}};
  out.push_back(std::move(pass));
  out.push_back(aws::service_role_statement({"autoscaling.amazonaws.com", "spot.amazonaws.com"}, partition));
}

}  // namespace

std::string make_user_policy(const std::vector<std::string>& buckets, const std::string& partition) {
  Json statements = Json::array();
  add_hosts(statements, partition);
  add_roles(statements, partition);
  Json whole = Json::array(), objects = Json::array();
  for (const std::string& bucket : buckets) {
    whole.push_back(fmt::format("arn:{}:s3:::{}", partition, bucket));
    objects.push_back(fmt::format("arn:{}:s3:::{}/*", partition, bucket));
  }
  if (!buckets.empty()) {
    statements.push_back(allow("ListBuckets", {"s3:ListBucket"}, std::move(whole)));
    statements.push_back(allow(
        "Objects",
        {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"},
        std::move(objects)));
  }
  return Json{{"Version", "2012-10-17"}, {"Statement", std::move(statements)}}.dump(2) + "\n";
}

}  // namespace rubato::petctl

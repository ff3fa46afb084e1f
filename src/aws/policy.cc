#include "aws/policy.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace rubato::aws {
namespace {

using Json = nlohmann::ordered_json;

Json statement(const char* id, Json actions, Json resources) {
  return {{"Sid", id}, {"Effect", "Allow"}, {"Action", std::move(actions)}, {"Resource", std::move(resources)}};
}

class PolicyMaker {
 public:
  explicit PolicyMaker(const PolicyRequest& request) : request_(request) {}

  Json make() {
    if (request_.whom != PolicyFor::kWorkers) {
      add_reading();
      add_machines();
    }
    if (request_.whom == PolicyFor::kUser) {
      add_surroundings();
      add_roles();
      add_file_systems();
    }
    if (request_.whom == PolicyFor::kHead) add_pass_role();
    add_buckets();
    return {{"Version", "2012-10-17"}, {"Statement", std::move(statements_)}};
  }

 private:
  std::string arn(const std::string& rest) const { return fmt::format("arn:{}:{}", request_.partition, rest); }

  // Only what carries the cluster's tag.
  Json tagged(Json statement) const {
    statement["Condition"] = {
        {"StringLike", {{fmt::format("aws:ResourceTag/{}", kClusterTag), request_.cluster}}}};
    return statement;
  }

  // EC2's Describe calls know no resources: AWS accepts nothing but "*" for them.
  void add_reading() {
    statements_.push_back(statement(
        "Read",
        {"ec2:DescribeAvailabilityZones", "ec2:DescribeImages", "ec2:DescribeInstances", "ec2:DescribeInstanceTypes",
         "ec2:DescribeKeyPairs", "ec2:DescribeLaunchTemplates", "ec2:DescribeLaunchTemplateVersions",
         "ec2:DescribePlacementGroups", "ec2:DescribeSecurityGroups", "ec2:DescribeSpotPriceHistory",
         "ec2:DescribeSubnets", "ec2:DescribeVpcs", "sts:GetCallerIdentity"},
        "*"));
    statements_.push_back(
        statement("ReadPublicImageNames", {"ssm:GetParameter"}, arn("ssm:*::parameter/aws/service/*")));
  }

  void add_machines() {
    Json launch = statement("Launch", {"ec2:RunInstances"}, arn("ec2:*:*:instance/*"));
    launch["Condition"] = {{"StringLike", {{fmt::format("aws:RequestTag/{}", kClusterTag), request_.cluster}}}};
    statements_.push_back(std::move(launch));
    Json parts = Json::array();
    for (const char* kind : {"subnet", "security-group", "network-interface", "volume", "key-pair", "launch-template",
                             "placement-group", "capacity-reservation", "spot-instances-request"}) {
      parts.push_back(arn(fmt::format("ec2:*:*:{}/*", kind)));
    }
    parts.push_back(arn("ec2:*::image/*"));
    parts.push_back(arn("ec2:*::snapshot/*"));
    statements_.push_back(statement("LaunchWith", {"ec2:RunInstances"}, std::move(parts)));
    Json tags = statement("TagWhatIsMade", {"ec2:CreateTags"}, arn("ec2:*:*:*/*"));
    tags["Condition"] = {{"StringEquals",
                          {{"ec2:CreateAction",
                            {"RunInstances", "CreateSecurityGroup", "ImportKeyPair", "CreatePlacementGroup",
                             "CreateLaunchTemplate", "CreateImage"}}}}};
    statements_.push_back(std::move(tags));
    statements_.push_back(tagged(statement("ChangeOwnMachines",
                                           {"ec2:CreateTags", "ec2:DeleteTags", "ec2:GetConsoleOutput",
                                            "ec2:StartInstances", "ec2:StopInstances", "ec2:TerminateInstances"},
                                           arn("ec2:*:*:instance/*"))));
  }

  void add_surroundings() {
    statements_.push_back(statement("MakeSurroundings",
                                    {"ec2:CreateSecurityGroup", "ec2:ImportKeyPair", "ec2:CreatePlacementGroup",
                                     "ec2:CreateLaunchTemplate", "ec2:CreateImage"},
                                    "*"));
    statements_.push_back(
        tagged(statement("ChangeOwnSurroundings",
                         {"ec2:AuthorizeSecurityGroupIngress", "ec2:DeleteSecurityGroup", "ec2:DeleteKeyPair",
                          "ec2:DeletePlacementGroup", "ec2:DeleteLaunchTemplate"},
                         "*")));
    statements_.push_back(statement("ScalingGroups", {"autoscaling:DescribeAutoScalingGroups"}, "*"));
    statements_.push_back(tagged(statement("ChangeOwnScalingGroups",
                                           {"autoscaling:CreateAutoScalingGroup", "autoscaling:SetDesiredCapacity",
                                            "autoscaling:DeleteAutoScalingGroup"},
                                           "*")));
  }

  void add_roles() {
    statements_.push_back(statement("Roles",
                                    {"iam:CreateRole", "iam:DeleteRole", "iam:PutRolePolicy", "iam:DeleteRolePolicy",
                                     "iam:CreateInstanceProfile", "iam:DeleteInstanceProfile", "iam:GetInstanceProfile",
                                     "iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile",
                                     "iam:TagRole", "iam:TagInstanceProfile"},
                                    {arn("iam::*:role/rubato-*"), arn("iam::*:instance-profile/rubato-*")}));
    add_pass_role();
  }

  void add_pass_role() {
    Json pass = statement("GiveRoles", {"iam:PassRole"}, arn("iam::*:role/rubato-*"));
    pass["Condition"] = {{"StringEquals", {{"iam:PassedToService", "ec2.amazonaws.com"}}}};
    statements_.push_back(std::move(pass));
  }

  void add_file_systems() {
    statements_.push_back(statement("FileSystems",
                                    {"elasticfilesystem:DescribeFileSystems", "elasticfilesystem:DescribeMountTargets",
                                     "elasticfilesystem:CreateFileSystem", "elasticfilesystem:TagResource"},
                                    "*"));
    statements_.push_back(tagged(statement("ChangeOwnFileSystems",
                                           {"elasticfilesystem:CreateMountTarget",
                                            "elasticfilesystem:DeleteMountTarget",
                                            "elasticfilesystem:DeleteFileSystem"},
                                           "*")));
  }

  void add_buckets() {
    if (request_.buckets.empty()) return;
    Json buckets = Json::array(), objects = Json::array();
    for (const std::string& bucket : request_.buckets) {
      buckets.push_back(arn("s3:::" + bucket));
      objects.push_back(arn("s3:::" + bucket + "/*"));
    }
    statements_.push_back(statement("ListBuckets", {"s3:ListBucket"}, std::move(buckets)));
    statements_.push_back(statement("Objects",
                                    {"s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload",
                                     "s3:ListMultipartUploadParts"},
                                    std::move(objects)));
  }

  const PolicyRequest& request_;
  Json statements_ = Json::array();
};

}  // namespace

std::string make_policy(const PolicyRequest& request) { return PolicyMaker(request).make().dump(2) + "\n"; }

}  // namespace rubato::aws

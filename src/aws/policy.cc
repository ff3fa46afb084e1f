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
    if (request_.whom != PolicyFor::kWorkers) add_service_roles();
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
    // What `audit` and `doctor` read besides.
    statements_.push_back(statement("Survey", {"ec2:DescribeVolumes", "servicequotas:GetServiceQuota"}, "*"));
    statements_.push_back(statement("MakeSurroundings",
                                    {"ec2:CreateSecurityGroup", "ec2:ImportKeyPair", "ec2:CreatePlacementGroup",
                                     "ec2:CreateLaunchTemplate", "ec2:CreateImage"},
                                    "*"));
    statements_.push_back(
        tagged(statement("ChangeOwnSurroundings",
                         {"ec2:AuthorizeSecurityGroupIngress", "ec2:DeleteSecurityGroup", "ec2:DeleteKeyPair",
                          "ec2:DeletePlacementGroup", "ec2:DeleteLaunchTemplate",
                          "ec2:RevokeSecurityGroupIngress"},
                         "*")));
    statements_.push_back(statement("ScalingGroups", {"autoscaling:DescribeAutoScalingGroups"}, "*"));
    // What is not there yet has no tags of its own: those of the request count.
    Json make = statement("MakeScalingGroups", {"autoscaling:CreateAutoScalingGroup"}, "*");
    make["Condition"] = {{"StringLike", {{fmt::format("aws:RequestTag/{}", kClusterTag), request_.cluster}}}};
    statements_.push_back(std::move(make));
    statements_.push_back(
        tagged(statement("ChangeOwnScalingGroups",
                         {"autoscaling:SetDesiredCapacity", "autoscaling:DeleteAutoScalingGroup"}, "*")));
  }

  void add_roles() {
    statements_.push_back(statement("Roles",
                                    {"iam:CreateRole", "iam:DeleteRole", "iam:GetRole", "iam:PutRolePolicy",
                                     "iam:DeleteRolePolicy",
                                     "iam:CreateInstanceProfile", "iam:DeleteInstanceProfile", "iam:GetInstanceProfile",
                                     "iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile",
                                     "iam:TagRole", "iam:TagInstanceProfile"},
                                    {arn("iam::*:role/rubato-*"), arn("iam::*:instance-profile/rubato-*")}));
    // Which role a profile of the person's own has, that a file gives to its workers.
    statements_.push_back(
        statement("ReadProfiles", {"iam:GetInstanceProfile"}, arn("iam::*:instance-profile/*")));
    add_pass_role();
  }

  void add_pass_role() {
    Json roles = {arn("iam::*:role/rubato-*")};
    for (const std::string& one : request_.pass_roles) roles.push_back(one);
    Json pass = statement("GiveRoles", {"iam:PassRole"}, std::move(roles));
    pass["Condition"] = {{"StringEquals", {{"iam:PassedToService", "ec2.amazonaws.com"}}}};
    statements_.push_back(std::move(pass));
  }

  // AWS acts by roles of its own, and makes each of them at its first use in an account: for spot machines, for EFS.
  void add_service_roles() {
    Json services = {"spot.amazonaws.com"};
    if (request_.whom == PolicyFor::kUser) services.push_back("elasticfilesystem.amazonaws.com");
    statements_.push_back(service_role_statement(std::move(services), request_.partition));
  }

  void add_file_systems() {
    statements_.push_back(statement("FileSystems",
                                    {"ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface",
                                     "ec2:DescribeNetworkInterfaces", "elasticfilesystem:DescribeFileSystems",
                                     "elasticfilesystem:DescribeMountTargets",
                                     "elasticfilesystem:DescribeMountTargetSecurityGroups",
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

nlohmann::ordered_json service_role_statement(nlohmann::ordered_json services, const std::string& partition) {
  Json out = statement("FirstUseInAnAccount", {"iam:CreateServiceLinkedRole"},
                       fmt::format("arn:{}:iam::*:role/aws-service-role/*", partition));
  out["Condition"] = {{"StringEquals", {{"iam:AWSServiceName", std::move(services)}}}};
  return out;
}

std::string make_policy(const PolicyRequest& request) { return PolicyMaker(request).make().dump(2) + "\n"; }

}  // namespace rubato::aws

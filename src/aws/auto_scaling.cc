#include "aws/auto_scaling.h"

#include <fmt/format.h>

#include <charconv>

#include "core/error.h"
#include "core/text.h"

namespace rubato::aws {
namespace {

constexpr size_t kGroupPagesMax = 1000;

int whole_at(const rest::XmlNode& node, std::string_view path) {
  int out = 0;
  const std::string_view text = node.text_at(path);
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

ScalingGroup group_from(const rest::XmlNode& node) {
  ScalingGroup out;
  out.name = node.text_at("AutoScalingGroupName");
  out.status = node.text_at("Status");
  out.min = whole_at(node, "MinSize");
  out.max = whole_at(node, "MaxSize");
  out.desired = whole_at(node, "DesiredCapacity");
  for (const rest::XmlNode* one : node.list("Instances", "member")) {
    ScalingGroup::Member member;
    member.id = one->text_at("InstanceId");
    member.zone = one->text_at("AvailabilityZone");
    member.state = one->text_at("LifecycleState");
    member.health = one->text_at("HealthStatus");
    out.members.push_back(std::move(member));
  }
  for (const rest::XmlNode* one : node.list("Tags", "member")) {
    out.tags.emplace_back(one->text_at("Key"), one->text_at("Value"));
  }
  return out;
}

}  // namespace

Task<std::vector<ScalingGroup>> describe_scaling_groups(Client& client, std::vector<std::string> names) {
  std::vector<ScalingGroup> out;
  std::string token;
  for (size_t page = 0; page < kGroupPagesMax; ++page) {
    Params params;
    add_list(params, "AutoScalingGroupNames.member", names);
    add(params, "NextToken", token);
    const rest::XmlNode root = co_await client.query(kAutoScaling, "DescribeAutoScalingGroups", std::move(params));
    for (const rest::XmlNode* one : root.list("DescribeAutoScalingGroupsResult/AutoScalingGroups", "member")) {
      out.push_back(group_from(*one));
    }
    token = root.text_at("DescribeAutoScalingGroupsResult/NextToken");
    if (token.empty()) co_return out;
  }
  throw Error(ErrorCode::kUnavailable, "autoscaling DescribeAutoScalingGroups: the list does not end");
}

Task<void> create_scaling_group(Client& client, ScalingGroupSpec spec) {
  Params params{{"AutoScalingGroupName", spec.name},
                {"MinSize", std::to_string(spec.min)},
                {"MaxSize", std::to_string(spec.max)},
                {"DesiredCapacity", std::to_string(spec.desired)},
                {"LaunchTemplate.LaunchTemplateId", spec.launch_template},
                {"LaunchTemplate.Version", spec.launch_template_version},
                {"VPCZoneIdentifier", join(spec.subnets, ",")}};
  for (size_t i = 0; i < spec.tags.size(); ++i) {
    const std::string prefix = fmt::format("Tags.member.{}", i + 1);
    params.emplace_back(prefix + ".Key", spec.tags[i].first);
    params.emplace_back(prefix + ".Value", spec.tags[i].second);
    params.emplace_back(prefix + ".PropagateAtLaunch", "true");
  }
  co_await client.query(kAutoScaling, "CreateAutoScalingGroup", std::move(params));
}

Task<void> set_desired_capacity(Client& client, std::string name, int desired) {
  Params params{
      {"AutoScalingGroupName", name}, {"DesiredCapacity", std::to_string(desired)}, {"HonorCooldown", "false"}};
  co_await client.query(kAutoScaling, "SetDesiredCapacity", std::move(params));
}

Task<void> delete_scaling_group(Client& client, std::string name) {
  const std::vector<std::string> names{name};
  const std::vector<ScalingGroup> found = co_await describe_scaling_groups(client, names);
  if (found.empty()) co_return;
  Params params{{"AutoScalingGroupName", name}, {"ForceDelete", "true"}};
  co_await client.query(kAutoScaling, "DeleteAutoScalingGroup", std::move(params));
}

}  // namespace rubato::aws

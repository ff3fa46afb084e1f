// What a person wrote for EC2, checked before anything is asked of it.
#include <fmt/format.h>

#include <array>

#include "aws/ec2.h"
#include "aws/run_instances_shape.h"
#include "aws/s3.h"
#include "clouds/aws/ec2_config.h"
#include "clouds/common/address_range.h"
#include "clouds/common/shape_check.h"

namespace rubato::clouds {
namespace {

// Decided by us for each machine.
constexpr std::array<std::string_view, 4> kOurs = {"ClientToken", "DryRun", "MaxCount", "MinCount"};
constexpr std::array<std::string_view, 1> kSubnets = {"SubnetIds"};  // Ray's: one of them is taken

// In EC2's words: AuthorizeSecurityGroupIngress.
void check_permission(const Yaml& node) {
  StrictMapping fields(node, "the rule");
  for (const char* key : {"FromPort", "ToPort"}) {
    if (const auto port = fields.find(key)) port->as_int(-1, 65535);
  }
  fields.find("IpProtocol");
  const std::array<std::pair<const char*, const char*>, 3> lists = {
      {{"IpRanges", "CidrIp"}, {"Ipv6Ranges", "CidrIpv6"}, {"UserIdGroupPairs", "GroupId"}}};
  for (const auto& [list, key] : lists) {
    const auto given = fields.find(list);
    if (!given) continue;
    for (const Yaml& item : given->items()) {
      StrictMapping one(item, list);
      const Yaml value = one.require(key);
      if (std::string_view(key) != "GroupId" && !normal_cidr(value.as_string())) {
        value.fail(fmt::format("'{}' is no range of addresses", value.as_string()), "write 203.0.113.0/24");
      }
      for (const char* more : {"Description", "UserId", "VpcId"}) one.allow(more);
      one.finish();
    }
  }
  fields.finish();
}

void check_buckets(const Yaml& node, Findings& findings) {
  const std::vector<Yaml> items = node.is_sequence() ? node.items() : std::vector<Yaml>{node};
  for (const Yaml& one : items) {
    if (findings.blames(one) || (one.is_scalar() && aws::is_bucket_name(one.as_string()))) continue;
    findings.error(one,
                   one.is_scalar() ? fmt::format("'{}' cannot be the name of a bucket", one.as_string())
                                   : "expected the name of a bucket",
                   aws::kBucketRule);
  }
}

// In a shell's double quotes it must mean itself.
bool is_mount_path(std::string_view path) {
  if (path.starts_with("~/")) path.remove_prefix(1);
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-";
  return path.size() > 1 && path.front() == '/' && path.back() != '/' &&
         path.find_first_not_of(kPlain) == std::string_view::npos && path.find("..") == std::string_view::npos;
}

bool is_file_system_id(std::string_view id) {
  return id.size() > 3 && id.starts_with("fs-") &&
         id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

void check_file_system(const Yaml& node) {
  if (node.is_scalar()) {
    const std::string text = node.as_string();
    if (text.empty()) node.fail("the name of a file system is empty", "write fs-..., or a name");
    if (text.starts_with("fs-") && !is_file_system_id(text)) {
      node.fail("this is no id of a file system", "write fs-0123456789abcdef0, or {name: NAME}");
    }
    return;
  }
  StrictMapping fields(node, "the file system");
  const auto id = fields.find("id"), name = fields.find("name");
  const auto mount = fields.find("mount"), remove = fields.find("remove");
  fields.finish();  // first: a key that is not known may be why another is missing
  if (id && name) name->fail("a file system has an id or a name here, not both", "leave one of them out");
  if (!id && !name) node.fail("this names no file system", "add id: fs-..., or name: NAME");
  if (id && !is_file_system_id(id->as_string())) id->fail("this is no id of a file system", "write fs-..., or name:");
  if (name && name->as_string().empty()) name->fail("the name is empty", "write a name");
  if (mount && !is_mount_path(mount->as_string())) {
    mount->fail(fmt::format("'{}' cannot be mounted at", mount->as_string()), "write /mnt/NAME or ~/NAME");
  }
  if (remove) (void)remove->as_bool();
}

void check_user_data(const Yaml& node, Findings& findings) {
  if (!node.is_scalar() || findings.blames(node)) return;
  const std::string text = node.as_string();
  if (text.size() > aws::kUserDataMax) {
    findings.error(node, fmt::format("UserData has {} bytes, and EC2 takes {}", text.size(), aws::kUserDataMax),
                   "put what is long into setup_commands, or fetch it from a bucket");
  } else if (!text.empty() && !text.starts_with("#!") && !text.starts_with("#cloud-config")) {
    findings.warning(node, "UserData is neither a shell script nor a #cloud-config: workers cannot have it",
                     "begin with #!/bin/sh or #cloud-config: the head's key is put beside it");
  }
}

}  // namespace

void check_node_config(const Yaml& config, Findings& findings) {
  ShapeRules rules;
  rules.shape = aws::run_instances_shape();
  rules.request = "EC2's RunInstances";
  rules.ours = kOurs;
  rules.texts = kSubnets;
  check_shape(config, rules, findings);
  const auto data = config.is_mapping() ? config.find("UserData") : std::nullopt;
  if (data) check_user_data(*data, findings);
}

void check_ec2_provider(const Yaml& provider, Findings& findings) {
  if (const auto from = provider.find("ssh_from"); from && !from->is_null()) check_ranges(*from, findings);
  if (const auto all = provider.find("s3_buckets"); all && !all->is_null()) check_buckets(*all, findings);
  if (const auto all = provider.find("efs"); all && !all->is_null()) {
    attempt(findings, [&] {
      const std::vector<Yaml> items = all->is_sequence() ? all->items() : std::vector<Yaml>{*all};
      for (const Yaml& one : items) check_file_system(one);
    });
  }
  const auto group = provider.find("security_group");
  const auto rules = group && group->is_mapping() ? group->find("IpPermissions") : std::nullopt;
  if (rules) {
    attempt(findings, [&] {
      for (const Yaml& one : rules->items()) check_permission(one);
    });
  }
  if (const auto keys = provider.find("aws_credentials"); keys && !keys->is_null()) {
    findings.error(*keys, "credentials in a cluster file would travel to every machine that it is copied to",
                   "take them out; use a profile of ~/.aws (AWS_PROFILE=NAME), or AWS_ACCESS_KEY_ID and "
                   "AWS_SECRET_ACCESS_KEY");
  }
  if (const auto watch = provider.find("cloudwatch"); watch && !watch->is_null()) {
    findings.note(*watch, "nothing is set up at CloudWatch for it",
                  "install the agent with setup_commands; rubato's own figures are at the head's /metrics");
  }
}

}  // namespace rubato::clouds

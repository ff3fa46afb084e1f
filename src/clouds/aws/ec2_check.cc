// What a person wrote for EC2, checked before anything is asked of it.
#include <fmt/format.h>

#include <array>

#include "aws/run_instances_shape.h"
#include "clouds/aws/ec2_config.h"
#include "core/text.h"
#include "model/yaml_value.h"

namespace rubato::clouds {
namespace {

using aws::ShapeKind;
using aws::ShapeMember;

// Decided by us for each machine.
constexpr std::array<std::string_view, 4> kOurs = {"ClientToken", "DryRun", "MaxCount", "MinCount"};
constexpr std::string_view kSubnets = "SubnetIds";  // Ray's: one of them is taken

void check_value(const Yaml& value, ShapeKind kind, Findings& findings);
void check_structure(const Yaml& node, std::string_view structure, Findings& findings);

void check_member(const Yaml& value, const ShapeMember& member, Findings& findings) {
  const auto check_one = [&](const Yaml& one) {
    if (member.kind == ShapeKind::kStructure) {
      check_structure(one, member.structure, findings);
    } else {
      check_value(one, member.kind, findings);
    }
  };
  if (!member.is_list) return check_one(value);
  if (!value.is_sequence()) {
    findings.error(value, fmt::format("{} must be a list", member.name), "write each item with a dash: - ...");
    return;
  }
  for (const Yaml& one : value.items()) check_one(one);
}

void check_value(const Yaml& value, ShapeKind kind, Findings& findings) {
  if (findings.blames(value)) return;
  if (!value.is_scalar()) {
    findings.error(value, fmt::format("expected one value, not {}", to_string(value.kind())));
    return;
  }
  const auto read = value_of(value);
  switch (kind) {
    case ShapeKind::kText:
      if (!read.is_string() && !read.is_number()) findings.error(value, "expected a text", "put it in quotes");
      return;
    case ShapeKind::kInteger:
      if (!read.is_number_integer()) findings.error(value, "expected a whole number");
      return;
    case ShapeKind::kNumber:
      if (!read.is_number()) findings.error(value, "expected a number");
      return;
    case ShapeKind::kBoolean:
      if (!read.is_boolean()) findings.error(value, "expected true or false");
      return;
    case ShapeKind::kStructure:
      return;
  }
}

const ShapeMember* member_of(std::string_view structure, std::string_view name) {
  for (const ShapeMember& member : aws::run_instances_shape()) {
    if (member.owner == structure && member.name == name) return &member;
  }
  return nullptr;
}

void report_unknown(const Yaml::Entry& entry, std::string_view structure, Findings& findings) {
  std::vector<std::string_view> known;
  for (const ShapeMember& member : aws::run_instances_shape()) {
    if (member.owner == structure) known.push_back(member.name);
  }
  if (structure.empty()) known.push_back(kSubnets);
  const std::string key = entry.key.as_string();
  const auto near = nearest(key, known);
  findings.error(entry.key, fmt::format("EC2's RunInstances does not know \"{}\"", key),
                 near ? fmt::format("did you mean {}?", *near) : "its keys: " + join(known, ", "));
}

void check_structure(const Yaml& node, std::string_view structure, Findings& findings) {
  if (!node.is_mapping()) {
    findings.error(node, "expected a mapping");
    return;
  }
  for (const Yaml::Entry& entry : node.entries()) {
    if (entry.value.is_null()) continue;
    const std::string key = entry.key.as_string();
    const bool top = structure.empty();
    if (top && key == kSubnets) {
      attempt(findings, [&] { entry.value.as_strings(); });
    } else if (top && std::ranges::find(kOurs, key) != kOurs.end()) {
      findings.error(entry.key, fmt::format("{} is decided by Rubato for each machine", key), "leave it out");
    } else if (const ShapeMember* member = member_of(structure, key)) {
      check_member(entry.value, *member, findings);
    } else {
      report_unknown(entry, structure, findings);
    }
  }
}

void check_ranges(const Yaml& node, Findings& findings) {
  const std::vector<Yaml> items = node.is_sequence() ? node.items() : std::vector<Yaml>{node};
  for (const Yaml& one : items) {
    if (findings.blames(one)) continue;
    if (one.is_scalar() && normal_cidr(one.as_string())) continue;
    findings.error(one,
                   one.is_scalar() ? fmt::format("'{}' is no range of addresses", one.as_string())
                                   : "expected a range of addresses",
                   "write 203.0.113.7 or 203.0.113.0/24");
  }
}

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

}  // namespace

void check_node_config(const Yaml& config, Findings& findings) {
  if (config.is_mapping()) check_structure(config, "", findings);
}

void check_ec2_provider(const Yaml& provider, Findings& findings) {
  if (const auto from = provider.find("ssh_from"); from && !from->is_null()) check_ranges(*from, findings);
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

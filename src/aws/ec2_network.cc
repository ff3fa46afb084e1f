#include "aws/ec2_network.h"

#include <fmt/format.h>

#include <charconv>

#include "rest/base64.h"

namespace rubato::aws {
namespace {

int int_at(const rest::XmlNode& node, std::string_view path) {
  int out = 0;
  const std::string_view text = node.text_at(path);
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

std::vector<Rule> rules_from(const rest::XmlNode& group) {
  std::vector<Rule> out;
  for (const rest::XmlNode* node : group.list("ipPermissions", "item")) {
    Rule rule;
    rule.protocol = node->text_at("ipProtocol");
    rule.from_port = int_at(*node, "fromPort");
    rule.to_port = int_at(*node, "toPort");
    for (const rest::XmlNode* one : node->list("ipRanges", "item")) {
      rule.cidrs.emplace_back(one->text_at("cidrIp"));
      rule.note = one->text_at("description");
    }
    for (const rest::XmlNode* one : node->list("ipv6Ranges", "item")) {
      rule.cidrs.emplace_back(one->text_at("cidrIpv6"));
    }
    for (const rest::XmlNode* one : node->list("groups", "item")) rule.groups.emplace_back(one->text_at("groupId"));
    out.push_back(std::move(rule));
  }
  return out;
}

void add_rule(Params& params, const std::string& prefix, const Rule& rule) {
  params.emplace_back(prefix + ".IpProtocol", rule.protocol);
  if (rule.protocol != "-1") {
    params.emplace_back(prefix + ".FromPort", std::to_string(rule.from_port));
    params.emplace_back(prefix + ".ToPort", std::to_string(rule.to_port));
  }
  size_t v4 = 0, v6 = 0;
  for (const std::string& cidr : rule.cidrs) {
    const bool is_v6 = cidr.find(':') != std::string::npos;
    const std::string range =
        is_v6 ? fmt::format("{}.Ipv6Ranges.{}", prefix, ++v6) : fmt::format("{}.IpRanges.{}", prefix, ++v4);
    params.emplace_back(range + (is_v6 ? ".CidrIpv6" : ".CidrIp"), cidr);
    add(params, range + ".Description", rule.note);
  }
  for (size_t i = 0; i < rule.groups.size(); ++i) {
    params.emplace_back(fmt::format("{}.Groups.{}.GroupId", prefix, i + 1), rule.groups[i]);
  }
}

}  // namespace

Task<std::vector<Vpc>> describe_vpcs(Client& client, std::vector<std::string> ids, std::vector<Filter> filters) {
  Params params;
  add_list(params, "VpcId", ids);
  add_filters(params, filters);
  const auto items = co_await describe_pages(client, "DescribeVpcs", std::move(params), "vpcSet");
  std::vector<Vpc> out;
  for (const rest::XmlNode& node : items) {
    Vpc one;
    one.id = node.text_at("vpcId");
    one.cidr = node.text_at("cidrBlock");
    one.is_default = node.text_at("isDefault") == "true";
    out.push_back(std::move(one));
  }
  co_return out;
}

Task<std::vector<Subnet>> describe_subnets(Client& client, std::vector<std::string> ids, std::vector<Filter> filters) {
  Params params;
  add_list(params, "SubnetId", ids);
  add_filters(params, filters);
  const auto items = co_await describe_pages(client, "DescribeSubnets", std::move(params), "subnetSet");
  std::vector<Subnet> out;
  for (const rest::XmlNode& node : items) {
    Subnet one;
    one.id = node.text_at("subnetId");
    one.vpc = node.text_at("vpcId");
    one.zone = node.text_at("availabilityZone");
    one.cidr = node.text_at("cidrBlock");
    one.state = node.text_at("state");
    one.free_addresses = int_at(node, "availableIpAddressCount");
    one.is_default = node.text_at("defaultForAz") == "true";
    one.gives_public_addresses = node.text_at("mapPublicIpOnLaunch") == "true";
    out.push_back(std::move(one));
  }
  co_return out;
}

Task<std::vector<Zone>> describe_zones(Client& client) {
  const auto items =
      co_await describe_pages(client, "DescribeAvailabilityZones", Params(), "availabilityZoneInfo");
  std::vector<Zone> out;
  for (const rest::XmlNode& node : items) {
    Zone one;
    one.name = node.text_at("zoneName");
    one.id = node.text_at("zoneId");
    one.state = node.text_at("zoneState");
    out.push_back(std::move(one));
  }
  co_return out;
}

Task<std::vector<SecurityGroup>> describe_security_groups(Client& client, std::vector<std::string> ids,
                                                          std::vector<Filter> filters) {
  Params params;
  add_list(params, "GroupId", ids);
  add_filters(params, filters);
  const auto items = co_await describe_pages(client, "DescribeSecurityGroups", std::move(params), "securityGroupInfo");
  std::vector<SecurityGroup> out;
  for (const rest::XmlNode& node : items) {
    SecurityGroup one;
    one.id = node.text_at("groupId");
    one.name = node.text_at("groupName");
    one.vpc = node.text_at("vpcId");
    one.note = node.text_at("groupDescription");
    one.ingress = rules_from(node);
    one.tags = tags_of(node);
    out.push_back(std::move(one));
  }
  co_return out;
}

Task<std::string> create_security_group(Client& client, std::string name, std::string note, std::string vpc,
                                        Tags tags) {
  Params params;
  params.emplace_back("GroupName", name);
  params.emplace_back("GroupDescription", note);
  add(params, "VpcId", vpc);
  add_tag_specification(params, 1, "security-group", tags);
  const rest::XmlNode root = co_await client.query(kEc2, "CreateSecurityGroup", std::move(params));
  co_return std::string(root.text_at("groupId"));
}

Task<void> delete_security_group(Client& client, std::string id) {
  Params params;
  params.emplace_back("GroupId", id);
  co_await client.query(kEc2, "DeleteSecurityGroup", std::move(params));
}

Task<void> authorize_ingress(Client& client, std::string group, std::vector<Rule> rules) {
  Params params;
  params.emplace_back("GroupId", group);
  for (size_t i = 0; i < rules.size(); ++i) add_rule(params, fmt::format("IpPermissions.{}", i + 1), rules[i]);
  try {
    co_await client.query(kEc2, "AuthorizeSecurityGroupIngress", std::move(params));
  } catch (const rest::CloudError& error) {
    if (error.reason != "InvalidPermission.Duplicate") throw;
  }
}

Task<std::vector<KeyPair>> describe_key_pairs(Client& client, std::vector<Filter> filters) {
  Params params;
  add_filters(params, filters);
  const auto items = co_await describe_pages(client, "DescribeKeyPairs", std::move(params), "keySet");
  std::vector<KeyPair> out;
  for (const rest::XmlNode& node : items) {
    KeyPair one;
    one.id = node.text_at("keyPairId");
    one.name = node.text_at("keyName");
    one.fingerprint = node.text_at("keyFingerprint");
    one.tags = tags_of(node);
    out.push_back(std::move(one));
  }
  co_return out;
}

Task<KeyPair> import_key_pair(Client& client, std::string name, std::string public_key, Tags tags) {
  Params params;
  params.emplace_back("KeyName", name);
  params.emplace_back("PublicKeyMaterial", rest::base64(public_key));
  add_tag_specification(params, 1, "key-pair", tags);
  const rest::XmlNode root = co_await client.query(kEc2, "ImportKeyPair", std::move(params));
  KeyPair out;
  out.id = root.text_at("keyPairId");
  out.name = root.text_at("keyName");
  out.fingerprint = root.text_at("keyFingerprint");
  co_return out;
}

Task<void> delete_key_pair(Client& client, std::string name) {
  Params params;
  params.emplace_back("KeyName", name);
  co_await client.query(kEc2, "DeleteKeyPair", std::move(params));
}

Task<std::vector<PlacementGroup>> describe_placement_groups(Client& client, std::vector<Filter> filters) {
  Params params;
  add_filters(params, filters);
  const auto items = co_await describe_pages(client, "DescribePlacementGroups", std::move(params), "placementGroupSet");
  std::vector<PlacementGroup> out;
  for (const rest::XmlNode& node : items) {
    PlacementGroup one;
    one.name = node.text_at("groupName");
    one.strategy = node.text_at("strategy");
    one.state = node.text_at("state");
    one.id = node.text_at("groupId");
    out.push_back(std::move(one));
  }
  co_return out;
}

Task<void> create_placement_group(Client& client, std::string name, std::string strategy, Tags tags) {
  Params params;
  params.emplace_back("GroupName", name);
  params.emplace_back("Strategy", strategy);
  add_tag_specification(params, 1, "placement-group", tags);
  co_await client.query(kEc2, "CreatePlacementGroup", std::move(params));
}

Task<void> delete_placement_group(Client& client, std::string name) {
  Params params;
  params.emplace_back("GroupName", name);
  co_await client.query(kEc2, "DeletePlacementGroup", std::move(params));
}

}  // namespace rubato::aws

#include "aws/ec2_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "rest/base64.h"

namespace rubato::aws {
namespace {

constexpr Duration kKnownWithin = 20s;  // EC2 may not know for some seconds what it has just made
constexpr Duration kKnownPause = 1s;

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
    std::map<std::string, std::vector<std::string>, std::less<>> cidrs;  // by what is noted of them
    for (const rest::XmlNode* one : node->list("ipRanges", "item")) {
      cidrs[std::string(one->text_at("description"))].emplace_back(one->text_at("cidrIp"));
    }
    for (const rest::XmlNode* one : node->list("ipv6Ranges", "item")) {
      cidrs[std::string(one->text_at("description"))].emplace_back(one->text_at("cidrIpv6"));
    }
    for (auto& [note, ranges] : cidrs) {
      Rule of = rule;
      of.note = note;
      of.cidrs = std::move(ranges);
      out.push_back(std::move(of));
    }
    for (const rest::XmlNode* one : node->list("groups", "item")) rule.groups.emplace_back(one->text_at("groupId"));
    if (!rule.groups.empty()) out.push_back(std::move(rule));
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

Params ingress_params(const std::string& group, const std::vector<Rule>& rules) {
  Params out;
  out.emplace_back("GroupId", group);
  for (size_t i = 0; i < rules.size(); ++i) add_rule(out, fmt::format("IpPermissions.{}", i + 1), rules[i]);
  return out;
}

// One for each range and each group.
std::vector<Rule> taken_apart(const std::vector<Rule>& rules) {
  std::vector<Rule> out;
  for (const Rule& rule : rules) {
    Rule one = rule;
    one.groups.clear();
    for (const std::string& cidr : rule.cidrs) {
      one.cidrs = {cidr};
      out.push_back(one);
    }
    one.cidrs.clear();
    for (const std::string& member : rule.groups) {
      one.groups = {member};
      out.push_back(one);
    }
  }
  return out;
}

bool has_tags(const Tags& has, const Tags& wanted) {
  return std::ranges::all_of(wanted, [&](const auto& tag) { return std::ranges::find(has, tag) != has.end(); });
}

std::vector<Filter> named(const char* filter, const std::string& name) {
  std::vector<Filter> out;
  out.push_back({filter, {name}});
  return out;
}

// AWS answers with the tags that it gave. A server that does not may have passed over those of the request.
Task<void> tag_if_untagged(Client& client, const rest::XmlNode& made, std::string id, Tags tags) {
  if (id.empty() || tags.empty() || !tags_of(made).empty()) co_return;
  std::vector<std::string> ids;
  ids.push_back(std::move(id));
  co_await create_tags(client, std::move(ids), std::move(tags));
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
    one.state = node.at("state") == nullptr ? "available" : node.text_at("state");
    one.free_addresses = int_at(node, "availableIpAddressCount");
    one.is_default = node.text_at("defaultForAz") == "true";
    one.gives_public_addresses = node.text_at("mapPublicIpOnLaunch") != "false";
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
  const bool by_id = !ids.empty();
  Task<std::vector<rest::XmlNode>> asked =
      by_id ? describe_pages(client, "DescribeSecurityGroups", std::move(params), "securityGroupInfo")
            : describe_if_any(client, "DescribeSecurityGroups", std::move(params), "securityGroupInfo");
  const auto items = co_await std::move(asked);
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
  std::optional<rest::CloudError> refused;
  try {
    const rest::XmlNode root = co_await client.query(kEc2, "CreateSecurityGroup", std::move(params));
    std::string id(root.text_at("groupId"));
    co_await tag_if_untagged(client, root, id, tags);
    co_return id;
  } catch (const rest::CloudError& error) {
    if (error.reason != "InvalidGroup.Duplicate") throw;
    refused = error;
  }
  // Made by a try whose answer was lost?
  std::vector<std::string> any;
  std::vector<Filter> filters = named("group-name", name);
  if (!vpc.empty()) filters.push_back({"vpc-id", {vpc}});
  const auto found = co_await describe_security_groups(client, std::move(any), std::move(filters));
  for (const SecurityGroup& one : found) {
    if (one.name == name && (vpc.empty() || one.vpc == vpc) && has_tags(one.tags, tags)) co_return one.id;
  }
  throw *refused;
}

Task<void> delete_security_group(Client& client, std::string id) {
  Params params;
  params.emplace_back("GroupId", id);
  co_await client.query(kEc2, "DeleteSecurityGroup", std::move(params));
}

Task<void> authorize_ingress(Client& client, std::string group, std::vector<Rule> rules) {
  const Instant deadline = client.world().clock.now() + kKnownWithin;
  const Params params = ingress_params(group, rules);
  bool has_some = false;
  while (true) {
    try {
      co_await client.query(kEc2, "AuthorizeSecurityGroupIngress", params);
      co_return;
    } catch (const rest::CloudError& error) {
      has_some = error.reason == "InvalidPermission.Duplicate";
      const bool is_new = error.code == ErrorCode::kNotFound && client.world().clock.now() < deadline;
      if (!has_some && !is_new) throw;
    }
    if (has_some) break;
    co_await Sleep(client.world().clock.loop(), client.world().clock.now() + kKnownPause);
  }
  // Where EC2 has one of them, it adds none: then one after the other.
  const std::vector<Rule> alone = taken_apart(rules);
  if (alone.size() < 2) co_return;
  for (const Rule& one : alone) {
    std::vector<Rule> rule;
    rule.push_back(one);
    Task<void> adding = authorize_ingress(client, group, std::move(rule));
    co_await std::move(adding);
  }
}

Task<void> revoke_ingress(Client& client, std::string group, Rule rule) {
  std::vector<Rule> rules;
  rules.push_back(std::move(rule));
  co_await client.query(kEc2, "RevokeSecurityGroupIngress", ingress_params(group, rules));
}

Task<std::vector<KeyPair>> describe_key_pairs(Client& client, std::vector<Filter> filters) {
  Params params;
  add_filters(params, filters);
  const auto items = co_await describe_if_any(client, "DescribeKeyPairs", std::move(params), "keySet");
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
  std::optional<rest::CloudError> refused;
  try {
    const rest::XmlNode root = co_await client.query(kEc2, "ImportKeyPair", std::move(params));
    KeyPair out;
    out.id = root.text_at("keyPairId");
    out.name = root.text_at("keyName");
    out.fingerprint = root.text_at("keyFingerprint");
    co_await tag_if_untagged(client, root, out.id, tags);
    co_return out;
  } catch (const rest::CloudError& error) {
    if (error.reason != "InvalidKeyPair.Duplicate") throw;
    refused = error;
  }
  std::vector<Filter> filters = named("key-name", name);
  const auto found = co_await describe_key_pairs(client, std::move(filters));
  for (const KeyPair& one : found) {
    if (one.name == name && has_tags(one.tags, tags)) co_return one;
  }
  throw *refused;
}

Task<void> delete_key_pair(Client& client, std::string name) {
  Params params;
  params.emplace_back("KeyName", name);
  co_await client.query(kEc2, "DeleteKeyPair", std::move(params));
}

Task<std::vector<Volume>> describe_volumes(Client& client, std::vector<Filter> filters) {
  Params params;
  add_filters(params, filters);
  const auto items = co_await describe_pages(client, "DescribeVolumes", std::move(params), "volumeSet");
  std::vector<Volume> out;
  for (const rest::XmlNode& node : items) {
    Volume one;
    one.id = node.text_at("volumeId");
    one.zone = node.text_at("availabilityZone");
    one.state = node.text_at("status");
    one.kind = node.text_at("volumeType");
    const std::string_view size = node.text_at("size");
    std::from_chars(size.data(), size.data() + size.size(), one.gigabytes);
    one.tags = tags_of(node);
    out.push_back(std::move(one));
  }
  co_return out;
}

Task<std::vector<PlacementGroup>> describe_placement_groups(Client& client, std::vector<Filter> filters) {
  Params params;
  add_filters(params, filters);
  const auto items =
      co_await describe_if_any(client, "DescribePlacementGroups", std::move(params), "placementGroupSet");
  std::vector<PlacementGroup> out;
  for (const rest::XmlNode& node : items) {
    PlacementGroup one;
    one.name = node.text_at("groupName");
    one.strategy = node.text_at("strategy");
    one.state = node.text_at("state");
    one.id = node.text_at("groupId");
    one.tags = tags_of(node);
    out.push_back(std::move(one));
  }
  co_return out;
}

Task<void> create_placement_group(Client& client, std::string name, std::string strategy, Tags tags) {
  Params params;
  params.emplace_back("GroupName", name);
  params.emplace_back("Strategy", strategy);
  add_tag_specification(params, 1, "placement-group", tags);
  std::optional<rest::CloudError> refused;
  try {
    co_await client.query(kEc2, "CreatePlacementGroup", std::move(params));
    co_return;
  } catch (const rest::CloudError& error) {
    if (error.reason != "InvalidPlacementGroup.Duplicate") throw;
    refused = error;
  }
  std::vector<Filter> filters = named("group-name", name);
  const auto found = co_await describe_placement_groups(client, std::move(filters));
  for (const PlacementGroup& one : found) {
    if (one.name == name && has_tags(one.tags, tags)) co_return;
  }
  throw *refused;
}

Task<void> delete_placement_group(Client& client, std::string name) {
  Params params;
  params.emplace_back("GroupName", name);
  co_await client.query(kEc2, "DeletePlacementGroup", std::move(params));
}

}  // namespace rubato::aws

#include "clouds/aws/ec2_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "clouds/common/address_range.h"
#include "core/text.h"
#include "model/cluster_file.h"
#include "rest/json.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using rest::object_at;
using rest::text_at;
using rest::texts_at;

bool text_starts(const json& value, const char* prefix) {
  return value.is_string() && value.get<std::string>().starts_with(prefix);
}

// One of provider.security_group.IpPermissions; checked before.
aws::Rule rule_of(const json& permission) {
  aws::Rule rule;
  const auto protocol = permission.find("IpProtocol");
  if (protocol != permission.end()) {
    rule.protocol = protocol->is_string() ? to_lower(protocol->get<std::string>()) : protocol->dump();
  }
  rule.from_port = permission.value("FromPort", 0);
  rule.to_port = permission.value("ToPort", rule.from_port);
  const auto add = [&](const char* list, const char* key, std::vector<std::string>& out) {
    for (const json& one : permission.value(list, json::array())) {
      if (const std::string text = text_at(one, key); !text.empty()) out.push_back(text);
    }
  };
  add("IpRanges", "CidrIp", rule.cidrs);
  add("Ipv6Ranges", "CidrIpv6", rule.cidrs);
  add("UserIdGroupPairs", "GroupId", rule.groups);
  return rule;
}

constexpr std::string_view kUsualMount = "/mnt/efs";  // and its number: petctl's is /mnt/efs1

// provider.efs: one or a list, each an id, a name or a section; checked before.
json file_systems_of(const json& options) {
  const auto found = options.find("efs");
  if (found == options.end() || found->is_null()) return json::array();
  json out = json::array();
  for (const json& one : found->is_array() ? *found : json::array({*found})) {
    json made = one.is_object() ? one : json{{text_starts(one, "fs-") ? "id" : "name", one}};
    if (text_at(made, "mount").empty()) made["mount"] = fmt::format("{}{}", kUsualMount, out.size() + 1);
    out.push_back(std::move(made));
  }
  return out;
}

}  // namespace

json compile_ec2_config(const ClusterFile& file) {
  const json options = file.provider.options;
  json out = {{"cluster", file.name},
              {"region", file.provider.region},
              {"zones", file.provider.zones},
              {"use_internal_ips", file.provider.use_internal_ips},
              {"use_external_head_ip", file.provider.use_external_head_ip},
              {"cache_stopped_nodes", file.provider.cache_stopped_nodes},
              {"security_group", object_at(options, "security_group")},
              {"key_name", text_at(object_at(options, "key_pair"), "key_name")},
              {"key_where", file.place("provider.key_pair")},
              {"provider_where", file.place("provider")}};
  std::vector<std::string> from;
  if (options.contains("ssh_from")) from = texts_at(options, "ssh_from");
  out["ssh_from"] = from;
  if (options.contains("s3_buckets")) out["s3_buckets"] = texts_at(options, "s3_buckets");
  if (const json all = file_systems_of(options); !all.empty()) {
    out["file_systems"] = all;
    out["file_systems_where"] = file.place("provider.efs");
  }
  return out;
}

Ec2Config ec2_config_from_json(const json& told) {
  Ec2Config out;
  out.cluster = text_at(told, "cluster");
  out.region = text_at(told, "region");
  if (out.cluster.empty() || out.region.empty()) {
    throw Error(ErrorCode::kUsage, "this is no description of a provider 'aws'");
  }
  out.zones = texts_at(told, "zones");
  out.internal_only = told.value("use_internal_ips", false);
  out.internal_head = out.internal_only && !told.value("use_external_head_ip", false);
  out.cache_stopped = told.value("cache_stopped_nodes", true);
  for (const std::string& one : texts_at(told, "ssh_from")) {
    if (auto cidr = normal_cidr(one)) out.ssh_from.push_back(std::move(*cidr));
  }
  out.buckets = texts_at(told, "s3_buckets");
  for (const json& one : told.value("file_systems", json::array())) {
    out.file_systems.push_back({text_at(one, "id"), text_at(one, "name"), text_at(one, "mount"),
                                one.value("remove", false), text_at(told, "file_systems_where")});
  }
  const json group = object_at(told, "security_group");
  out.group_name = text_at(group, "GroupName");
  for (const json& one : group.value("IpPermissions", json::array())) out.rules.push_back(rule_of(one));
  out.key_name = text_at(told, "key_name");
  out.key_where = text_at(told, "key_where");
  out.provider_where = text_at(told, "provider_where");
  return out;
}

}  // namespace rubato::clouds

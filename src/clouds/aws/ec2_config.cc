#include "clouds/aws/ec2_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "model/cluster_file.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;

std::vector<std::string> texts_of(const json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  std::vector<std::string> out;
  if (!value.is_array()) return out;
  for (const json& one : value) {
    if (one.is_string()) out.push_back(one.get<std::string>());
  }
  return out;
}

json section_of(const json& options, const char* key) {
  const auto found = options.find(key);
  return found != options.end() && found->is_object() ? *found : json::object();
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
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
      if (const std::string text = text_of(one, key); !text.empty()) out.push_back(text);
    }
  };
  add("IpRanges", "CidrIp", rule.cidrs);
  add("Ipv6Ranges", "CidrIpv6", rule.cidrs);
  add("UserIdGroupPairs", "GroupId", rule.groups);
  return rule;
}

bool is_number(std::string_view text, int most) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && text.size() <= 3 && error == std::errc() && end == text.data() + text.size() && value >= 0 &&
         value <= most;
}

bool is_v4(std::string_view text) {
  const auto parts = split(text, '.');
  return parts.size() == 4 && std::ranges::all_of(parts, [](std::string_view part) { return is_number(part, 255); });
}

// The form alone: EC2 says the rest.
bool is_v6(std::string_view text) {
  const auto digit = [](char c) { return c == ':' || ('0' <= c && c <= '9') || ('a' <= c && c <= 'f'); };
  const std::string lower = to_lower(text);
  return std::ranges::count(lower, ':') >= 2 && lower.size() <= 39 && std::ranges::all_of(lower, digit);
}

}  // namespace

std::optional<std::string> normal_cidr(std::string_view text) {
  const auto parts = split_once(text, '/');
  const std::string_view address = parts ? parts->first : text;
  const bool v6 = is_v6(address);
  if (!v6 && !is_v4(address)) return std::nullopt;
  if (!parts) return fmt::format("{}/{}", address, v6 ? 128 : 32);
  if (!is_number(parts->second, v6 ? 128 : 32)) return std::nullopt;
  return std::string(text);
}

json compile_ec2_config(const ClusterFile& file) {
  const json options = file.provider.options;
  json out = {{"cluster", file.name},
              {"region", file.provider.region},
              {"zones", file.provider.zones},
              {"use_internal_ips", file.provider.use_internal_ips},
              {"use_external_head_ip", file.provider.use_external_head_ip},
              {"cache_stopped_nodes", file.provider.cache_stopped_nodes},
              {"security_group", section_of(options, "security_group")},
              {"key_name", text_of(section_of(options, "key_pair"), "key_name")},
              {"key_where", file.place("provider.key_pair")},
              {"provider_where", file.place("provider")}};
  std::vector<std::string> from;
  if (options.contains("ssh_from")) from = texts_of(options["ssh_from"]);
  out["ssh_from"] = from;
  return out;
}

Ec2Config ec2_config_from_json(const json& told) {
  Ec2Config out;
  out.cluster = text_of(told, "cluster");
  out.region = text_of(told, "region");
  if (out.cluster.empty() || out.region.empty()) {
    throw Error(ErrorCode::kUsage, "this is no description of a provider 'aws'");
  }
  out.zones = texts_of(told.value("zones", json::array()));
  out.internal_only = told.value("use_internal_ips", false);
  out.internal_head = out.internal_only && !told.value("use_external_head_ip", false);
  out.cache_stopped = told.value("cache_stopped_nodes", true);
  for (const std::string& one : texts_of(told.value("ssh_from", json::array()))) {
    if (auto cidr = normal_cidr(one)) out.ssh_from.push_back(std::move(*cidr));
  }
  const json group = section_of(told, "security_group");
  out.group_name = text_of(group, "GroupName");
  for (const json& one : group.value("IpPermissions", json::array())) out.rules.push_back(rule_of(one));
  out.key_name = text_of(told, "key_name");
  out.key_where = text_of(told, "key_where");
  out.provider_where = text_of(told, "provider_where");
  return out;
}

}  // namespace rubato::clouds

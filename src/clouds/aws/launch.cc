#include "clouds/aws/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "aws/policy.h"
#include "clouds/common/cloud_instances.h"
#include "core/error.h"
#include "core/sha256.h"
#include "core/text.h"
#include "rest/base64.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using provider::NodeOrder;

constexpr size_t kTagValueMax = 256;
constexpr size_t kTokenSize = 60;  // EC2 takes 64
constexpr std::string_view kBoundary = "==rubato-user-data==";

struct Numbered {
  std::string_view stem;
  uint64_t number = 0;
};

// "worker-12"; nullopt for a name of another form, or a number that would not read back the same.
std::optional<Numbered> numbered(std::string_view name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view digits = name.substr(dash + 1);
  Numbered out{name.substr(0, dash), 0};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out.number);
  if (digits.empty() || digits.front() == '0' || error != std::errc() || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  return out;
}

void put_tag(json& tags, std::string_view key, std::string_view value, bool ours) {
  for (json& one : tags) {
    if (one.value("Key", "") != key) continue;
    if (ours) one["Value"] = value;
    return;
  }
  tags.push_back({{"Key", key}, {"Value", value}});
}

// Ours on everything that the request makes, beside the person's own: EC2 takes each kind of thing once.
void add_tags(json& config, const Ec2Config& cluster, const LaunchOrder& order, bool spot) {
  const NodeOrder& sample = order.sample;
  const std::string_view kind = sample.of_head ? "head" : "worker";
  json& all = config["TagSpecifications"];
  if (!all.is_array()) all = json::array();
  std::vector<std::string_view> resources = {"instance", "volume"};
  if (spot) resources.push_back("spot-instances-request");
  for (const std::string_view resource : resources) {
    auto found = std::ranges::find_if(all, [&](const json& one) { return one.value("ResourceType", "") == resource; });
    if (found == all.end()) {
      all.push_back({{"ResourceType", resource}, {"Tags", json::array()}});
      found = std::prev(all.end());
    }
    json& tags = (*found)["Tags"];
    put_tag(tags, aws::kClusterTag, cluster.cluster, true);
    put_tag(tags, "ray-cluster-name", cluster.cluster, true);
    put_tag(tags, "Name", fmt::format("ray-{}-{}", cluster.cluster, kind), false);
    if (resource != "instance") continue;
    if (order.nodes.size() == 1) {
      put_tag(tags, kNodeTag, order.nodes.front().value, true);
    } else {
      put_tag(tags, kBatchTag, pack_nodes(order.nodes).value_or(""), true);
    }
    put_tag(tags, "ray-node-type", kind, true);
    put_tag(tags, "ray-node-name", fmt::format("ray-{}-{}", cluster.cluster, kind), true);
    put_tag(tags, "ray-user-node-type", sample.type.name, true);
    put_tag(tags, kHashTag, sample.launch_hash, true);
    put_tag(tags, kStatusTag, "uninitialized", true);
  }
}

// Volumes go with their machine unless the person says otherwise. EC2 keeps, and charges for, all but the image's own.
void settle_volumes(json& config) {
  const auto disks = config.find("BlockDeviceMappings");
  if (disks == config.end() || !disks->is_array()) return;
  for (json& disk : *disks) {
    const auto volume = disk.is_object() ? disk.find("Ebs") : disk.end();
    if (disk.is_object() && volume != disk.end() && volume->is_object() && !volume->contains("DeleteOnTermination")) {
      (*volume)["DeleteOnTermination"] = true;
    }
  }
}

void set_market(json& config, bool spot) {
  if (!spot) {
    config.erase("InstanceMarketOptions");
    return;
  }
  json& market = config["InstanceMarketOptions"];
  if (!market.is_object()) market = json::object();
  market["MarketType"] = "spot";
}

bool settled(const Ec2Surroundings& around, const std::string& type, const json& config, const char* key) {
  if (config.contains(key)) return true;
  const auto found = around.template_keys.find(type);
  return found != around.template_keys.end() && std::ranges::find(found->second, key) != found->second.end();
}

std::string zone_of(const Ec2Surroundings& around, const std::string& subnet) {
  if (const auto found = around.zones.find(subnet); found != around.zones.end()) return found->second;
  for (const Ec2Surroundings::Subnet& one : around.subnets) {
    if (one.id == subnet) return one.zone;
  }
  return {};
}

// Where a machine of this kind may be, in order; one empty place: the request itself says it.
std::vector<Ec2Surroundings::Subnet> places_for(const Ec2Surroundings& around, const NodeOrder& order,
                                                const json& config) {
  std::vector<Ec2Surroundings::Subnet> all;
  if (const auto named = config.find("SubnetIds"); named != config.end() && named->is_array() && !named->empty()) {
    for (const json& one : *named) {
      const std::string id = one.is_string() ? one.get<std::string>() : one.dump();
      all.push_back({id, zone_of(around, id)});
    }
  } else if (settled(around, order.type.name, config, "SubnetId") ||
             settled(around, order.type.name, config, "NetworkInterfaces")) {
    return {{}};
  } else {
    all = around.subnets;
  }
  const std::string& zone = order.offering.zone;
  if (zone.empty()) return all;
  std::erase_if(all, [&](const Ec2Surroundings::Subnet& one) { return !one.zone.empty() && one.zone != zone; });
  if (all.empty()) {
    throw Error(ErrorCode::kNoCapacity, fmt::format("no subnet for '{}' is in {}", order.type.name, zone), "",
                "name one in SubnetIds, or take the zone out of availability_zone");
  }
  return all;
}

void set_user_data(json& config, const Ec2Surroundings& around, const LaunchOrder& order) {
  std::string data = config.value("UserData", "");
  if (!order.head_key.empty()) {
    const auto of_template = around.template_user_data.find(order.sample.type.name);
    if (data.empty() && of_template != around.template_user_data.end()) data = of_template->second;
    data = user_data_with_key(data, order.head_key);
  } else if (!config.contains("UserData")) {
    return;
  }
  if (data.size() > aws::kUserDataMax) {
    throw Error(ErrorCode::kUsage,
                fmt::format("with the head's key the UserData has {} bytes, and EC2 takes {}", data.size(),
                            aws::kUserDataMax),
                "node_config.UserData", "put what is long into setup_commands, or fetch it from a bucket");
  }
  config["UserData"] = rest::base64(data);
}

// What the person did not say.
void fill_in(json& config, const Ec2Surroundings& around, const LaunchOrder& order) {
  const NodeOrder& sample = order.sample;
  const std::string& type = sample.type.name;
  const auto set = [&](const char* key, const std::string& value) {
    if (!value.empty() && !settled(around, type, config, key)) config[key] = value;
  };
  if (const auto image = around.images.find(type); image != around.images.end()) config["ImageId"] = image->second;
  set("KeyName", around.key_name);
  if (const auto named = config.find("IamInstanceProfile"); named != config.end() && named->is_object()) {
    const std::string name = named->value("Name", "");
    if (std::ranges::find(around.absent_profiles, name) != around.absent_profiles.end()) config.erase(named);
  }
  const std::string& profile = sample.of_head ? around.head_profile : around.worker_profile;
  if (!profile.empty() && !settled(around, type, config, "IamInstanceProfile")) {
    config["IamInstanceProfile"] = {{profile.starts_with("arn:") ? "Arn" : "Name", profile}};
  }
  if (!around.security_group.empty() && !settled(around, type, config, "SecurityGroupIds") &&
      !settled(around, type, config, "SecurityGroups")) {
    if (config.contains("NetworkInterfaces")) {
      for (json& one : config["NetworkInterfaces"]) {
        if (!one.contains("Groups")) one["Groups"] = {around.security_group};
      }
    } else if (!settled(around, type, config, "NetworkInterfaces")) {
      config["SecurityGroupIds"] = {around.security_group};
    }
  }
  set_user_data(config, around, order);
}

std::string part(std::string_view type, std::string_view body) {
  return fmt::format("--{}\nContent-Type: {}; charset=\"utf-8\"\nMIME-Version: 1.0\n\n{}{}", kBoundary, type, body,
                     body.ends_with('\n') ? "" : "\n");
}

}  // namespace

std::optional<std::string> pack_nodes(const std::vector<NodeId>& nodes) {
  std::string out;
  for (size_t i = 0; i < nodes.size();) {
    size_t end = i + 1;
    const auto first = numbered(nodes[i].value);
    while (first && end < nodes.size()) {
      const auto next = numbered(nodes[end].value);
      if (!next || next->stem != first->stem || next->number != first->number + (end - i)) break;
      ++end;
    }
    if (!out.empty()) out += ',';
    out += nodes[i].value;
    if (end - i > 1) out += fmt::format(":{}", first->number + (end - i - 1));
    i = end;
  }
  return out.size() > kTagValueMax ? std::nullopt : std::optional(out);
}

std::vector<NodeId> unpack_nodes(std::string_view text) {
  std::vector<NodeId> out;
  if (text.empty()) return out;
  for (const std::string_view one : split(text, ',')) {
    const auto range = split_once(one, ':');
    const std::string_view name = range ? range->first : one;
    out.push_back(NodeId{std::string(name)});
    if (!range) continue;
    const auto first = numbered(name);
    uint64_t last = 0;
    std::from_chars(range->second.data(), range->second.data() + range->second.size(), last);
    if (!first || last < first->number || last - first->number >= kBatchMax) return {};
    for (uint64_t n = first->number + 1; n <= last; ++n) out.push_back(NodeId{fmt::format("{}-{}", first->stem, n)});
  }
  return out;
}

std::optional<NodeId> node_of(const aws::Instance& instance) {
  if (const std::string_view one = instance.tag(kNodeTag); !one.empty()) return NodeId{std::string(one)};
  const std::vector<NodeId> all = unpack_nodes(instance.tag(kBatchTag));
  const auto index = static_cast<size_t>(std::max(instance.launch_index, 0));
  return index < all.size() ? std::optional(all[index]) : std::nullopt;
}

std::vector<LaunchRequest> plan_launch(const Ec2Config& cluster, const Ec2Surroundings& around,
                                       const LaunchOrder& order) {
  CHECK(!order.nodes.empty() && order.nodes.size() <= kBatchMax);
  const NodeOrder& sample = order.sample;
  json config = sample.type.node_config.empty() ? json::object() : json::parse(sample.type.node_config);
  std::erase_if(config.get_ref<json::object_t&>(), [](const auto& one) { return one.second.is_null(); });
  const auto places = places_for(around, sample, config);
  const bool spot = sample.offering.market == Market::kSpot;
  config.erase("SubnetIds");
  fill_in(config, around, order);
  settle_volumes(config);
  set_market(config, spot);
  add_tags(config, cluster, order, spot);
  std::vector<LaunchRequest> out;
  for (const Ec2Surroundings::Subnet& place : places) {
    LaunchRequest request;
    request.config = config;
    request.count = static_cast<int>(order.nodes.size());
    if (!place.id.empty()) request.config["SubnetId"] = place.id;
    request.config["MinCount"] = 1;
    request.config["MaxCount"] = request.count;
    request.place = place.zone.empty() ? place.id : fmt::format("{} ({})", place.zone, place.id);
    if (request.place.empty()) request.place = around.region;
    Sha256 hash;
    for (const std::string& part : {cluster.cluster, sample.launch_hash, pack_nodes(order.nodes).value_or(""), place.id,
                                    std::string(to_string(sample.offering.market)), around.incarnation}) {
      hash.update(fmt::format("{}:{}", part.size(), part));
    }
    request.token = hash.hex();
    out.push_back(std::move(request));
  }
  return out;
}

std::string token_of(const LaunchRequest& request, int round) {
  return sha256_hex(fmt::format("{}/{}", request.token, round)).substr(0, kTokenSize);
}

std::string user_data_with_key(const std::string& own, const std::string& key) {
  const std::string keys = fmt::format("#cloud-config\nssh_authorized_keys:\n  - {}\n", key);
  if (trim(own).empty()) return keys;
  std::string_view type;
  if (own.starts_with("#!")) type = "text/x-shellscript";
  if (own.starts_with("#cloud-config")) type = "text/cloud-config";
  if (type.empty()) {
    throw Error(ErrorCode::kUsage, "UserData must be a shell script (#!) or a #cloud-config", "node_config.UserData",
                "the head's key is put beside it, which is known for these two forms");
  }
  // cloud-init replaces lists of one part by those of the next, unless it is told to append.
  const std::string merge = "merge_how: 'list(append)+dict(recurse_array)+str()'\n";
  return fmt::format("Content-Type: multipart/mixed; boundary=\"{0}\"\nMIME-Version: 1.0\n\n{1}{2}--{0}--\n", kBoundary,
                     part(type, own), part("text/cloud-config", keys + merge));
}

json to_json(const Ec2Surroundings& around) {
  json subnets = json::array();
  for (const Ec2Surroundings::Subnet& one : around.subnets) subnets.push_back({{"id", one.id}, {"zone", one.zone}});
  json mounts = json::array();
  for (const Ec2Surroundings::Mount& one : around.mounts) {
    mounts.push_back({{"id", one.id}, {"path", one.path}, {"addresses", one.addresses}});
  }
  return {{"region", around.region},
          {"incarnation", around.incarnation},
          {"vpc", around.vpc},
          {"subnets", std::move(subnets)},
          {"zones", around.zones},
          {"security_group", around.security_group},
          {"key_name", around.key_name},
          {"head_profile", around.head_profile},
          {"worker_profile", around.worker_profile},
          {"absent_profiles", around.absent_profiles},
          {"images", around.images},
          {"template_keys", around.template_keys},
          {"template_user_data", around.template_user_data},
          {"mounts", std::move(mounts)},
          {"endpoints", around.endpoints}};
}

Ec2Surroundings surroundings_from_json(const json& given) {
  try {
    Ec2Surroundings out;
    out.region = given.at("region");
    out.incarnation = given.value("incarnation", "");
    out.vpc = given.value("vpc", "");
    for (const json& one : given.value("subnets", json::array())) out.subnets.push_back({one.at("id"), one.at("zone")});
    out.zones = given.value("zones", out.zones);
    out.security_group = given.value("security_group", "");
    out.key_name = given.value("key_name", "");
    out.head_profile = given.value("head_profile", "");
    out.worker_profile = given.value("worker_profile", "");
    out.absent_profiles = given.value("absent_profiles", out.absent_profiles);
    out.images = given.value("images", out.images);
    out.template_keys = given.value("template_keys", out.template_keys);
    out.template_user_data = given.value("template_user_data", out.template_user_data);
    for (const json& one : given.value("mounts", json::array())) {
      out.mounts.push_back({one.at("id"), one.at("path"), one.at("addresses")});
    }
    out.endpoints = given.value("endpoints", out.endpoints);
    return out;
  } catch (const json::exception& error) {
    throw not_surroundings(error);
  }
}

}  // namespace rubato::clouds

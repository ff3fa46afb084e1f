#include "clouds/gcp/gcp_launch.h"

#include <fmt/format.h>

#include <algorithm>

#include "clouds/common/cloud_instances.h"
#include "clouds/gcp/machine_types.h"
#include "core/sha256.h"
#include "core/text.h"
#include "gcp/os_login.h"
#include "rest/json.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using provider::NodeOrder;
using rest::text_at;

constexpr size_t kLabelMax = 63;
constexpr size_t kTokenDigits = 10;  // of a machine's name
constexpr std::string_view kScope = "https://www.googleapis.com/auth/cloud-platform";
constexpr int64_t kDiskGb = 50;

bool is_label_char(char c) { return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9') || c == '-' || c == '_'; }

int value_of_digit(char c) {
  if ('0' <= c && c <= '9') return c - '0';
  return 'a' <= c && c <= 'f' ? c - 'a' + 10 : -1;
}

// "zones/Z/machineTypes/NAME", whatever place the person has written.
std::string placed(const std::string& link, std::string_view kind, const std::string& zone) {
  return fmt::format("zones/{}/{}/{}", zone, kind, gcp::last_part(link));
}

bool has_gpus(const json& config) {
  const json cards = config.value("guestAccelerators", json::array());
  if (cards.is_array() && !cards.empty()) return true;
  const auto type = find_gcp_type(machine_type_of(config));
  return type && type->gpus > 0;
}

void set_scheduling(json& config, bool spot) {
  json scheduling = merged_scheduling(config);
  const bool legacy = rest::flag_at(scheduling, "preemptible") && !scheduling.contains("provisioningModel");
  if (spot) {
    scheduling["automaticRestart"] = false;
    scheduling["onHostMaintenance"] = "TERMINATE";
    if (!legacy) {
      scheduling.erase("preemptible");
      scheduling["provisioningModel"] = "SPOT";
      // What stays when it is taken away costs money, and is never started again.
      if (!scheduling.contains("instanceTerminationAction")) scheduling["instanceTerminationAction"] = "DELETE";
    }
  } else {
    scheduling.erase("preemptible");
    if (text_at(scheduling, "provisioningModel") == "SPOT") scheduling.erase("provisioningModel");
    if (!scheduling.contains("maxRunDuration")) scheduling.erase("instanceTerminationAction");
    if (has_gpus(config) && !scheduling.contains("onHostMaintenance")) scheduling["onHostMaintenance"] = "TERMINATE";
  }
  if (scheduling.empty()) {
    config.erase("scheduling");
  } else {
    config["scheduling"] = std::move(scheduling);
  }
}

void set_labels(json& config, const GcpConfig& cluster, const LaunchOrder& order, const NodeId& node) {
  const NodeOrder& sample = order.sample;
  const std::string kind = sample.of_head ? "head" : "worker";
  const auto name = label_of_node(node);
  if (!name) {
    throw Error(ErrorCode::kUsage, fmt::format("the name '{}' is too long for a label of Google's", node.value), "",
                "give the node type a shorter name");
  }
  json& labels = config["labels"];
  if (!labels.is_object()) labels = json::object();
  labels[std::string(kClusterLabel)] = cluster.cluster;
  labels["ray-cluster-name"] = cluster.cluster;
  labels[std::string(kNodeTag)] = *name;
  labels["ray-node-type"] = kind;
  labels["ray-node-name"] = fmt::format("ray-{}-{}", cluster.cluster, kind);
  labels["ray-user-node-type"] = label_text(sample.type.name);
  labels[std::string(kHashTag)] = label_text(sample.launch_hash);
  labels[std::string(kStatusTag)] = "uninitialized";
}

void set_disks(json& config, const GcpConfig& cluster, const GcpSurroundings& around, const NodeOrder& sample,
               const std::string& zone) {
  json& disks = config["disks"];
  if (!disks.is_array() || disks.empty()) {
    const auto image = around.images.find(sample.type.name);
    if (image == around.images.end()) {
      config.erase("disks");  // a template's own, or Google says what is missing
      return;
    }
    const json parameters = {{"sourceImage", image->second}, {"diskSizeGb", std::to_string(kDiskGb)}};
    disks = json::array({{{"boot", true}, {"autoDelete", true}, {"initializeParams", parameters}}});
  }
  for (json& disk : disks) {
    const auto parameters = disk.is_object() ? disk.find("initializeParams") : disk.end();
    if (!disk.is_object() || parameters == disk.end() || !parameters->is_object()) continue;
    if (const std::string kind = text_at(*parameters, "diskType"); !kind.empty()) {
      (*parameters)["diskType"] = placed(kind, "diskTypes", zone);
    }
    json& labels = (*parameters)["labels"];
    if (!labels.is_object()) labels = json::object();
    labels[std::string(kClusterLabel)] = cluster.cluster;
    labels["ray-cluster-name"] = cluster.cluster;
  }
}

void set_network(json& config, const GcpConfig& cluster, const GcpSurroundings& around, bool of_head) {
  json& cards = config["networkInterfaces"];
  if (!cards.is_array() || cards.empty()) {
    json card = json::object();
    if (!around.subnetwork.empty()) card["subnetwork"] = around.subnetwork;
    const bool is_private = of_head ? cluster.internal_head : cluster.internal_only;
    if (!is_private) {
      card["accessConfigs"] = json::array({{{"name", "External NAT"}, {"type", "ONE_TO_ONE_NAT"}}});
    }
    cards = json::array({std::move(card)});
  }
  if (around.network_tag.empty()) return;
  json& tags = config["tags"];
  if (!tags.is_object()) tags = json::object();
  json& items = tags["items"];
  if (!items.is_array()) items = json::array();
  if (std::ranges::find(items, json(around.network_tag)) == items.end()) items.push_back(around.network_tag);
}

// Keys of the person and of the head, beside what the file has; with OS Login, Google ignores them.
void set_metadata(json& config, const GcpConfig& cluster, const GcpSurroundings& around, const std::string& head_key) {
  json& metadata = config["metadata"];
  if (!metadata.is_object()) metadata = json::object();
  json& items = metadata["items"];
  if (!items.is_array()) items = json::array();
  const bool by_login = uses_login(config, around.uses_login);
  // Said in any case: what the project says may change while the cluster is there.
  const json said = {{"key", "enable-oslogin"}, {"value", by_login ? "TRUE" : "FALSE"}};
  std::erase_if(items.get_ref<json::array_t&>(),
                [](const json& one) { return text_at(one, "key") == "enable-oslogin"; });
  if (by_login) {
    items.push_back(said);
    return;
  }
  std::vector<std::string> lines;
  for (const json& item : items) {
    if (text_at(item, "key") == "ssh-keys") lines.push_back(text_at(item, "value"));
  }
  std::erase_if(items.get_ref<json::array_t&>(), [](const json& one) { return text_at(one, "key") == "ssh-keys"; });
  for (const std::string& key : {around.person_key, head_key}) {
    if (!key.empty()) lines.push_back(fmt::format("{}:{}", cluster.ssh_user, key));
  }
  if (!lines.empty()) items.push_back({{"key", "ssh-keys"}, {"value", join(lines, "\n")}});
  items.push_back(said);
}

void set_accelerators(json& config, const std::string& zone) {
  const auto cards = config.find("guestAccelerators");
  if (cards == config.end() || !cards->is_array()) return;
  for (json& card : *cards) {
    if (const std::string kind = text_at(card, "acceleratorType"); !kind.empty()) {
      card["acceleratorType"] = placed(kind, "acceleratorTypes", zone);
    }
  }
}

}  // namespace

std::optional<std::string> label_of_node(const NodeId& node) {
  std::string out;
  for (size_t i = 0; i < node.value.size(); ++i) {
    const char c = node.value[i];
    const bool doubled = c == '_' && ((i > 0 && node.value[i - 1] == '_') ||
                                      (i + 1 < node.value.size() && node.value[i + 1] == '_'));
    if (is_label_char(c) && !doubled) {
      out += c;
    } else {
      out += fmt::format("__{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out.empty() || out.size() > kLabelMax ? std::nullopt : std::optional(out);
}

NodeId node_of_label(std::string_view label) {
  NodeId out;
  for (size_t i = 0; i < label.size(); ++i) {
    if (i + 3 < label.size() && label.substr(i, 2) == "__" && value_of_digit(label[i + 2]) >= 0 &&
        value_of_digit(label[i + 3]) >= 0) {
      out.value += static_cast<char>(value_of_digit(label[i + 2]) << 4 | value_of_digit(label[i + 3]));
      i += 3;
    } else {
      out.value += label[i];
    }
  }
  return out;
}

std::string label_text(std::string_view text) {
  std::string out = to_lower(text).substr(0, kLabelMax);
  for (char& c : out) {
    if (!is_label_char(c)) c = '-';
  }
  return out;
}

json merged_scheduling(const json& node_config) {
  const auto given = node_config.find("scheduling");
  if (given == node_config.end()) return json::object();
  if (given->is_object()) return *given;
  json out = json::object();
  if (!given->is_array()) return out;
  for (const json& one : *given) {
    if (one.is_object()) out.update(one);
  }
  return out;
}

bool uses_login(const json& node_config, bool of_project) {
  for (const json& one : rest::list_at(rest::object_at(node_config, "metadata"), "items")) {
    if (text_at(one, "key") == "enable-oslogin") return gcp::is_on(text_at(one, "value"));
  }
  return of_project;
}

std::string machine_type_of(const json& node_config) { return gcp::last_part(text_at(node_config, "machineType")); }

std::vector<std::string> zones_for(const GcpSurroundings& around, const LaunchOrder& order) {
  const auto own = around.type_zones.find(order.sample.type.name);
  std::vector<std::string> zones = own != around.type_zones.end() ? own->second : around.zones;
  const std::string& wanted = order.sample.offering.zone;
  if (!wanted.empty()) std::erase_if(zones, [&](const std::string& zone) { return zone != wanted; });
  if (zones.empty()) {
    throw Error(ErrorCode::kNoCapacity,
                fmt::format("'{}' is not to be had in {}", order.sample.type.name,
                            wanted.empty() ? around.region : wanted),
                "", "use another machineType, or other zones in availability_zone");
  }
  return zones;
}

std::string request_key(const LaunchOrder& order, const NodeId& node, const std::string& zone) {
  const NodeOrder& sample = order.sample;
  std::string out;
  for (const std::string& part :
       {node.value, sample.launch_hash, zone, std::string(to_string(sample.offering.market))}) {
    out += fmt::format("{}:{}", part.size(), part);
  }
  return out;
}

InstanceRequest instance_request(const GcpConfig& cluster, const GcpSurroundings& around, const LaunchOrder& order,
                                 const NodeId& node, const std::string& zone, int round) {
  const NodeOrder& sample = order.sample;
  json config = sample.type.node_config.empty() ? json::object() : json::parse(sample.type.node_config);
  std::erase_if(config.get_ref<json::object_t&>(), [](const auto& one) { return one.second.is_null(); });
  InstanceRequest out;
  const std::string token =
      sha256_hex(fmt::format("{}/{}/{}", cluster.cluster, request_key(order, node, zone), round));
  out.zone = zone;
  out.name = fmt::format("ray-{}-{}-{}", cluster.cluster, sample.of_head ? "head" : "worker",
                         token.substr(0, kTokenDigits));
  if (const std::string type = machine_type_of(config); !type.empty()) {
    config["machineType"] = placed(type, "machineTypes", zone);
  }
  set_scheduling(config, sample.offering.market == Market::kSpot);
  set_accelerators(config, zone);
  set_disks(config, cluster, around, sample, zone);
  set_network(config, cluster, around, sample.of_head);
  set_metadata(config, cluster, around, order.head_key);
  set_labels(config, cluster, order, node);
  if (sample.of_head && !around.head_account.empty() && !config.contains("serviceAccounts")) {
    const json account = {{"email", around.head_account}, {"scopes", {kScope}}};
    config["serviceAccounts"] = json::array({account});
  }
  config["name"] = out.name;
  out.body = std::move(config);
  // With what is asked for: the same machine described otherwise is another request, which its name then meets.
  out.request_id = gcp::request_id_of(fmt::format("{}\n{}", token, out.body.dump()));
  return out;
}

json to_json(const GcpSurroundings& around) {
  return {{"project", around.project},         {"region", around.region},
          {"zones", around.zones},             {"type_zones", around.type_zones},
          {"subnetwork", around.subnetwork},   {"network_tag", around.network_tag},
          {"head_account", around.head_account}, {"person_key", around.person_key},
          {"uses_login", around.uses_login},
          {"images", around.images},           {"endpoint", around.endpoint},
          {"endpoints", around.endpoints}};
}

GcpSurroundings gcp_surroundings_from_json(const json& given) {
  try {
    GcpSurroundings out;
    out.project = given.at("project");
    out.region = given.at("region");
    out.zones = given.at("zones");
    out.type_zones = given.value("type_zones", out.type_zones);
    out.subnetwork = given.value("subnetwork", "");
    out.network_tag = given.value("network_tag", "");
    out.head_account = given.value("head_account", "");
    out.person_key = given.value("person_key", "");
    out.uses_login = given.value("uses_login", false);
    out.images = given.value("images", out.images);
    out.endpoint = given.value("endpoint", "");
    out.endpoints = given.value("endpoints", out.endpoints);
    return out;
  } catch (const json::exception& error) {
    throw not_surroundings(error);
  }
}

}  // namespace rubato::clouds

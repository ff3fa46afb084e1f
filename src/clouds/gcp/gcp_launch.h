// What Compute Engine is asked for when nodes need machines, and which node a machine belongs to. Pure.
//
// Each machine is a request of its own. Its name is made of the node's: asked for twice, also by a head that came
// between, it is the same machine.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "clouds/common/machine_cloud.h"
#include "clouds/gcp/gcp_config.h"
#include "gcp/compute.h"

namespace rubato::clouds {

inline constexpr std::string_view kClusterLabel = "rubato-cluster";

// A node's name as a label's value, and back: labels have only a-z, 0-9, '-' and '_', and 63 of them; anything else is
// "__" and its two digits. nullopt: it is too long.
std::optional<std::string> label_of_node(const NodeId& node);
NodeId node_of_label(std::string_view label);
// For people: what a label cannot hold is '-'.
std::string label_text(std::string_view text);

// ---- what surrounds machines: found or made by `up`, needed wherever machines are made ----

struct GcpSurroundings {
  std::string project, region;
  std::vector<std::string> zones;                         // in the order in which they are tried
  std::map<std::string, std::vector<std::string>> type_zones;  // of a node type, where its machine type is not in all
  std::string subnetwork;    // "projects/…"; empty: every type names its own
  std::string network_tag;   // by which the firewall knows the machines; empty: no rule was made
  std::string head_account;  // e-mail; empty: the file names it
  std::string person_key;    // public
  bool uses_login = false;   // the project has OS Login on for machines that do not say
  std::map<std::string, std::string> images;  // of node types that name no disks
  std::string endpoint;                       // RUBATO_GCP_ENDPOINT of who made this
  std::map<std::string, std::string> endpoints;  // CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE, … of the same
  bool operator==(const GcpSurroundings&) const = default;
};
nlohmann::json to_json(const GcpSurroundings& surroundings);
GcpSurroundings gcp_surroundings_from_json(const nlohmann::json& json);  // throws kUsage for what is none

// ---- requests ----

// Zones where machines of this order may be, in order. Throws kNoCapacity when the order's own zone is none of them.
std::vector<std::string> zones_for(const GcpSurroundings& around, const LaunchOrder& order);

struct InstanceRequest {
  std::string zone, name, request_id;
  nlohmann::json body;  // as instances.insert takes it
};
// `round`: the machines of the rounds before have ended, or could not be had. Throws kUsage for what cannot be.
InstanceRequest instance_request(const GcpConfig& config, const GcpSurroundings& around, const LaunchOrder& order,
                                 const NodeId& node, const std::string& zone, int round);

// The name that a request of the same node, kind and place has, whatever the round; for remembering.
std::string request_key(const LaunchOrder& order, const NodeId& node, const std::string& zone);

// The parts of a node_config that other files read, in Ray's forms and Google's. Pure.
nlohmann::json merged_scheduling(const nlohmann::json& node_config);  // a list of one, or the mapping
bool uses_login(const nlohmann::json& node_config, bool of_project);  // OS Login
std::string machine_type_of(const nlohmann::json& node_config);       // without its place; empty: none

}  // namespace rubato::clouds

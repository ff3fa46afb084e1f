// PodConfig: what the section `provider` of a cluster file tells the provider `kubernetes`, and what a node_config says
// of a pod. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/time.h"
#include "core/yaml.h"
#include "model/finding.h"
#include "model/provider_kind.h"

namespace rubato::clouds {

struct PodConfig {
  std::string cluster;
  std::string namespace_name;        // empty: the context's; in a pod the pod's own
  std::string context;               // of the kubeconfig of a person; the head has an account of its own
  Duration pending_timeout = 10min;  // a pod for which there is no room for so long is given up
};

// As ProviderKind::compile gives it, and back.
nlohmann::json compile_pod_config(const ClusterFile& file);
PodConfig pod_config_from_json(const nlohmann::json& told);

// "500m" CPUs in thousandths; "4Gi" in bytes. nullopt: no quantity.
std::optional<int64_t> parse_quantity_milli(const std::string& text);

// The Pod of a node_config: it is one itself, or has one under `pod`, as Ray's later files do. Empty: neither.
nlohmann::json pod_of_config(const nlohmann::json& node_config);

// What the first container has: its limits, else its requests. nullopt: it says neither.
std::optional<MachineOffer> pod_offer(const nlohmann::ordered_json& node_config);

// Each problem of a node_config at its place.
void check_pod(const Yaml& config, Findings& findings);

}  // namespace rubato::clouds

// GcpConfig: what the section `provider` of a cluster file tells the provider `gcp`. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/yaml.h"
#include "gcp/settings.h"
#include "model/finding.h"

namespace rubato {
struct ClusterFile;
}

namespace rubato::clouds {

struct GcpConfig {
  std::string cluster, project, region;
  std::vector<std::string> zones;     // in order; empty: all of the region
  bool internal_head = false;         // a person reaches the head at its private address
  bool internal_only = false;         // workers have no public addresses
  bool cache_stopped = false;         // on-demand workers are stopped instead of ended
  std::vector<std::string> ssh_from;  // CIDRs; empty: the caller's own address
  std::string ssh_user;               // of the machines, whom keys are for
  std::string provider_where;         // file:line:column of `provider`
};

// As ProviderKind::compile gives it, and back. Credentials of the file are no part of it: they stay where it is.
nlohmann::json compile_gcp_config(const ClusterFile& file);
GcpConfig gcp_config_from_json(const nlohmann::json& told);

// provider.gcp_credentials; nullopt: none.
std::optional<gcp::GivenCredentials> given_credentials(const ClusterFile& file);

// A node of Cloud TPU, which Ray's files have in the same place.
bool is_tpu(const nlohmann::json& node_config);
inline constexpr std::string_view kNoTpus = "this is a TPU, and rubato makes machines of Compute Engine only";
inline constexpr std::string_view kNoTpusFix =
    "use GPUs (guestAccelerators, or a machineType of a2, a3, g2), or Google's own tools for TPUs";

// A node_config by Google's own schema of instances.insert; each problem at its place. A TPU is a warning.
void check_gcp_node_config(const Yaml& config, Findings& findings);
// What `provider` says beside the keys that all clouds have.
void check_gcp_provider(const Yaml& provider, Findings& findings);

}  // namespace rubato::clouds

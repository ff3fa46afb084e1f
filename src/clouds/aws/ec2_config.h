// Ec2Config: what the section `provider` of a cluster file tells the provider `aws`. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "aws/ec2_network.h"
#include "core/yaml.h"
#include "model/finding.h"

namespace rubato {
struct ClusterFile;
}

namespace rubato::clouds {

struct Ec2Config {
  std::string cluster, region;
  std::vector<std::string> zones;     // in order; empty: all of the region
  bool internal_head = false;         // a person reaches the head at its private address
  bool internal_only = false;         // subnets without public addresses will do
  bool cache_stopped = true;          // on-demand workers are stopped instead of ended
  std::vector<std::string> ssh_from;  // CIDRs; empty: the caller's own address
  std::string group_name;             // of provider.security_group; empty: rubato-CLUSTER
  std::vector<aws::Rule> rules;       // added to ours
  std::vector<std::string> buckets;   // that nodes read and write
  struct WantedFileSystem {
    std::string id, name;  // one of them
    std::string mount;     // "/mnt/efs1", "~/efs"
    bool remove = false;   // by `down`, if `up` made it
    std::string where;     // file:line:column
  };
  std::vector<WantedFileSystem> file_systems;
  std::string key_name;               // of provider.key_pair
  std::string key_where;              // file:line:column of it
  std::string provider_where;         // file:line:column of `provider`
};

// As ProviderKind::compile gives it, and back. The file has no errors.
nlohmann::json compile_ec2_config(const ClusterFile& file);
Ec2Config ec2_config_from_json(const nlohmann::json& told);

// What `provider` says beside the keys that all clouds have: ranges and rules, each problem at its place.
void check_ec2_provider(const Yaml& provider, Findings& findings);

// A node_config by AWS's own model of RunInstances, with Ray's SubnetIds; each problem at its place.
void check_node_config(const Yaml& config, Findings& findings);

}  // namespace rubato::clouds

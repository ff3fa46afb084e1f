// What EC2 is asked for when nodes need machines, and which node a machine belongs to. Pure.
//
// All machines of one request carry the same tags, so a request for several nodes names all of them in one tag, and
// EC2's own index of each machine in its request says which one it is. Nothing has to be done after the request: a head
// that dies right behind it finds its machines again.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aws/ec2.h"
#include "clouds/aws/ec2_config.h"
#include "clouds/common/machine_cloud.h"
#include "model/ids.h"
#include "provider/node_provider.h"

namespace rubato::clouds {

// ---- tags ----

inline constexpr std::string_view kBatchTag = "rubato-nodes";  // "worker-3:7,worker-9": of the request's machines
inline constexpr size_t kBatchMax = 50;  // machines of one request

// The names in as few bytes as possible, in their order; nullopt when they are more than a tag may hold.
std::optional<std::string> pack_nodes(const std::vector<NodeId>& nodes);
std::vector<NodeId> unpack_nodes(std::string_view text);  // empty for what is none

// Whose machine it is; nullopt: no tag says so.
std::optional<NodeId> node_of(const aws::Instance& instance);

// ---- what surrounds machines: found or made by `up`, needed wherever machines are made ----

struct Ec2Surroundings {
  struct Subnet {
    std::string id, zone;
    bool operator==(const Subnet&) const = default;
  };
  std::string region, vpc;
  std::string incarnation;                    // of the cluster, from `up` to `down`; empty: not told
  std::vector<Subnet> subnets;                // in the order in which they are tried
  std::map<std::string, std::string> zones;   // of every subnet that the file names, by its id
  std::string security_group;                 // of the cluster; empty: every type names its own
  std::string key_name;                       // of the person's key; empty: every type names its own
  std::string head_profile, worker_profile;   // ARNs of instance profiles, or names; empty: none
  std::vector<std::string> absent_profiles;   // that the file names, and nobody has made: machines go without
  std::map<std::string, std::string> images;  // AMIs, by the type of node
  std::map<std::string, std::vector<std::string>> template_keys;  // what a type's launch template settles already
  std::map<std::string, std::string> template_user_data;          // of those templates, decoded
  struct Mount {
    std::string id, path;                          // of an EFS file system; "~/efs"
    std::map<std::string, std::string> addresses;  // of its mount targets, by zone
    bool operator==(const Mount&) const = default;
  };
  std::vector<Mount> mounts;                     // on every machine
  std::map<std::string, std::string> endpoints;  // AWS_ENDPOINT_URL_EC2, …: of who made this, where not AWS's own
  bool operator==(const Ec2Surroundings&) const = default;
};
nlohmann::json to_json(const Ec2Surroundings& surroundings);
Ec2Surroundings surroundings_from_json(const nlohmann::json& json);  // throws kUsage for what is none

// ---- requests ----

struct LaunchRequest {
  nlohmann::json config;  // as RunInstances takes it, tags included
  int count = 1;
  std::string token;  // of the first try; see token_of()
  std::string place;  // for people: "eu-west-1a (subnet-1234)"
};

// One request for each place where they may be had, in order: the next one is for when the one before has no capacity.
// Throws kNoCapacity when the order's zone has no subnet, kUsage when the file asks for what cannot be.
// Of at most kBatchMax nodes, and few enough for pack_nodes().
std::vector<LaunchRequest> plan_launch(const Ec2Config& config, const Ec2Surroundings& around,
                                       const LaunchOrder& order);

// A request that is repeated has the same token, and gives the same machines. `round`: those of the one before have
// ended meanwhile.
std::string token_of(const LaunchRequest& request, int round);

// The user data of a machine that lets `key` in, with the person's own, which may be empty. Throws kUsage for own data
// of a form that cannot be combined.
std::string user_data_with_key(const std::string& own, const std::string& key);

}  // namespace rubato::clouds

// EC2: the calls that make, list and end machines, and read what they can be. Lists are read page by page, whole.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "aws/params.h"

namespace rubato::aws {

struct Instance {
  std::string id, type, zone, image, state;  // state: pending, running, shutting-down, terminated, stopping, stopped
  std::string private_address, public_address, public_name;
  std::string subnet, vpc, key_name, launched;
  std::string state_reason;  // "Server.SpotInstanceTermination"
  std::string client_token;
  int launch_index = 0;  // among those of one RunInstances
  bool spot = false;
  Tags tags;
  std::string_view tag(std::string_view key) const;  // empty: none
};

inline constexpr size_t kUserDataMax = 16 * 1024;  // what EC2 takes of it, before base64

// Makes `count` machines, all or none, once for each client token: asking again with the same token gives the same
// ones. `config` is what RunInstances takes (names of the SDKs); tags go on instances and their volumes.
// Throws CloudError: kNoCapacity, kQuota, kAuth, …
struct Launch {
  nlohmann::json* config = nullptr;  // outlives the call
  int count = 1;
  std::string client_token;
  Tags tags;
};
Task<std::vector<Instance>> run_instances(Client& client, Launch launch);

// An instance that was just made may be unknown for some seconds: with ids, that is kNotFound; with filters, it is
// just not in the list.
Task<std::vector<Instance>> describe_instances(Client& client, std::vector<std::string> ids,
                                               std::vector<Filter> filters);

// Their states after the call. Ending what has ended is no error; what was never there is kNotFound.
struct StateChange {
  std::string id, before, now;
};
Task<std::vector<StateChange>> terminate_instances(Client& client, std::vector<std::string> ids);
Task<std::vector<StateChange>> stop_instances(Client& client, std::vector<std::string> ids);
Task<std::vector<StateChange>> start_instances(Client& client, std::vector<std::string> ids);

Task<void> create_tags(Client& client, std::vector<std::string> ids, Tags tags);
Task<void> delete_tags(Client& client, std::vector<std::string> ids, std::vector<std::string> keys);

struct Image {
  std::string id, name, created, state, root_device, architecture, owner;
};
// By ids, or by owners ("self", "amazon", an account) and filters; the newest first.
Task<std::vector<Image>> describe_images(Client& client, std::vector<std::string> ids, std::vector<std::string> owners,
                                         std::vector<Filter> filters);
// Of a server that is not AWS's, which has other images: the newest with such a name, else the newest of all.
Task<std::optional<Image>> find_stand_in(Client& client, std::string name_pattern);
Task<std::string> create_image(Client& client, std::string instance, std::string name, Tags tags);  // its id

struct InstanceType {
  std::string name;
  int vcpus = 0;
  int64_t memory_mib = 0;
  int gpus = 0;
  std::string gpu_name, gpu_maker;
  int64_t gpu_memory_mib = 0;  // of one
  std::vector<std::string> architectures;
  bool spot = false;
};
Task<std::vector<InstanceType>> describe_instance_types(Client& client, std::vector<std::string> names);

struct SpotPrice {
  std::string type, zone, time;
  double price = 0;  // dollars an hour
};
// Since `start` (RFC 3339); the newest of each type and zone comes first.
Task<std::vector<SpotPrice>> describe_spot_prices(Client& client, std::vector<std::string> types, std::string start);

struct LaunchTemplate {
  std::string id, name;
  int64_t latest = 0, default_version = 0;
};
Task<std::vector<LaunchTemplate>> describe_launch_templates(Client& client, std::vector<std::string> names);
// From what RunInstances takes, base64 user data included. Its id.
Task<std::string> create_launch_template(Client& client, std::string name, const nlohmann::json& config,
                                         std::string client_token, Tags tags);
// What one version settles: the keys of RunInstances, by the SDKs' names. nullopt: there is none.
struct TemplateContents {
  std::vector<std::string> keys;
  std::string user_data;  // decoded
  std::string profile;    // ARN or name of its instance profile; empty: none
};
Task<std::optional<TemplateContents>> describe_template(Client& client, std::string id, std::string name,
                                                        std::string version);
Task<void> delete_launch_template(Client& client, std::string id);

// The console's text, decoded; empty until there is some.
Task<std::string> console_output(Client& client, std::string instance);

// Tags of an element's tagSet.
Tags tags_of(const rest::XmlNode& node);
// All pages of a Describe call: the children `item` of `list`.
Task<std::vector<rest::XmlNode>> describe_pages(Client& client, std::string action, Params params, std::string list);
// The same where only filters say what is meant: a server that calls nothing found an error has nothing.
Task<std::vector<rest::XmlNode>> describe_if_any(Client& client, std::string action, Params params, std::string list);

}  // namespace rubato::aws

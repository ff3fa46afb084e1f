// EFS file systems, and SSM's parameters (AMIs by name).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "aws/params.h"

namespace rubato::aws {

// The value; nullopt: there is no such parameter.
Task<std::optional<std::string>> get_parameter(Client& client, std::string name);

struct FileSystem {
  std::string id, name, state;  // state: creating, available, deleting
  int64_t bytes = 0;            // as last measured
  Tags tags;
};
Task<std::vector<FileSystem>> describe_file_systems(Client& client);
// The same token gives the same file system. The name is a tag.
Task<FileSystem> create_file_system(Client& client, std::string token, Tags tags);
Task<void> delete_file_system(Client& client, std::string id);

struct MountTarget {
  std::string id, subnet, address, state, zone;
};
Task<std::vector<MountTarget>> describe_mount_targets(Client& client, std::string file_system);
Task<MountTarget> create_mount_target(Client& client, std::string file_system, std::string subnet,
                                      std::vector<std::string> groups);
// Ids of its security groups.
Task<std::vector<std::string>> groups_of_mount_target(Client& client, std::string id);
Task<void> delete_mount_target(Client& client, std::string id);

}  // namespace rubato::aws

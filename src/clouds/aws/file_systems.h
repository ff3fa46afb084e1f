// EFS file systems of a cluster: `provider.efs` names them, `up` finds or makes them, machines mount them.
//
//   - name: shared      found by its tag Name, or made; or id: fs-...
//     mount: ~/efs      where machines have it; its default is /mnt/efs1
//     remove: true      `down` removes it, if `up` made it: else its data stays
//
// A file system needs a mount target in each zone whose machines use it. Those that `up` makes have the cluster's
// security group, by which `down` knows them; those that were there before are left as they are.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "aws/client.h"
#include "clouds/aws/launch.h"
#include "clouds/common/cloud_head.h"

namespace rubato::clouds {

struct FileSystemsOrder {
  Ec2Config config;
  std::map<std::string, std::string> subnets;  // one for each zone that machines may be in: zone to subnet
  std::string security_group;                  // the cluster's; empty: it has none
};
// Found or made, with a mount target in every zone; returns when they can be mounted. May be repeated.
Task<std::vector<Ec2Surroundings::Mount>> ensure_file_systems(aws::Client& client, FileSystemsOrder order,
                                                              std::vector<std::string>& notes);

// The mount targets that have the cluster's group, and the file systems that are ours and asked to go.
Task<void> remove_file_systems(aws::Client& client, const Ec2Config& config, std::set<std::string> groups,
                               RemovedSurroundings& out);

// A script that mounts it where it is not yet, by NFS 4.1 with the options that AWS recommends. Pure.
std::string mount_script(const Ec2Surroundings::Mount& mount, const std::string& zone);
// As docker takes it: the folder of the machine, at the same path in the container. Pure.
std::string mount_option(const Ec2Surroundings::Mount& mount);

}  // namespace rubato::clouds

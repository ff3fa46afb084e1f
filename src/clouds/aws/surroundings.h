// What surrounds a cluster's machines in EC2: `up` finds or makes it, `down` removes what was made.
//
//   network         the default VPC's subnets in the file's zones, or those that node types name
//   security group  rubato-CLUSTER: all traffic inside of it, SSH from provider.ssh_from, the file's own rules
//   key pair        rubato-CLUSTER-HASH: the person's public key, or that of one made for the cluster
//   head's role     rubato-CLUSTER-head: may make and end machines that carry the cluster's tag, and no others
//   images          an AMI for each node type: its own, by name, or the newest of Ubuntu or of AWS's for GPUs
//
// Everything that is made carries the tag rubato-cluster; what does not is never changed or removed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "clouds/aws/launch.h"
#include "model/cluster_file.h"

namespace rubato::clouds {

struct SurroundingsOrder {
  Ec2Config config;
  const ClusterFile* file = nullptr;  // outlives the call
  std::string public_key;             // for the key pair; empty: every type names its own KeyName
  aws::Environment env;
  std::function<void(std::string)> on_progress;  // for people
};

struct FoundSurroundings {
  Ec2Surroundings around;
  bool new_profile = false;  // EC2 may not have heard of the head's profile yet
  std::vector<std::string> notes;
};

// Each part is found, or made where it is missing; may be repeated. Throws kUsage for what the file has to say.
Task<FoundSurroundings> prepare_surroundings(aws::Client& client, SurroundingsOrder order);

// The same in the other direction, when no machine uses them any more. `notes` says what was kept, and why.
struct RemovedSurroundings {
  std::vector<std::string> removed, kept;
};
Task<RemovedSurroundings> remove_surroundings(aws::Client& client, Ec2Config config);

// "rubato-CLUSTER", and "rubato-CLUSTER-head-REGION", cut to what IAM takes.
std::string group_name_of(const Ec2Config& config);
std::string head_role_name(const Ec2Config& config);

// How a type names its image, of node_config and what is known of its machine. Pure.
struct ImageWish {
  enum class Kind { kId, kParameter, kName } kind = Kind::kId;
  std::string text;  // the AMI, the SSM parameter, or the pattern of names
};
ImageWish image_wish(const nlohmann::json& node_config);

}  // namespace rubato::clouds

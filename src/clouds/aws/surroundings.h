// What surrounds a cluster's machines in EC2: `up` finds or makes it, `down` removes what was made.
//
//   network         the default VPC's subnets in the file's zones, or those that node types name
//   security group  rubato-CLUSTER: all traffic inside of it, SSH from provider.ssh_from, the file's own rules
//   key pair        rubato-CLUSTER-HASH: the person's public key, or that of one made for the cluster
//   head's role     rubato-CLUSTER-head: may make and end machines that carry the cluster's tag, and no others
//   workers' role   rubato-CLUSTER-workers, where provider.s3_buckets names some: may read and write these buckets
//   images          an AMI for each node type: its own, by name, or the newest of Ubuntu or of AWS's for GPUs
//
// Everything that is made carries the tag rubato-cluster; what does not is never changed or removed.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "clouds/aws/launch.h"
#include "clouds/common/cloud_head.h"
#include "model/cluster_file.h"
#include "provider/cloud_survey.h"

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

// What of that can be tried without making anything: each step as a check. Gives what was found.
Task<Ec2Surroundings> check_surroundings(aws::Client& client, SurroundingsOrder order,
                                         std::vector<provider::CloudCheck>& out);

// The same in the other direction, when no machine uses them any more. What cannot be removed is kept, with the reason.
// `placement_groups`: those that the file names.
Task<RemovedSurroundings> remove_surroundings(aws::Client& client, Ec2Config config,
                                              std::set<std::string> placement_groups);
std::set<std::string> placement_groups_of(const ClusterFile& file);

// "rubato-CLUSTER", "rubato-CLUSTER-head-REGION" and "rubato-CLUSTER-workers-REGION", cut to what IAM takes.
std::string group_name_of(const Ec2Config& config);
std::string head_role_name(const Ec2Config& config);
std::string workers_role_name(const Ec2Config& config);

// How a type names its image, of node_config and what is known of its machine. Pure.
struct ImageWish {
  enum class Kind { kId, kParameter, kName } kind = Kind::kId;
  std::string text;  // the AMI, the SSM parameter, or the pattern of names
  std::string owner, pattern;  // where the parameter is not to be had: the newest of theirs with such a name
  std::string like;            // of a server that is not AWS's, where there is none of that name either
};
ImageWish image_wish(const nlohmann::json& node_config);

}  // namespace rubato::clouds

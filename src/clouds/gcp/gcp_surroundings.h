// What surrounds a cluster's machines in Compute Engine: `up` finds or makes it, `down` removes what was made.
//
//   project          is there, and we may do what is needed: what is missing is told at once, by name
//   zones, network   of the region; the subnet of the network `default`, or the only one
//   firewall         rubato-CLUSTER-ssh: SSH from provider.ssh_from; rubato-CLUSTER-inside: all between the nodes
//   head's account   may make and end machines whose names are the cluster's, and no others
//   images           for node types that name no disks: Ubuntu, or Google's for GPUs
//
// What is made says whose it is in its description; what does not is never changed or removed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "clouds/common/cloud_head.h"
#include "clouds/gcp/gcp_launch.h"
#include "model/cluster_file.h"
#include "provider/cloud_survey.h"

namespace rubato::clouds {

struct GcpSurroundingsOrder {
  GcpConfig config;
  const ClusterFile* file = nullptr;  // outlives the call
  std::string public_key;
  gcp::Environment env;
  std::function<void(std::string)> on_progress;  // for people
};

struct FoundGcpSurroundings {
  GcpSurroundings around;
  bool new_account = false;  // Compute may not have heard of the head's account yet
  std::vector<std::string> notes;
};

// Each part is found, or made where it is missing; may be repeated. Throws kUsage for what the file has to say.
Task<FoundGcpSurroundings> prepare_gcp_surroundings(gcp::Client& client, GcpSurroundingsOrder order);

// What of that can be tried without making anything: each step as a check. Gives what was found.
Task<GcpSurroundings> check_gcp_surroundings(gcp::Client& client, GcpSurroundingsOrder order,
                                             std::vector<provider::CloudCheck>& out);

// The same in the other direction, when no machine uses them any more. What cannot be removed is kept, with the reason.
Task<RemovedSurroundings> remove_gcp_surroundings(gcp::Client& client, GcpConfig config);

// 6 to 30 characters of the cluster's name and its digest.
std::string head_account_name(const GcpConfig& config);
std::vector<std::string> firewall_names(const GcpConfig& config);
// What is written on what was made for the cluster.
std::string description_of(const GcpConfig& config);

}  // namespace rubato::clouds

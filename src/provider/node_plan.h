// From a node's recipe to what is done on its machine.
#pragma once

#include <string>

#include "model/cluster_file.h"
#include "provider/instances.h"
#include "provider/node_setup.h"

namespace rubato::provider {

// Where the contents of a mount lie on the head's machine, in the cluster's folder: put there by `rubato up`.
std::string staged_mount(const std::string& cluster_folder, const std::string& remote_path);

// What goes and what stays when mounts are moved.
SyncOptions sync_options(const ClusterFile& file);

// What is done on the machine of an order: all but the identity and `program`. The log is nodes/ID.log in the cluster's
// folder.
NodeSetupSpec plan_node(const NodeOrder& order, const Machine& machine, const std::string& cluster_folder);

NodeEnd plan_end(const NodeRecipe& recipe, const NodeId& node);

}  // namespace rubato::provider

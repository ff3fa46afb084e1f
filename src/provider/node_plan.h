// From what a cluster file says to what is done on one node's machine.
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

// The container that the nodes of a type are in; nullopt without docker.
std::optional<ContainerSpec> container_spec(const ClusterFile& file, const std::string& type, bool head);

// All but the identity and `program`. The log is nodes/ID.log in the cluster's folder.
NodeSetupSpec plan_node(const ClusterFile& file, const NodeOrder& order, const Machine& machine,
                        const std::string& cluster_folder);

// For a node of which only the name is known.
NodeEnd plan_end(const ClusterFile& file, const NodeId& node);

}  // namespace rubato::provider

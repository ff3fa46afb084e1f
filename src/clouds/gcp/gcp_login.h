// OS Login for a cluster's machines: which of them want it, who may, and what is left of it when the cluster is gone.
#pragma once

#include "clouds/common/cloud_head.h"
#include "clouds/gcp/gcp_launch.h"
#include "gcp/os_login.h"
#include "model/cluster_file.h"

namespace rubato::clouds {

// The comment of the keys that are imported for a cluster.
std::string login_comment(const GcpConfig& config);

// Whether a machine of any of the file's types has it on.
bool any_uses_login(const ClusterFile& file, bool of_project);

// Throws kAuth, with the role to ask for, when we may not log in to machines with OS Login; a note for people when it
// is without sudo, else empty.
Task<std::string> check_login_permission(gcp::Client& client, GcpConfig config);

// The key that was made for the cluster; one that the file names is a person's own, and stays. `used`: some of its
// machines had OS Login, whatever file and project say now.
Task<void> remove_login(gcp::Client& client, GcpConfig config, const ClusterFile& file, bool used,
                        RemovedSurroundings& out);

}  // namespace rubato::clouds

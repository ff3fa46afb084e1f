// The steps of read_cluster_file, one per section. Include it nowhere else.
#pragma once

#include "model/cluster_file.h"

namespace rubato {

void read_provider_config(const ConfigSection& top, ClusterFile& out);
void read_auth(const ConfigSection& top, ClusterFile& out);
void read_docker(const ConfigSection& top, ClusterFile& out);
void read_files(const ConfigSection& top, ClusterFile& out);
void read_commands(const ConfigSection& top, ClusterFile& out);
void read_jobs(const ConfigSection& top, ClusterFile& out);

// Limits, node types and the head's type, legacy forms too. After the provider.
void read_nodes(ConfigSection& top, ConfigReading& reading, ClusterFile& out);

}  // namespace rubato

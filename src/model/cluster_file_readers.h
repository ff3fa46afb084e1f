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

// What Ray's files mean without node types: the two types of its defaults. Empty for providers that have none.
struct DefaultTypes {
  std::string head, worker;
  nlohmann::ordered_json head_config = nlohmann::ordered_json::object();
  nlohmann::ordered_json worker_config = nlohmann::ordered_json::object();
  Resources resources;
};
DefaultTypes default_types(std::string_view provider);

}  // namespace rubato

// ClusterSpec: a cluster file, read and checked, with the place of each limit for `rubato why`.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/time.h"
#include "core/yaml.h"
#include "model/resources.h"

namespace rubato {

struct NodeType {
  std::string name;
  Resources resources;
  int min_workers = 0;
  int max_workers = 0;
  std::string resources_where, min_where, max_where;  // file:line:column of each, for people
  bool operator==(const NodeType&) const = default;
};

enum class Isolation {
  kNone,   // nodes are processes with addresses 127.0.x.y
  kNetns,  // each has a network namespace of its own; needs root
};
std::string_view to_string(Isolation isolation);

struct ClusterSpec {
  std::string name = "local";
  Isolation isolation = Isolation::kNone;
  std::map<std::string, NodeType> types;
  int max_workers = 0;  // over all types
  std::string max_where;
  bool operator==(const ClusterSpec&) const = default;
};

// A file with `provider: {type: local}`. Throws usage Errors with file:line:column and the nearest key.
ClusterSpec read_cluster_spec(const Yaml& document);

// For `rubato up` without a file: one node with all of this machine.
std::string default_cluster_text(int cpus, int gpus);

nlohmann::json to_json(const ClusterSpec& spec);
ClusterSpec cluster_spec_from_json(const nlohmann::json& json);

// What a node of this type was made from: a node with another hash is replaced.
std::string launch_hash(const ClusterSpec& spec, const NodeType& type);

}  // namespace rubato

#include "model/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"

namespace rubato {
namespace {

using nlohmann::json;

// Each node of the local provider is a process here; more would not be one machine any more.
constexpr int64_t kNodesMax = 10'000;

// They become parts of paths and of node ids.
void check_name(const Yaml& node, std::string_view what) {
  const std::string name = node.as_string();
  const auto fine = [](char c) { return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9') || c == '-'; };
  if (name.empty() || name.size() > 40 || name.front() == '-' || name.back() == '-' ||
      !std::all_of(name.begin(), name.end(), fine)) {
    node.fail(fmt::format("'{}' is not a name for {}", name, what),
              "use up to 40 of a-z, 0-9 and '-'; the first and last one a letter or digit");
  }
}

Isolation isolation_from(const Yaml& node) {
  const std::string text = node.as_string();
  for (const Isolation isolation : {Isolation::kNone, Isolation::kNetns}) {
    if (text == to_string(isolation)) return isolation;
  }
  node.fail(fmt::format("the isolation '{}' is unknown", text), "write none or netns");
}

void read_provider(const Yaml& node, ClusterSpec& spec) {
  StrictMapping fields(node, "provider");
  const Yaml type = fields.require("type");
  if (type.as_string() != "local") {
    type.fail(fmt::format("the provider type '{}' is not yet supported here", type.as_string()),
              "supported: local (nodes on this machine)");
  }
  for (const char* key : {"head_ip", "worker_ips", "coordinator_address"}) {
    if (const auto hosts = node.find(key)) {
      hosts->fail(fmt::format("hosts of your own ({}) are not yet supported here", key),
                  "leave it out for nodes on this machine; 'rubato config check' takes the file");
    }
  }
  if (const auto isolation = fields.find("isolation")) spec.isolation = isolation_from(*isolation);
  fields.finish();
}

// Our form of max_workers; Ray's stands at the top.
void read_autoscaling(const Yaml& node, std::optional<Yaml>& most) {
  StrictMapping fields(node, "autoscaling");
  const auto ours = fields.find("max_workers");
  fields.finish();
  if (ours && most) ours->fail("autoscaling.max_workers says again what max_workers says", "keep one of the two");
  if (ours) most = ours;
}

// Through JSON, so that a file and the API take the same words.
json amount_of(const std::string& name, const Yaml& value) {
  const std::string text = value.as_string();
  if (text == "auto") {
    value.fail(fmt::format("'{}: auto' is not a number", name),
               "write how much each node has; 'rubato up' without a file counts this machine");
  }
  if (name == kMemory && (value.quoted() || text.find_first_not_of("0123456789.") != std::string::npos)) return text;
  return value.as_double();
}

Resources read_resources(const Yaml& node) {
  Resources out;
  if (!node.is_mapping()) node.fail("resources must be a mapping of names to amounts", "write {CPU: 4}");
  for (const Yaml::Entry& entry : node.entries()) {
    const std::string name = entry.key.as_string();
    try {
      const json one = json::object({{name, amount_of(name, entry.value)}});
      out += resources_from_json(one);
    } catch (const Error& error) {
      if (!error.where.empty()) throw;
      entry.value.fail(error.message, error.hint);
    }
  }
  if (out.empty()) node.fail("a node needs some resource", "write {CPU: 4}");
  return out;
}

NodeType read_type(const Yaml::Entry& entry, const std::optional<int>& cluster_max) {
  check_name(entry.key, "a node type");
  NodeType type;
  type.name = entry.key.as_string();
  StrictMapping fields(entry.value, fmt::format("the node type {}", type.name));
  const Yaml resources = fields.require("resources");
  type.resources = read_resources(resources);
  type.resources_where = resources.where();
  type.min_where = type.max_where = entry.key.where();
  const auto least = fields.find("min_workers");
  if (least) {
    type.min_workers = static_cast<int>(least->as_int(0, kNodesMax));
    type.min_where = least->where();
  }
  const auto most = fields.find("max_workers");
  if (most) {
    type.max_workers = static_cast<int>(most->as_int(0, kNodesMax));
    type.max_where = most->where();
  } else {
    type.max_workers = cluster_max.value_or(type.min_workers);
  }
  // Ray's files carry it; a node of this machine has nothing to configure there.
  if (const auto config = fields.find("node_config"); config && !config->entries().empty()) {
    config->fail("node_config has no meaning for the local provider", "remove its keys");
  }
  fields.finish();
  if (!least && !most && !cluster_max) {
    entry.value.fail(fmt::format("the node type {} would never have a node", type.name),
                     "give it min_workers, max_workers, or both");
  }
  if (type.min_workers > type.max_workers) {
    // Of what was written, the later word is the surprising one; when max came from the cluster, that is min.
    const Yaml& at = most ? *most : *least;
    at.fail(fmt::format("the node type {} has min_workers {} above max_workers {}", type.name, type.min_workers,
                        type.max_workers),
            fmt::format("raise max_workers to {}", type.min_workers));
  }
  return type;
}

// Numbers of any size would do; a file that means 64 bits is not meant.
int checked_int(const json& object, const char* key) {
  const json& value = object.at(key);
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > kNodesMax * kNodesMax) {
    throw Error(ErrorCode::kUsage, fmt::format("the cluster's {} is not a count", key));
  }
  return value.get<int>();
}

}  // namespace

std::string_view to_string(Isolation isolation) {
  switch (isolation) {
    case Isolation::kNone:
      return "none";
    case Isolation::kNetns:
      return "netns";
  }
  return "unknown";
}

ClusterSpec read_cluster_spec(const Yaml& document) {
  if (!document.is_mapping()) {
    document.fail("the cluster file is empty or no mapping", "it begins with cluster_name: NAME");
  }
  StrictMapping fields(document, "the cluster file");
  ClusterSpec spec;
  if (const auto name = fields.find("cluster_name")) {
    check_name(*name, "a cluster");
    spec.name = name->as_string();
  }
  read_provider(fields.require("provider"), spec);
  std::optional<int> most;
  auto most_node = fields.find("max_workers");
  if (const auto limits = fields.find("autoscaling")) read_autoscaling(*limits, most_node);
  if (most_node) most = static_cast<int>(most_node->as_int(0, kNodesMax));

  auto ours = fields.find("node_types");
  if (const auto ray = fields.find("available_node_types"); ours && ray) {
    ours->fail("node_types says again what available_node_types says", "keep one of the two");
  }
  const Yaml types = ours ? *ours : fields.require("available_node_types");
  if (!types.is_mapping() || types.entries().empty()) {
    types.fail(fmt::format("{} must name at least one type", ours ? "node_types" : "available_node_types"),
               "write NAME: {resources: {CPU: 4}, min_workers: 1}");
  }
  fields.finish();
  int64_t least_sum = 0, most_sum = 0;
  for (const Yaml::Entry& entry : types.entries()) {
    NodeType type = read_type(entry, most);
    least_sum += type.min_workers;
    most_sum += type.max_workers;
    spec.types.emplace(type.name, std::move(type));
  }
  spec.max_workers = most.value_or(static_cast<int>(std::min(most_sum, kNodesMax)));
  spec.max_where = most_node ? most_node->where() : types.where();
  if (least_sum > spec.max_workers) {
    const Yaml& at = most_node ? *most_node : types;
    at.fail(fmt::format("the types' min_workers add up to {}, but max_workers is {}", least_sum, spec.max_workers),
            fmt::format("raise max_workers to {}, or lower a min_workers", least_sum));
  }
  return spec;
}

std::string default_cluster_text(int cpus, int gpus) {
  const std::string gpu = gpus > 0 ? fmt::format(", GPU: {}", gpus) : "";
  return fmt::format(R"(# Written by `rubato up`: one node with all of this machine.
cluster_name: local
provider:
  type: local
max_workers: 1
available_node_types:
  machine:
    resources: {{CPU: {}{}}}
    min_workers: 1
    max_workers: 1
)",
                     std::max(cpus, 1), gpu);
}

json to_json(const ClusterSpec& spec) {
  json types = json::array();
  for (const auto& [name, type] : spec.types) {
    types.push_back({{"name", name},
                     {"resources", to_json(type.resources)},
                     {"min_workers", type.min_workers},
                     {"max_workers", type.max_workers},
                     {"resources_where", type.resources_where},
                     {"min_where", type.min_where},
                     {"max_where", type.max_where}});
  }
  return {{"name", spec.name},
          {"provider", "local"},
          {"isolation", to_string(spec.isolation)},
          {"max_workers", spec.max_workers},
          {"max_where", spec.max_where},
          {"types", std::move(types)}};
}

ClusterSpec cluster_spec_from_json(const json& object) {
  try {
    ClusterSpec spec;
    spec.name = object.at("name").get<std::string>();
    spec.isolation = object.at("isolation") == to_string(Isolation::kNetns) ? Isolation::kNetns : Isolation::kNone;
    spec.max_workers = checked_int(object, "max_workers");
    spec.max_where = object.at("max_where").get<std::string>();
    for (const json& one : object.at("types")) {
      NodeType type;
      type.name = one.at("name").get<std::string>();
      type.resources = resources_from_json(one.at("resources"));
      type.min_workers = checked_int(one, "min_workers");
      type.max_workers = checked_int(one, "max_workers");
      type.resources_where = one.at("resources_where").get<std::string>();
      type.min_where = one.at("min_where").get<std::string>();
      type.max_where = one.at("max_where").get<std::string>();
      spec.types.emplace(type.name, std::move(type));
    }
    return spec;
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kUsage, fmt::format("this is no cluster: {}", error.what()));
  }
}

std::string launch_hash(const ClusterSpec& spec, const NodeType& type) {
  // Counts and positions are left out: they say how many nodes there are, not what each is.
  RunningHash hash;
  hash.add("local");
  hash.add(to_string(spec.isolation));
  hash.add(type.name);
  for (const auto& [name, amount] : type.resources.amounts()) {
    hash.add(name);
    hash.add(static_cast<uint64_t>(amount));
  }
  return fmt::format("{:016x}", hash.value());
}

}  // namespace rubato

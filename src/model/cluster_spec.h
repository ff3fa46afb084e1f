// ClusterSpec: all that a head needs of a cluster file, compiled when the file is accepted: what it decides by, with
// the place of each limit for `rubato why`, and how its nodes are made. Nobody reads the file's text again.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "model/adaptive_settings.h"
#include "model/node_recipe.h"
#include "model/notice_source.h"
#include "model/market.h"
#include "model/resources.h"

namespace rubato {

struct ClusterFile;

// One way to get a machine of a type.
struct Offering {
  std::string zone;  // empty: the provider has none
  Market market = Market::kOnDemand;
  double price_per_hour = 0;  // 0: not known
  bool operator==(const Offering&) const = default;
};

struct NodeType {
  std::string name;
  Resources resources;               // empty: whatever the machine has, less what is denied
  std::vector<std::string> denied;   // resources that the file says are 0, where it names no other
  int min_workers = 0;
  int max_workers = 0;
  std::string resources_where, min_where, max_where;  // file:line:column of each, for people
  std::optional<Duration> idle_timeout;               // instead of the cluster's
  int64_t priority = 0;
  std::vector<Offering> offerings;  // none: one without zone, on demand, of unknown price
  std::string made_from;            // digest of what a machine is made from, besides its resources
  std::string runtime;              // digest of what is put on it: files, commands, container
  std::string node_config;          // JSON in the provider's own words: what a machine is made from
  std::map<std::string, std::string> labels;
  std::string recipe;  // id of ClusterSpec::recipes; empty: nodes are processes beside the head
  bool operator==(const NodeType&) const = default;
};

enum class Isolation {
  kNone,   // nodes are processes with addresses 127.0.x.y
  kNetns,  // each has a network namespace of its own; needs root
};
std::string_view to_string(Isolation isolation);

struct Scaling {
  double upscaling_speed = 1.0;
  Duration idle_timeout = 5min;
  int initial_workers = 0;
  double target_utilization = 0;  // of seed-era files; 0: demand decides
  bool aggressive = false;
  SpotPolicy spot = SpotPolicy::kPrefer;
  int on_demand_base = 0;
  std::optional<double> price_cap, budget_per_hour, budget;
  std::optional<int> launch_concurrency;
  std::optional<Duration> consolidate_after;         // absent: never
  std::string speed_where, budget_where, cap_where;  // file:line:column of each, for people
  std::string concurrency_where, spot_where;
  bool operator==(const Scaling&) const = default;
};

struct ClusterSpec {
  std::string name = "local";
  std::string provider = "local";
  Isolation isolation = Isolation::kNone;
  // Nodes are machines of their own, and the head's machine is one of them, of this type. Empty: nodes are processes
  // beside the head.
  std::string head_type;
  std::string head_runtime;  // as NodeType::runtime, for the head's node
  std::string head_recipe;   // as NodeType::recipe
  // By id. Types that do not differ in it share one.
  std::map<std::string, NodeRecipe> recipes;
  std::string provider_config;  // JSON: what the provider itself is told; ProviderKind::compile
  std::map<std::string, NodeType> types;
  int max_workers = 0;  // over all types, without the head's node
  std::string max_where;
  Scaling scaling;
  AdaptiveSettings adaptive;
  Duration lease = 2min;  // how long a job may train without its head, if it does not say
  NoticeSource notice;    // where agents of new nodes hear that their machines go away
  bool operator==(const ClusterSpec&) const = default;
};

// `contents`: the hash of what is in the file's mounts. The file has no errors and no unfilled words.
ClusterSpec cluster_spec_of(const ClusterFile& file, const std::string& contents = {});

// Throws the first error of the file, with file:line:column.
ClusterSpec read_cluster_spec(std::string_view text, const std::string& file, const std::string& contents = {});

// For `rubato up` without a file: one node with all of this machine.
std::string default_cluster_text(int cpus, int gpus);

nlohmann::json to_json(const ClusterSpec& spec);
ClusterSpec cluster_spec_from_json(const nlohmann::json& json);

// The spec of a journal from before there were recipes, with what `text` says of them. Unchanged when it has them, or
// when the text cannot be read any more.
ClusterSpec with_recipes(ClusterSpec spec, std::string_view text);

// By id; empty for a type that is not there.
const std::string& recipe_for(const ClusterSpec& spec, const std::string& type, bool head);

// What a node of this type was made from: a node with another hash is replaced.
std::string launch_hash(const ClusterSpec& spec, const NodeType& type);

// What was put on a node: one with another hash is updated.
const std::string& runtime_hash(const ClusterSpec& spec, const NodeType& type, bool head);

// What the nodes of a type are called: NAME-1, NAME-2.
std::string node_stem(const NodeType& type);
inline constexpr const char* kHeadNode = "head";  // the head's node

}  // namespace rubato

#include "model/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"
#include "model/byte_amounts.h"
#include "model/cluster_file.h"
#include "model/limits.h"
#include "model/provider_kind.h"

namespace rubato {
namespace {

using nlohmann::json;

// A fraction, or a number of any size, turned into an integer would be undefined.
int64_t whole_number(const json& value, std::string_view key) {
  if (!value.is_number_integer()) {
    throw Error(ErrorCode::kUsage, fmt::format("the cluster's {} is not a whole number", key));
  }
  return value.get<int64_t>();
}

// Numbers of any size would do; a file that means 64 bits is not meant.
int checked_int(const json& object, const char* key) {
  const int64_t value = whole_number(object.at(key), key);
  if (value < 0 || value > kClusterNodesMax * kClusterNodesMax) {
    throw Error(ErrorCode::kUsage, fmt::format("the cluster's {} is not a count", key));
  }
  return static_cast<int>(value);
}

// What an older journal has not got is zero.
int count_in(const json& object, const char* key) { return object.contains(key) ? checked_int(object, key) : 0; }

int64_t micros(Duration time) { return time.count() / 1000; }

Duration from_micros(const json& value) {
  constexpr int64_t kMicrosMax = std::numeric_limits<int64_t>::max() / 4000;  // sums of such still fit
  return std::chrono::microseconds(std::clamp<int64_t>(whole_number(value, "time"), 0, kMicrosMax));
}

std::string hex(const RunningHash& hash) { return fmt::format("{:016x}", hash.value()); }

bool asks_for_spot(const ClusterFile& file, const NodeTypeConfig& type) {
  const ProviderKind& kind = provider_kind(file.provider.type);
  return kind.asks_for_spot != nullptr && kind.asks_for_spot(type.node_config);
}

std::string supported_kinds() {
  std::vector<std::string_view> names;
  for (const ProviderKind* kind : provider_kinds()) {
    if (kind->is_supported()) names.push_back(kind->supported_as);
  }
  return join(names, ", ");
}

std::optional<MachineOffer> offer_of(const ClusterFile& file, const NodeTypeConfig& type) {
  const ProviderKind& kind = provider_kind(file.provider.type);
  return kind.offer_of != nullptr ? kind.offer_of(type.node_config) : std::nullopt;
}

// What the file says of a type counts before what is known of its machine.
Resources resources_of(const ClusterFile& file, const NodeTypeConfig& type) {
  Resources out = type.resources.amounts;
  const std::optional<MachineOffer> offer = offer_of(file, type);
  if (!offer) return out;
  for (const auto& [name, amount] : offer->resources.amounts()) {
    const auto& zeros = type.resources.zeros;
    if (out.of(name) == 0 && std::find(zeros.begin(), zeros.end(), name) == zeros.end()) out.set(name, amount);
  }
  return out;
}

// Without a word in the file, what the clouds' own figures say: a spot machine costs about a third.
constexpr double kSpotShare = 0.35;

// Ray's files name a market in node_config; `spot` of a node type says that there are both.
std::vector<Offering> offerings_of(const ClusterFile& file, const NodeTypeConfig& type) {
  const std::optional<MachineOffer> offer = offer_of(file, type);
  const double price = type.price_per_hour.value_or(offer ? offer->price_per_hour : 0);
  const double spot_price = type.spot_price_per_hour.value_or(price * kSpotShare);
  const bool only_spot = !type.spot && asks_for_spot(file, type);
  std::vector<std::string> zones = file.provider.zones;
  if (zones.empty()) zones.emplace_back();
  std::vector<Offering> out;
  for (const std::string& zone : zones) {
    if (only_spot || type.spot.value_or(false)) out.push_back({zone, Market::kSpot, spot_price});
    if (!only_spot) out.push_back({zone, Market::kOnDemand, price});
  }
  // One that says nothing is left out: it is what a type without any means.
  if (out.size() == 1 && out.front() == Offering{}) out.clear();
  return out;
}

// As Ray's launch hash: the node's configuration, and how one gets in.
std::string made_from(const ClusterFile& file, const NodeTypeConfig& type) {
  if (file.provider.this_machine()) return "";
  RunningHash hash;
  hash.add(file.provider.type);
  hash.add(type.node_config.dump());
  hash.add(file.auth.ssh_user);
  hash.add(file.auth.ssh_private_key);
  return hex(hash);
}

void add_all(RunningHash& hash, const std::vector<std::string>& texts) {
  hash.add(static_cast<uint64_t>(texts.size()));
  for (const std::string& word : texts) hash.add(word);
}

// As Ray's runtime hash: all that is done to a machine after it was made.
std::string runtime_of(const ClusterFile& file, const std::string& type, bool head, const std::string& contents) {
  if (file.provider.this_machine()) return "";
  RunningHash hash;
  const NodeCommands commands = commands_for(file, type, head);
  add_all(hash, commands.host);
  add_all(hash, commands.setup);
  if (!commands.login_shells) hash.add("normal shells");
  if (const auto container = container_for(file, type, head)) {
    hash.add(container->image);
    hash.add(container->name);
    add_all(hash, container->run_options);
  }
  for (const auto& [there, here] : file.files.mounts) hash.add(there);
  hash.add(contents);
  return hex(hash);
}

// How nodes are made: all that is not decided by.
void compile_making(const ClusterFile& file, ClusterSpec& spec) {
  if (file.provider.this_machine()) return;
  const auto add = [&](const std::string& type, bool head) {
    NodeRecipe recipe = node_recipe_of(file, type, head);
    const std::string id = recipe_id(recipe);
    spec.recipes.emplace(id, std::move(recipe));
    return id;
  };
  for (auto& [name, type] : spec.types) {
    const auto config = file.types.find(name);
    if (config == file.types.end()) continue;
    type.node_config = config->second.node_config.dump(-1, ' ', false, json::error_handler_t::replace);
    type.labels = config->second.labels;
    type.recipe = add(name, false);
  }
  if (file.types.contains(spec.head_type)) spec.head_recipe = add(spec.head_type, true);
  const ProviderKind& kind = provider_kind(file.provider.type);
  const json told = kind.compile != nullptr ? kind.compile(file) : json(file.provider.options);
  spec.provider_config = told.dump(-1, ' ', false, json::error_handler_t::replace);
}

SpotPolicy spot_policy(const std::string& texts) {
  for (const SpotPolicy policy : {SpotPolicy::kOnly, SpotPolicy::kNever}) {
    if (texts == to_string(policy)) return policy;
  }
  return SpotPolicy::kPrefer;
}

Scaling scaling_of(const ClusterFile& file) {
  const AutoscalingConfig& config = file.autoscaling;
  Scaling out;
  out.spot = spot_policy(config.spot);
  out.on_demand_base = config.on_demand_base;
  out.price_cap = config.price_cap;
  out.budget_per_hour = config.budget_per_hour;
  out.budget = config.budget;
  out.launch_concurrency = config.launch_concurrency;
  out.consolidate_after = config.consolidate_after;
  const auto where = [&](const char* path) {
    const auto found = file.places.find(path);
    return found == file.places.end() ? std::string() : found->second;
  };
  out.speed_where = where("autoscaling.upscaling_speed");
  out.budget_where = where("autoscaling.budget_per_hour");
  out.cap_where = where("autoscaling.price_cap");
  out.concurrency_where = where("autoscaling.launch_concurrency");
  out.spot_where = where("autoscaling.spot");
  out.upscaling_speed = config.upscaling_speed;
  out.idle_timeout = config.idle_timeout;
  out.initial_workers = config.initial_workers;
  out.target_utilization = config.target_utilization;
  out.aggressive = config.aggressive;
  return out;
}

json to_json(const Offering& one) {
  return {{"zone", one.zone}, {"market", to_string(one.market)}, {"price_per_hour", one.price_per_hour}};
}

json to_json(const NodeType& type) {
  json offerings = json::array();
  for (const Offering& one : type.offerings) offerings.push_back(to_json(one));
  json out = {{"name", type.name},
              {"resources", to_json(type.resources)},
              {"min_workers", type.min_workers},
              {"max_workers", type.max_workers},
              {"resources_where", type.resources_where},
              {"min_where", type.min_where},
              {"max_where", type.max_where},
              {"priority", type.priority},
              {"offerings", std::move(offerings)},
              {"made_from", type.made_from},
              {"runtime", type.runtime}};
  if (type.idle_timeout) out["idle_timeout_us"] = micros(*type.idle_timeout);
  if (!type.denied.empty()) out["denied"] = type.denied;
  if (!type.node_config.empty()) out["node_config"] = type.node_config;
  if (!type.labels.empty()) out["labels"] = type.labels;
  if (!type.recipe.empty()) out["recipe"] = type.recipe;
  return out;
}

json to_json(const Scaling& scaling) {
  json out = {{"upscaling_speed", scaling.upscaling_speed},
              {"idle_timeout_us", micros(scaling.idle_timeout)},
              {"initial_workers", scaling.initial_workers},
              {"target_utilization", scaling.target_utilization},
              {"aggressive", scaling.aggressive},
              {"spot", to_string(scaling.spot)},
              {"on_demand_base", scaling.on_demand_base},
              {"speed_where", scaling.speed_where},
              {"budget_where", scaling.budget_where},
              {"cap_where", scaling.cap_where},
              {"concurrency_where", scaling.concurrency_where},
              {"spot_where", scaling.spot_where}};
  if (scaling.price_cap) out["price_cap"] = *scaling.price_cap;
  if (scaling.budget_per_hour) out["budget_per_hour"] = *scaling.budget_per_hour;
  if (scaling.budget) out["budget"] = *scaling.budget;
  if (scaling.launch_concurrency) out["launch_concurrency"] = *scaling.launch_concurrency;
  if (scaling.consolidate_after) out["consolidate_after_us"] = micros(*scaling.consolidate_after);
  return out;
}

// What an older journal has not got keeps its default.
NodeType node_type_from_json(const json& one) {
  NodeType type;
  type.name = one.at("name").get<std::string>();
  type.resources = resources_from_json(one.at("resources"));
  type.min_workers = checked_int(one, "min_workers");
  type.max_workers = checked_int(one, "max_workers");
  type.resources_where = one.at("resources_where").get<std::string>();
  type.min_where = one.at("min_where").get<std::string>();
  type.max_where = one.at("max_where").get<std::string>();
  if (one.contains("priority")) type.priority = whole_number(one.at("priority"), "priority");
  type.denied = one.value("denied", std::vector<std::string>());
  type.made_from = one.value("made_from", "");
  type.runtime = one.value("runtime", "");
  type.node_config = one.value("node_config", "");
  type.labels = one.value("labels", type.labels);
  type.recipe = one.value("recipe", "");
  if (one.contains("idle_timeout_us")) type.idle_timeout = from_micros(one.at("idle_timeout_us"));
  for (const json& offering : one.value("offerings", json::array())) {
    Offering out;
    out.zone = offering.at("zone").get<std::string>();
    if (offering.at("market") == to_string(Market::kSpot)) out.market = Market::kSpot;
    out.price_per_hour = offering.at("price_per_hour").get<double>();
    type.offerings.push_back(std::move(out));
  }
  return type;
}

Scaling scaling_from_json(const json& object) {
  Scaling out;
  out.upscaling_speed = object.value("upscaling_speed", out.upscaling_speed);
  if (object.contains("idle_timeout_us")) out.idle_timeout = from_micros(object.at("idle_timeout_us"));
  out.initial_workers = count_in(object, "initial_workers");
  out.target_utilization = object.value("target_utilization", 0.0);
  out.aggressive = object.value("aggressive", false);
  out.spot = spot_policy(object.value("spot", ""));
  out.on_demand_base = count_in(object, "on_demand_base");
  out.speed_where = object.value("speed_where", "");
  out.budget_where = object.value("budget_where", "");
  out.cap_where = object.value("cap_where", "");
  out.concurrency_where = object.value("concurrency_where", "");
  out.spot_where = object.value("spot_where", "");
  if (object.contains("price_cap")) out.price_cap = object.at("price_cap").get<double>();
  if (object.contains("budget_per_hour")) out.budget_per_hour = object.at("budget_per_hour").get<double>();
  if (object.contains("budget")) out.budget = object.at("budget").get<double>();
  if (object.contains("launch_concurrency")) out.launch_concurrency = checked_int(object, "launch_concurrency");
  if (object.contains("consolidate_after_us")) out.consolidate_after = from_micros(object.at("consolidate_after_us"));
  return out;
}

}  // namespace

std::string_view to_string(SpotPolicy policy) {
  switch (policy) {
    case SpotPolicy::kPrefer:
      return "prefer";
    case SpotPolicy::kOnly:
      return "only";
    case SpotPolicy::kNever:
      return "never";
  }
  return "unknown";
}

std::string_view to_string(Market market) { return market == Market::kSpot ? "spot" : "on-demand"; }

std::string_view to_string(Isolation isolation) {
  switch (isolation) {
    case Isolation::kNone:
      return "none";
    case Isolation::kNetns:
      return "netns";
  }
  return "unknown";
}

ClusterSpec cluster_spec_of(const ClusterFile& file, const std::string& contents) {
  ClusterSpec spec;
  spec.name = file.name;
  spec.provider = file.provider.type;
  if (file.provider.isolation == to_string(Isolation::kNetns)) spec.isolation = Isolation::kNetns;
  spec.max_workers = file.autoscaling.max_workers;
  spec.max_where = file.place("autoscaling.max_workers");
  if (spec.max_where.empty()) spec.max_where = file.place("node_types");
  spec.scaling = scaling_of(file);
  spec.adaptive = file.adaptive;
  spec.lease = file.lease;
  spec.notice = file.notice;
  for (const auto& [name, config] : file.types) {
    const std::string path = "node_types." + name;
    NodeType type;
    type.name = name;
    type.resources = resources_of(file, config);
    if (type.resources.empty()) type.denied = config.resources.zeros;
    type.min_workers = config.min_workers;
    type.max_workers = config.max_workers;
    type.resources_where = file.place(path + ".resources");
    type.min_where = file.place(path + ".min_workers");
    type.max_where = file.place(path + ".max_workers");
    type.idle_timeout = config.idle_timeout;
    type.priority = config.priority;
    type.offerings = offerings_of(file, config);
    type.made_from = made_from(file, config);
    type.runtime = runtime_of(file, name, false, contents);
    spec.types.emplace(name, std::move(type));
  }
  if (!file.provider.this_machine() && file.types.contains(file.head_type)) {
    spec.head_type = file.head_type;
    spec.head_runtime = runtime_of(file, file.head_type, true, contents);
  }
  compile_making(file, spec);
  return spec;
}

ClusterSpec with_recipes(ClusterSpec spec, std::string_view text) {
  if (!spec.recipes.empty() || spec.head_type.empty() || text.empty()) return spec;
  const ClusterFile file = read_cluster_file(text, "cluster.yaml");
  if (!file.has(Severity::kError) && !file.has(Severity::kUnfilled)) compile_making(file, spec);
  return spec;
}

const std::string& recipe_for(const ClusterSpec& spec, const std::string& type, bool head) {
  static const std::string kNone;
  const auto found = spec.types.find(type);
  if (found == spec.types.end()) return kNone;
  return head ? spec.head_recipe : found->second.recipe;
}

ClusterSpec read_cluster_spec(std::string_view text, const std::string& file, const std::string& contents) {
  const ClusterFile read = read_cluster_file(text, file);
  for (const Severity severity : {Severity::kError, Severity::kUnfilled}) {
    for (const Finding& one : read.findings) {
      if (one.severity == severity) throw Error(ErrorCode::kUsage, one.message, one.where, one.hint);
    }
  }
  if (read.types.size() > kNodeTypesMax) {
    throw Error(ErrorCode::kUsage, fmt::format("{} node types are more than {}", read.types.size(), kNodeTypesMax),
                file);
  }
  if (!provider_kind(read.provider.type).is_supported()) {
    throw Error(ErrorCode::kUsage, fmt::format("the provider type '{}' is not supported", read.provider.type),
                read.place("provider.type"),
                fmt::format("supported: {}; for any other cloud write provider: {{type: external}} and a program of "
                            "yours (docs/external-providers.md)",
                            supported_kinds()));
  }
  return cluster_spec_of(read, contents);
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
  for (const auto& [name, type] : spec.types) types.push_back(to_json(type));
  json out = {
      {"name", spec.name},           {"provider", spec.provider},         {"isolation", to_string(spec.isolation)},
      {"head_type", spec.head_type}, {"head_runtime", spec.head_runtime}, {"max_workers", spec.max_workers},
      {"max_where", spec.max_where}, {"scaling", to_json(spec.scaling)},  {"types", std::move(types)},
      {"lease_us", micros(spec.lease)}};
  if (spec.adaptive != AdaptiveSettings{}) out["adaptive"] = to_json(spec.adaptive);
  if (!spec.notice.empty()) out["notice"] = to_json(spec.notice);
  if (spec.recipes.empty()) return out;
  out["head_recipe"] = spec.head_recipe;
  out["provider_config"] = spec.provider_config;
  for (const auto& [id, recipe] : spec.recipes) out["recipes"][id] = to_json(recipe);
  return out;
}

ClusterSpec cluster_spec_from_json(const json& object) {
  try {
    ClusterSpec spec;
    spec.name = object.at("name").get<std::string>();
    spec.provider = object.value("provider", spec.provider);
    spec.isolation = object.at("isolation") == to_string(Isolation::kNetns) ? Isolation::kNetns : Isolation::kNone;
    spec.head_type = object.value("head_type", "");
    spec.head_runtime = object.value("head_runtime", "");
    spec.max_workers = checked_int(object, "max_workers");
    spec.max_where = object.at("max_where").get<std::string>();
    if (object.contains("scaling")) spec.scaling = scaling_from_json(object.at("scaling"));
    spec.head_recipe = object.value("head_recipe", "");
    spec.provider_config = object.value("provider_config", "");
    if (object.contains("recipes")) {
      for (const auto& [id, recipe] : object.at("recipes").items())
        spec.recipes.emplace(id, node_recipe_from_json(recipe));
    }
    if (object.contains("adaptive")) spec.adaptive = adaptive_settings_from_json(object.at("adaptive"));
    if (object.contains("notice")) spec.notice = notice_source_from_json(object.at("notice"));
    if (object.contains("lease_us")) spec.lease = from_micros(object.at("lease_us"));
    for (const json& one : object.at("types")) {
      NodeType type = node_type_from_json(one);
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
  hash.add(spec.provider);
  hash.add(to_string(spec.isolation));
  hash.add(type.name);
  for (const auto& [name, amount] : type.resources.amounts()) {
    hash.add(name);
    // Hashed in thousandths, as it was once counted: clusters that are up keep their nodes.
    hash.add(static_cast<uint64_t>(amount) * (name == kObjectStoreMemory ? 1000 : 1));
  }
  for (const std::string& name : type.denied) hash.add("no " + name);
  if (!type.made_from.empty()) hash.add(type.made_from);
  return hex(hash);
}

const std::string& runtime_hash(const ClusterSpec& spec, const NodeType& type, bool head) {
  return head ? spec.head_runtime : type.runtime;
}

std::string node_stem(const NodeType& type) { return type.name == kHostType ? "worker" : type.name; }

}  // namespace rubato

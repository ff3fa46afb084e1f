// A ClusterFile as values in our form: what was given, and what it comes to.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/cluster_file.h"
#include "model/config_keys.h"
#include "model/provider_kind.h"

namespace rubato {
namespace {

using nlohmann::ordered_json;

// Exact, and what a duration in a file may be: "5m", "90s", "250ms".
ordered_json duration_value(Duration duration) {
  const int64_t ns = duration.count();
  constexpr int64_t kMs = 1'000'000, kSecond = 1000 * kMs;
  if (ns % kMs != 0) return fmt::format("{}s", to_seconds(duration));
  if (ns % kSecond != 0) return fmt::format("{}ms", ns / kMs);
  if (ns == 0 || ns % (60 * kSecond) != 0) return fmt::format("{}s", ns / kSecond);
  if (ns % (3600 * kSecond) != 0) return fmt::format("{}m", ns / (60 * kSecond));
  return fmt::format("{}h", ns / (3600 * kSecond));
}

ordered_json resources_value(const DeclaredResources& resources) {
  ordered_json out = ordered_json::object();
  const nlohmann::json amounts = to_json(resources.amounts);
  for (const auto& [name, amount] : amounts.items()) out[name] = amount;
  for (const std::string& name : resources.zeros) out[name] = 0;
  return out;
}

template <class Value>
void put(ordered_json& out, const char* key, const std::optional<Value>& value) {
  if (value) out[key] = *value;
}
void put_text(ordered_json& out, const char* key, const std::string& value) {
  if (!value.empty()) out[key] = value;
}

ordered_json provider_value(const ProviderConfig& provider) {
  ordered_json out = ordered_json::object();
  put_text(out, "type", provider.type);
  if (provider_kind(provider.type).has_regions) {
    put_text(out, "region", provider.region);
    if (!provider.zones.empty()) out["availability_zone"] = fmt::format("{}", fmt::join(provider.zones, ","));
    out["cache_stopped_nodes"] = provider.cache_stopped_nodes;
    out["use_internal_ips"] = provider.use_internal_ips;
  }
  if (provider.this_machine()) out["isolation"] = provider.isolation;
  for (const auto& [key, value] : provider.options.items()) out[key] = value;
  return out;
}

ordered_json autoscaling_value(const ClusterFile& file) {
  ordered_json out = ordered_json::object();
  const AutoscalingConfig& scaling = file.autoscaling;
  if (file.provider.has_hosts() && !file.types.empty()) {
    out["min_workers"] = file.types.begin()->second.min_workers;
  }
  out["max_workers"] = scaling.max_workers;
  out["initial_workers"] = scaling.initial_workers;
  out["upscaling_speed"] = scaling.upscaling_speed;
  out["idle_timeout"] = duration_value(scaling.idle_timeout);
  out["spot"] = scaling.spot;
  out["on_demand_base"] = scaling.on_demand_base;
  put(out, "price_cap", scaling.price_cap);
  put(out, "budget_per_hour", scaling.budget_per_hour);
  put(out, "budget", scaling.budget);
  put(out, "launch_concurrency", scaling.launch_concurrency);
  if (scaling.consolidate_after) out["consolidate_after"] = duration_value(*scaling.consolidate_after);
  return out;
}

ordered_json adaptive_value(const AdaptiveSettings& adaptive) {
  ordered_json out = {{"policy", to_string(adaptive.policy)}};
  if (adaptive.max_slowdown > 0) out["max_slowdown"] = adaptive.max_slowdown;
  out["least_utility"] = adaptive.least_utility;
  if (const auto& band = adaptive.utility_band) out["utility_band"] = fmt::format("{}:{}", band->first, band->second);
  return out;
}

ordered_json type_value(const NodeTypeConfig& type) {
  ordered_json out = ordered_json::object();
  out["resources"] = resources_value(type.resources);
  out["min_workers"] = type.min_workers;
  out["max_workers"] = type.max_workers;
  if (type.idle_timeout) out["idle_timeout"] = duration_value(*type.idle_timeout);
  out["priority"] = type.priority;
  put(out, "price_per_hour", type.price_per_hour);
  put(out, "spot", type.spot);
  put(out, "spot_price_per_hour", type.spot_price_per_hour);
  out["labels"] = type.labels;
  if (type.setup_host) out["setup"]["host"] = *type.setup_host;
  if (type.setup_worker) out["setup"]["worker"] = *type.setup_worker;
  ordered_json docker = ordered_json::object();
  put(docker, "pull_before_run", type.pull_before_run);
  put(docker, "worker_image", type.worker_image);
  put(docker, "worker_run_options", type.worker_run_options);
  if (!docker.empty()) out["docker"] = std::move(docker);
  out["node_config"] = type.node_config;
  return out;
}

ordered_json auth_value(const AuthConfig& auth) {
  ordered_json out = ordered_json::object();
  put_text(out, "ssh_user", auth.ssh_user);
  out["ssh_port"] = auth.ssh_port;
  put_text(out, "ssh_private_key", auth.ssh_private_key);
  put_text(out, "ssh_public_key", auth.ssh_public_key);
  put_text(out, "ssh_proxy_command", auth.ssh_proxy_command);
  put_text(out, "ssh_proxy_jump", auth.ssh_proxy_jump);
  return out;
}

ordered_json docker_value(const DockerConfig& docker) {
  ordered_json out = ordered_json::object();
  if (!docker.enabled()) return out;
  put_text(out, "image", docker.image);
  put_text(out, "head_image", docker.head_image);
  put_text(out, "worker_image", docker.worker_image);
  out["container_name"] = docker.container_name;
  out["pull_before_run"] = docker.pull_before_run;
  out["run_options"] = docker.run_options;
  out["head_run_options"] = docker.head_run_options;
  out["worker_run_options"] = docker.worker_run_options;
  out["disable_automatic_runtime_detection"] = docker.disable_automatic_runtime_detection;
  out["disable_shm_size_detection"] = docker.disable_shm_size_detection;
  out["use_podman"] = docker.use_podman;
  return out;
}

ordered_json jobs_value(const JobDefaults& jobs) {
  ordered_json out = ordered_json::object();
  if (jobs.workers) out["workers"] = to_string(*jobs.workers);
  if (ordered_json resources = resources_value(jobs.resources); !resources.empty())
    out["resources"] = std::move(resources);
  if (!jobs.env.empty()) out["env"] = jobs.env;
  put_text(out, "python", jobs.python);
  put(out, "priority", jobs.priority);
  put(out, "max_restarts", jobs.max_restarts);
  if (jobs.timeout) out["timeout"] = duration_value(*jobs.timeout);
  if (jobs.grace) out["grace"] = duration_value(*jobs.grace);
  return out;
}

// Of a section, what was given. `pattern` is its path in the table, `path` the same with the type's name.
ordered_json given_section(const ordered_json& all, const ClusterFile& file, const std::string& path,
                           const std::string& pattern) {
  ordered_json out = ordered_json::object();
  for (const auto& [key, value] : all.items()) {
    const std::string below = path + "." + key, row_path = pattern + "." + key;
    const ConfigKey* row = find_config_key(row_path);
    if (row != nullptr && row->type == KeyType::kSection) {
      ordered_json inside = given_section(value, file, below, row_path);
      if (!inside.empty()) out[key] = std::move(inside);
    } else if (file.places.contains(below) && !(path == "start" && value.empty())) {
      out[key] = value;
    }
  }
  return out;
}

ordered_json given_types(const ordered_json& all, const ClusterFile& file) {
  ordered_json out = ordered_json::object();
  for (const auto& [name, type] : all.items()) {
    const std::string path = "node_types." + name;
    if (file.places.contains(path)) out[name] = given_section(type, file, path, "node_types.*");
  }
  return out;
}

ordered_json given_provider(const ProviderConfig& provider) {
  ordered_json out = ordered_json::object();
  put_text(out, "type", provider.type);
  for (const auto& [key, value] : provider.options.items()) out[key] = value;
  return out;
}

}  // namespace

ordered_json resolved_values(const ClusterFile& file) {
  ordered_json out = ordered_json::object();
  out["cluster_name"] = file.name;
  out["provider"] = provider_value(file.provider);
  out["auth"] = auth_value(file.auth);
  out["lease"] = duration_value(file.lease);
  out["notice"] = {{"watch", to_string(file.notice.service)}, {"rebalance", file.notice.rebalance}};
  put_text(out["notice"], "file", file.notice.file);
  put_text(out["notice"], "command", file.notice.command);
  out["autoscaling"] = autoscaling_value(file);
  out["adaptive"] = adaptive_value(file.adaptive);
  if (!file.provider.has_hosts()) {
    put_text(out, "head_type", file.head_type);
    ordered_json types = ordered_json::object();
    for (const auto& [name, type] : file.types) types[name] = type_value(type);
    out["node_types"] = std::move(types);
  }
  out["docker"] = docker_value(file.docker);
  const FilesConfig& files = file.files;
  out["files"] = {{"mounts", files.mounts},
                  {"synced_from_head", files.synced_from_head},
                  {"sync_continuously", files.sync_continuously},
                  {"exclude", files.exclude},
                  {"ignore_files", files.ignore_files}};
  const CommandsConfig& commands = file.commands;
  out["setup"] = {{"host", commands.setup_host},
                  {"all", commands.setup_all},
                  {"head", commands.setup_head},
                  {"worker", commands.setup_worker}};
  out["start"] = {{"head", commands.start_head.before},
                  {"head_after", commands.start_head.after},
                  {"worker", commands.start_worker.before},
                  {"worker_after", commands.start_worker.after}};
  out["jobs"] = jobs_value(file.jobs);
  out["metadata"] = file.metadata;
  return out;
}

ordered_json given_values(const ClusterFile& file) {
  const ordered_json all = resolved_values(file);
  ordered_json out = ordered_json::object();
  for (const auto& [key, value] : all.items()) {
    ordered_json given;
    if (key == "provider") {
      given = given_provider(file.provider);
    } else if (key == "node_types") {
      given = given_types(value, file);
    } else if (find_config_key(key)->type == KeyType::kSection) {
      given = given_section(value, file, key, key);
    } else if (file.places.contains(key)) {
      given = value;
    }
    if (!given.empty()) out[key] = std::move(given);
  }
  return out;
}

}  // namespace rubato

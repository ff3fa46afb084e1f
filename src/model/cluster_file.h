// ClusterFile: everything that a cluster file says, Ray's or ours, as plain values with the defaults filled in.
//
// read_cluster_file never throws: the values are as good as the file, and `findings` says what is wrong with it. Only
// a file without errors may be acted on, and only one without unfilled words can become a cluster.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "model/adaptive_settings.h"
#include "model/config_section.h"
#include "model/finding.h"
#include "model/node_recipe.h"
#include "model/notice_source.h"
#include "model/resources.h"
#include "model/worker_sizes.h"

namespace rubato {

struct HostAddress {
  std::string user;  // empty: auth.ssh_user
  std::string host;
  int port = 0;  // 0: auth.ssh_port
  bool operator==(const HostAddress&) const = default;
};
// "[user@]host[:port]", "[2001:db8::1]:22". nullopt when it is none.
std::optional<HostAddress> parse_host_address(std::string_view text);
std::string to_string(const HostAddress& address);

struct ProviderConfig {
  std::string type;  // one of provider_types(); empty: the file names none
  std::string module;
  std::vector<std::string> command;  // external, ours
  bool use_internal_ips = false;
  bool use_external_head_ip = false;
  bool disable_node_updaters = false;
  bool cache_stopped_nodes = false;
  std::string isolation = "none";
  std::optional<HostAddress> head;  // local: hosts of one's own
  std::vector<HostAddress> workers;
  std::string external_head_ip;
  std::string coordinator_address;
  std::string region;
  std::vector<std::string> zones;
  nlohmann::ordered_json options = nlohmann::ordered_json::object();  // every key as written, but type
  bool operator==(const ProviderConfig&) const = default;

  // `provider: {type: local}` without hosts: nodes are processes of this machine.
  bool this_machine() const;
  // Nodes are hosts that the file names, or that a server lends.
  bool has_hosts() const;
};

struct AuthConfig {
  std::string ssh_user;  // empty: who runs us
  int ssh_port = 22;
  std::string ssh_private_key, ssh_public_key, ssh_proxy_command, ssh_proxy_jump;
  bool operator==(const AuthConfig&) const = default;
};

struct DockerConfig {
  std::string image, head_image, worker_image;
  std::string container_name;
  bool pull_before_run = true;
  std::vector<std::string> run_options, head_run_options, worker_run_options;
  bool disable_automatic_runtime_detection = false;
  bool disable_shm_size_detection = false;
  bool use_podman = false;
  bool operator==(const DockerConfig&) const = default;

  bool enabled() const { return !image.empty() || !head_image.empty() || !worker_image.empty(); }
};

struct NodeTypeConfig {
  nlohmann::ordered_json node_config = nlohmann::ordered_json::object();
  DeclaredResources resources;
  int min_workers = 0;
  int max_workers = 0;
  std::optional<Duration> idle_timeout;
  int64_t priority = 0;
  std::optional<double> price_per_hour, spot_price_per_hour;
  std::optional<bool> spot;  // it can be had on the spot market too; absent: as node_config says
  std::map<std::string, std::string> labels;
  std::optional<std::vector<std::string>> setup_host, setup_worker;  // instead of the cluster's
  std::optional<bool> pull_before_run;
  std::optional<std::string> worker_image;
  std::optional<std::vector<std::string>> worker_run_options;
  bool operator==(const NodeTypeConfig&) const = default;
};

struct AutoscalingConfig {
  int max_workers = 0;
  int initial_workers = 0;
  double upscaling_speed = 1.0;
  Duration idle_timeout = 5min;
  double target_utilization = 0;  // of seed-era files; 0: not given
  bool aggressive = false;
  std::string spot = "prefer";  // prefer, only or never
  int on_demand_base = 0;
  std::optional<double> price_cap, budget_per_hour, budget;
  std::optional<int> launch_concurrency;
  std::optional<Duration> consolidate_after;
  bool operator==(const AutoscalingConfig&) const = default;
};

struct FilesConfig {
  std::map<std::string, std::string> mounts;  // path on the nodes to path here
  std::vector<std::string> synced_from_head, exclude, ignore_files;
  bool sync_continuously = false;
  bool operator==(const FilesConfig&) const = default;
};

struct CommandsConfig {
  std::vector<std::string> setup_host, setup_all, setup_head, setup_worker;
  StartCommands start_head, start_worker;
  bool login_shells = true;  // what a person's profile sets is there for them
  bool operator==(const CommandsConfig&) const = default;
};

struct JobDefaults {
  std::optional<WorkerSizes> workers;
  DeclaredResources resources;
  std::map<std::string, std::string> env;
  std::string python;
  std::optional<int64_t> priority, max_restarts;
  std::optional<Duration> timeout, grace;
  bool operator==(const JobDefaults&) const = default;
};

struct ClusterFile {
  std::string name = "default";
  ProviderConfig provider;
  AuthConfig auth;
  DockerConfig docker;
  AutoscalingConfig autoscaling;
  AdaptiveSettings adaptive;
  Duration lease = 2min;
  NoticeSource notice;
  std::map<std::string, NodeTypeConfig> types;
  std::string head_type;
  FilesConfig files;
  CommandsConfig commands;
  JobDefaults jobs;
  nlohmann::ordered_json metadata = nlohmann::ordered_json::object();

  std::vector<Finding> findings;              // in the order of the file
  std::map<std::string, std::string> places;  // our path ("node_types.gpu.max_workers") to file:line:column

  bool has(Severity severity) const;
  // Of the key, or of the nearest key around it that was given; empty when there is none.
  std::string place(std::string_view path) const;
};

// The type of all hosts of one's own.
inline constexpr std::string_view kHostType = "local.cluster.node";

ClusterFile read_cluster_file(std::string_view text, const std::string& file);

// What runs on a node of this type.
NodeCommands commands_for(const ClusterFile& file, const std::string& type, bool head);

// nullopt without docker.
std::optional<NodeContainer> container_for(const ClusterFile& file, const std::string& type, bool head);

// In our form. `given` has what the file says; `resolved` has the defaults too.
nlohmann::ordered_json given_values(const ClusterFile& file);
nlohmann::ordered_json resolved_values(const ClusterFile& file);

}  // namespace rubato

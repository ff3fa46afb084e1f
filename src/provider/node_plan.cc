#include "provider/node_plan.h"

#include <fmt/format.h>

#include "core/sha256.h"
#include "model/provider_kind.h"

namespace rubato::provider {

namespace {
constexpr size_t kMountNameSize = 16;
constexpr Duration kFreshMachineMax = 600s;
constexpr int64_t kMilli = 1000;
}  // namespace

std::string staged_mount(const std::string& cluster_folder, const std::string& remote_path) {
  return fmt::format("{}/mounts/{}", cluster_folder, sha256_hex(remote_path).substr(0, kMountNameSize));
}

SyncOptions sync_options(const ClusterFile& file) {
  SyncOptions options;
  options.exclude = file.files.exclude;
  options.ignore_files = file.files.ignore_files;
  return options;
}

std::optional<ContainerSpec> container_spec(const ClusterFile& file, const std::string& type, bool head) {
  std::optional<NodeContainer> container = container_for(file, type, head);
  if (!container) return std::nullopt;
  ContainerSpec spec;
  spec.container = std::move(*container);
  spec.use_podman = file.docker.use_podman;
  spec.detect_gpus = !file.docker.disable_automatic_runtime_detection;
  spec.detect_shm_size = !file.docker.disable_shm_size_detection;
  return spec;
}

NodeSetupSpec plan_node(const ClusterFile& file, const NodeOrder& order, const Machine& machine,
                        const std::string& cluster_folder) {
  NodeSetupSpec spec;
  spec.cluster = file.name;
  spec.node = order.node;
  for (const auto& [remote, local] : file.files.mounts) {
    NodeMount mount;
    mount.local = staged_mount(cluster_folder, remote);
    mount.remote = remote;
    spec.mounts.push_back(std::move(mount));
  }
  spec.sync = sync_options(file);
  const NodeCommands commands = commands_for(file, order.type.name, order.of_head);
  spec.host_commands = commands.host;
  spec.setup_commands = commands.setup;
  spec.login_shells = commands.login_shells;
  spec.before_agent = commands.start.before;
  spec.after_agent = commands.start.after;
  spec.container = container_spec(file, order.type.name, order.of_head);
  spec.runtime_hash = order.runtime;
  spec.restart = order.restart;
  spec.keep_running = order.keep_running;
  spec.agent.node = order.node;
  spec.agent.head = order.head;
  spec.agent.address = machine.address.empty() ? machine.host.host : machine.address;
  spec.agent.resources = order.type.resources;
  const int64_t gpus = (order.type.resources.of(kGpu) + kMilli - 1) / kMilli;
  for (int64_t i = 0; i < gpus; ++i) spec.agent.gpus.push_back(std::to_string(i));
  spec.log_file = fmt::format("{}/nodes/{}.log", cluster_folder, order.node.value);
  const bool own_hosts = provider_kind(file.provider.type).has_own_machines;
  spec.fresh_machine = !own_hosts;
  if (!own_hosts) spec.limits.reachable = kFreshMachineMax;
  return spec;
}

NodeEnd plan_end(const ClusterFile& file, const NodeId& node) {
  NodeEnd end;
  end.cluster = file.name;
  end.node = node;
  if (!file.docker.enabled()) return end;
  ContainerSpec spec;
  spec.container.name = file.docker.container_name;
  spec.use_podman = file.docker.use_podman;
  end.container = std::move(spec);
  return end;
}

}  // namespace rubato::provider

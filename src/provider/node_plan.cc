#include "provider/node_plan.h"

#include <fmt/format.h>

#include "core/sha256.h"

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

NodeSetupSpec plan_node(const NodeOrder& order, const Machine& machine, const std::string& cluster_folder) {
  const NodeRecipe& recipe = order.recipe;
  NodeSetupSpec spec;
  spec.cluster = recipe.cluster;
  spec.node = order.node;
  for (const std::string& remote : recipe.mounts) {
    NodeMount mount;
    mount.local = staged_mount(cluster_folder, remote);
    mount.remote = remote;
    spec.mounts.push_back(std::move(mount));
  }
  spec.sync.exclude = recipe.exclude;
  spec.sync.ignore_files = recipe.ignore_files;
  spec.host_commands = machine.host_commands;
  spec.host_commands.insert(spec.host_commands.end(), recipe.commands.host.begin(), recipe.commands.host.end());
  spec.setup_commands = recipe.commands.setup;
  spec.login_shells = recipe.commands.login_shells;
  spec.before_agent = recipe.commands.start.before;
  spec.after_agent = recipe.commands.start.after;
  spec.container = recipe.container;
  if (spec.container) {
    std::vector<std::string>& options = spec.container->container.run_options;
    options.insert(options.end(), machine.container_options.begin(), machine.container_options.end());
  }
  spec.runtime_hash = order.runtime;
  spec.restart = order.restart;
  spec.keep_running = order.keep_running;
  spec.agent.node = order.node;
  spec.agent.head = order.head;
  spec.agent.notice = order.notice;
  spec.agent.address = machine.address.empty() ? machine.host.host : machine.address;
  spec.agent.resources = order.type.resources;
  spec.agent.denied = order.type.denied;
  const int64_t gpus = (order.type.resources.of(kGpu) + kMilli - 1) / kMilli;
  for (int64_t i = 0; i < gpus; ++i) spec.agent.gpus.push_back(std::to_string(i));
  spec.log_file = fmt::format("{}/nodes/{}.log", cluster_folder, order.node.value);
  spec.fresh_machine = recipe.fresh_machine;
  if (recipe.fresh_machine) spec.limits.reachable = kFreshMachineMax;
  return spec;
}

NodeEnd plan_end(const NodeRecipe& recipe, const NodeId& node) {
  NodeEnd end;
  end.cluster = recipe.cluster;
  end.node = node;
  end.container = recipe.container;
  return end;
}

}  // namespace rubato::provider

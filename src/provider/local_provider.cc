#include "provider/local_provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "core/while_listening.h"
#include "world/trees.h"

namespace rubato::provider {

namespace {

// A daemon is nobody's child: its end is looked for, with a pause that grows from the first to the second.
constexpr Duration kLookFirst = 2ms;
constexpr Duration kLookMax = 200ms;
constexpr Duration kKillMax = 10s;
constexpr int64_t kThousand = 1000;

bool is_loopback_host(std::string_view host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
}

bool harmless(const NodeId& node) {
  const auto fine = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  return !node.value.empty() && node.value.front() != '.' && node.value.front() != '-' &&
         std::ranges::all_of(node.value, fine);
}

// The machine's name leads to an address outside of the namespace, or to loopback: the libraries that would go by it
// are told the interface instead.
void use_interface(std::vector<std::string>& env, std::string_view interface) {
  for (const std::string_view name : {"GLOO_SOCKET_IFNAME=", "NCCL_SOCKET_IFNAME=", "TP_SOCKET_IFNAME="}) {
    std::erase_if(env, [&](const std::string& entry) { return entry.starts_with(name); });
    env.push_back(fmt::format("{}{}", name, interface));
  }
}

}  // namespace

LocalProvider::LocalProvider(World& world, Daemons& daemons, LocalSettings settings)
    : world_(world), daemons_(daemons), settings_(std::move(settings)), network_(world, settings_.cluster) {
  world_.files.make_folders(settings_.folder + "/nodes");
}

Task<std::vector<NodeId>> LocalProvider::list() {
  std::vector<NodeId> nodes;
  for (const Files::Entry& entry : world_.files.list(settings_.folder + "/nodes")) {
    if (entry.kind == Files::Entry::Kind::kFolder && harmless(NodeId{entry.name})) nodes.push_back(NodeId{entry.name});
  }
  co_return nodes;
}

std::optional<AgentFile> LocalProvider::read_agent_file(const NodeId& node) {
  const std::optional<std::string> text = world_.files.read(folder(node) + "/" + kAgentFileName);
  if (!text) return std::nullopt;
  try {
    return agent_file_from_text(*text);
  } catch (const Error&) {
    return std::nullopt;  // it is written anew
  }
}

std::vector<AgentFile> LocalProvider::others(const NodeId& node) {
  std::vector<AgentFile> files;
  for (const Files::Entry& entry : world_.files.list(settings_.folder + "/nodes")) {
    if (entry.name == node.value) continue;
    if (auto file = read_agent_file(NodeId{entry.name})) files.push_back(std::move(*file));
  }
  return files;
}

// 127.0.1.1, 127.0.1.2, ...: every address of 127/8 is this machine's, without being set up.
std::string LocalProvider::free_address(const std::vector<AgentFile>& others, Isolation isolation) {
  std::set<std::string> taken;
  for (const AgentFile& file : others) taken.insert(file.address);
  for (int number = 0;; ++number) {
    const std::string address = isolation == Isolation::kNetns
                                    ? network_.address(number)
                                    : fmt::format("127.0.{}.{}", 1 + number / 254, 1 + number % 254);
    if (!taken.contains(address)) return address;
    if (number >= 254 * 254) throw Error(ErrorCode::kUsage, "too many nodes for one machine");
  }
}

// Those of this machine that no other node has; when there are not enough, they are shared.
std::vector<std::string> LocalProvider::free_gpus(const std::vector<AgentFile>& others, const Resources& resources) {
  const auto wanted = static_cast<size_t>((resources.of(kGpu) + kThousand - 1) / kThousand);
  std::vector<std::string> names;
  if (wanted == 0) return names;
  std::set<std::string> taken;
  for (const AgentFile& file : others) taken.insert(file.gpus.begin(), file.gpus.end());
  const int machine_gpus = std::max(world_.machine.gpus, static_cast<int>(wanted));
  for (const bool even_taken : {false, true}) {
    for (int i = 0; i < machine_gpus && names.size() < wanted; ++i) {
      const std::string name = std::to_string(i);
      if (taken.contains(name) == even_taken) names.push_back(name);
    }
  }
  return names;
}

Task<void> LocalProvider::create(NodeOrder order) {
  if (!harmless(order.node)) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' cannot be the name of a node", order.node.value));
  }
  const std::string home = folder(order.node);
  if (daemons_.running(home)) co_return;
  world_.files.make_folders(home);
  world_.files.set_mode(home, 0700);

  const std::vector<AgentFile> rest = others(order.node);
  AgentFile file = read_agent_file(order.node).value_or(AgentFile{});
  file.node = order.node;
  file.head = order.head;
  file.resources = order.type.resources;
  file.notice = order.notice;
  if (file.address.empty()) {
    file.address = free_address(rest, order.isolation);
    file.gpus = free_gpus(rest, order.type.resources);
  }
  file.identity = settings_.issue(order.node, home);
  DaemonSpec daemon;
  if (order.isolation == Isolation::kNetns) {
    daemon.netns = network_.namespace_of(order.node);
    // Loopback means another one in there.
    if (is_loopback_host(file.head.host)) file.head.host = network_.bridge_address();
  }
  // Before anything is awaited: a node that is created meanwhile must see that the address and the GPUs are taken, and
  // one that is removed meanwhile that the bridge is needed.
  world_.files.write_atomically(home + "/" + kAgentFileName, to_text(file));
  if (!daemon.netns.empty()) {
    world_.files.write_atomically(home + "/netns", daemon.netns);
    co_await network_.add(order.node, file.address);
  }

  daemon.folder = home;
  daemon.argv = {settings_.program, "agent", "--dir", home};
  daemon.env = settings_.env;
  if (!daemon.netns.empty()) use_interface(daemon.env, LocalNetwork::kInterface);
  if (!file.gpus.empty()) {
    std::erase_if(daemon.env, [](const std::string& entry) { return entry.starts_with("CUDA_VISIBLE_DEVICES="); });
    daemon.env.push_back("CUDA_VISIBLE_DEVICES=" + join(file.gpus, ","));
  }
  daemon.cpus = static_cast<int>((order.type.resources.of(kCpu) + kThousand - 1) / kThousand);
  daemon.memory_bytes = order.type.resources.of(kMemory);
  try {
    daemons_.start(daemon);
  } catch (const Error& error) {
    throw Error(ErrorCode::kUnavailable, fmt::format("node {} does not start: {}", order.node.value, error.message),
                error.where, error.hint);
  }
}

Task<bool> LocalProvider::until_gone(std::string folder) {
  Duration pause = kLookFirst;
  while (daemons_.running(folder)) {
    co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
    pause = std::min(2 * pause, kLookMax);
  }
  co_return true;
}

Task<bool> LocalProvider::is_gone_within(std::string folder, Duration most) {
  Task<bool> waiting = until_gone(std::move(folder));
  const std::optional<bool> gone = co_await while_listening(world_.clock.loop(), most, std::move(waiting));
  co_return gone.has_value();
}

bool LocalProvider::has_namespace(const NodeId& node) { return world_.files.exists(folder(node) + "/netns"); }

// SIGKILL reaches it also when it is stopped; its guard ends its workers.
Task<bool> LocalProvider::kill(NodeId node) {
  const std::string home = folder(node);
  if (!harmless(node)) co_return false;
  daemons_.signal(home, SIGKILL);
  co_return co_await is_gone_within(home, kKillMax);
}

Task<void> LocalProvider::remove(NodeRemoval removal) {
  const NodeId node = removal.node;
  const std::string home = folder(node);
  if (!harmless(node) || !world_.files.exists(home)) co_return;
  daemons_.signal(home, SIGTERM);
  bool gone = co_await is_gone_within(home, settings_.stop_grace);
  if (!gone) {
    daemons_.signal(home, SIGKILL);
    gone = co_await is_gone_within(home, kKillMax);
  }
  if (!gone) {
    throw Error(ErrorCode::kUnavailable, fmt::format("the agent of node {} does not die", node.value), home,
                "a process that waits for a device or a network disk cannot be killed; see `ps`");
  }
  if (settings_.last_output) {
    Task<void> said = settings_.last_output(std::move(removal), home);
    co_await std::move(said);
  }
  const bool had_namespace = has_namespace(node);
  if (had_namespace) co_await network_.remove(node);
  co_await remove_in_turns(world_, home);
  if (!had_namespace) co_return;
  // Asked last: of several nodes that are removed at once, one finds that no other is left.
  const std::vector<NodeId> rest = co_await list();
  if (std::ranges::none_of(rest, [&](const NodeId& other) { return has_namespace(other); })) {
    co_await network_.remove_bridge();
  }
}

}  // namespace rubato::provider

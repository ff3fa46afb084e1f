#include "provider/local_network.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"
#include "core/scope.h"
#include "core/text.h"
#include "core/while_listening.h"

namespace rubato::provider {

namespace {

constexpr Duration kIpMax = 10s;

uint64_t hash_of_name(std::string_view text) {
  RunningHash hash;
  hash.add(text);
  return hash.value();
}

struct IpResult {
  ExitStatus status;
  std::string printed;
};

Task<IpResult> run_ip(World& world, std::vector<std::string> arguments) {
  SpawnSpec spec;
  spec.argv = std::move(arguments);
  spec.env = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"};
  spec.out.kind = spec.err.kind = OutputTarget::Kind::kPipe;
  const std::unique_ptr<Process> process = world.processes.spawn(spec);
  IpResult result;
  while (true) {
    const std::optional<OutputChunk> chunk = co_await process->output().pop();
    if (!chunk) break;
    if (result.printed.size() < 4096) result.printed += chunk->bytes;
  }
  result.status = co_await process->wait();
  co_return result;
}

}  // namespace

LocalNetwork::LocalNetwork(World& world, std::string cluster) : world_(world), cluster_(std::move(cluster)) {
  const uint64_t hash = hash_of_name(cluster_);
  bridge_ = fmt::format("rb{:010x}", hash & 0xff'ffff'ffffULL);
  // 10.64.0.0/10: seldom used, and a cluster's own part of it by its name.
  subnet_ = fmt::format("10.{}.{}.", 64 + (hash >> 8) % 64, hash % 256);
}

std::string LocalNetwork::namespace_of(const NodeId& node) const {
  return fmt::format("rubato-{}-{}", cluster_, node.value);
}

std::string LocalNetwork::link_of(const NodeId& node) const {
  return fmt::format("rv{:012x}", hash_of_name(namespace_of(node)) & 0xffff'ffff'ffffULL);
}

std::string LocalNetwork::address(int number) const {
  if (number < 0 || number > 252) {
    throw Error(ErrorCode::kUsage, "a cluster with `isolation: netns` has at most 253 nodes");
  }
  return subnet_ + std::to_string(number + 2);
}

Task<std::string> LocalNetwork::try_ip(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "ip");
  const std::string line = shell_join(arguments);
  std::optional<IpResult> result;
  try {
    Task<IpResult> running = run_ip(world_, std::move(arguments));
    result = co_await while_listening(world_.clock.loop(), kIpMax, std::move(running));
  } catch (const Error& error) {
    throw Error(ErrorCode::kUsage, fmt::format("`isolation: netns` needs ip(8): {}", error.message), "",
                "install iproute2, or leave out `isolation: netns`");
  }
  if (!result) throw Error(ErrorCode::kUnavailable, fmt::format("`{}` does not end", line));
  if (result->status.ok()) co_return std::string();
  co_return fmt::format("`{}`: {} ({})", line, trim(result->printed), describe(result->status));
}

Task<void> LocalNetwork::ip(std::vector<std::string> arguments) {
  const std::string problem = co_await try_ip(std::move(arguments));
  if (!problem.empty()) {
    throw Error(ErrorCode::kUsage, "cannot make the node's network namespace: " + problem, "",
                "it needs root; or leave out `isolation: netns`");
  }
}

Task<void> LocalNetwork::add(NodeId node, std::string address) {
  using Words = std::vector<std::string>;
  co_await remove(node);  // what a crash left half done
  const std::string space = namespace_of(node);
  const std::string link = link_of(node);
  const Words look{"link", "show", bridge_};
  if (const std::string absent = co_await try_ip(look); !absent.empty()) {
    const Words make{"link", "add", bridge_, "type", "bridge"};
    const std::string problem = co_await try_ip(make);
    // Another node that starts may have been faster.
    if (!problem.empty() && !(co_await try_ip(look)).empty()) co_await ip(make);
  }
  const Words own{"addr", "replace", bridge_address() + "/24", "dev", bridge_};
  co_await ip(own);
  const Words bridge_up{"link", "set", bridge_, "up"};
  co_await ip(bridge_up);
  const Words make_space{"netns", "add", space};
  co_await ip(make_space);
  const Words make_link{"link", "add", link, "type", "veth", "peer", "name", std::string(kInterface), "netns", space};
  co_await ip(make_link);
  const Words join_bridge{"link", "set", link, "master", bridge_, "up"};
  co_await ip(join_bridge);
  const Words give_address{"-n", space, "addr", "add", address + "/24", "dev", std::string(kInterface)};
  co_await ip(give_address);
  for (const std::string_view each : {std::string_view("lo"), kInterface}) {
    const Words up{"-n", space, "link", "set", std::string(each), "up"};
    co_await ip(up);
  }
  const Words route{"-n", space, "route", "add", "default", "via", bridge_address()};
  co_await ip(route);
}

Task<void> LocalNetwork::remove(NodeId node) {
  using Words = std::vector<std::string>;
  // Whatever is not there is gone already. The namespace may live on while a process is in it; the link does not.
  const Words cut{"link", "del", link_of(node)};
  co_await try_ip(cut);
  const Words forget{"netns", "del", namespace_of(node)};
  co_await try_ip(forget);
}

Task<void> LocalNetwork::remove_bridge() {
  const std::vector<std::string> drop{"link", "del", bridge_};
  co_await try_ip(drop);
}

}  // namespace rubato::provider

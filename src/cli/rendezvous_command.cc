// `rubato rendezvous`: the host of a rendezvous that runs no workers, as petctl's rdzv group has it.
#include <fmt/format.h>

#include "agent/host_role.h"
#include "cli/command_world.h"
#include "cli/petctl_command.h"
#include "cli/petctl_session.h"
#include "core/text.h"
#include "os/secret.h"

namespace rubato::cli {
namespace {

constexpr uint16_t kRendezvousPort = 29400;  // torchrun's

struct Hosting {
  elastic::Terms terms;
  ChannelKey key;
  std::string run_id;
  Endpoint endpoint;  // where agents reach it
};

// Ends when the job has, or when the agents have found another host while this one was unreachable.
Task<int> host(World& world, Hosting hosting) {
  const AgentId self{world.random.hex(32)};
  agent::EventLog events(world, "", self.value);
  agent::Doorway doorway(world, self);
  const Endpoint here{"", hosting.endpoint.port};
  doorway.open(world.network.listen(here, hosting.key, hosting.terms.heartbeat));
  agent::HostRole role(world, self, hosting.key, hosting.run_id, events, doorway);
  elastic::Rendezvous machine(hosting.terms, world.clock.now());
  role.begin(std::move(machine), hosting.endpoint, nullptr);
  world.console.err(
      fmt::format("rubato: hosting the rendezvous of '{}' at {}\n", hosting.run_id, to_string(hosting.endpoint)));
  co_await role.ended();
  world.console.err("rubato: the job has ended, or its agents have another host\n");
  co_return 0;
}

}  // namespace

int rendezvous_command(const ParsedCommand& parsed, const Shell&) {
  Hosting hosting;
  hosting.run_id = parsed.value("rdzv-id", "none");
  const Given* const nodes = parsed.find("nnodes");
  if (nodes == nullptr) throw Error(ErrorCode::kUsage, "--nnodes is missing", "", "write --nnodes MIN:MAX");
  const auto range = split_once(nodes->values.back(), ':');
  Given least = *nodes, most = *nodes;
  if (range) {
    least.values = {std::string(range->first)};
    most.values = {std::string(range->second)};
  }
  hosting.terms.min_nodes = whole_number(least, 1);
  hosting.terms.max_nodes = whole_number(most, hosting.terms.min_nodes);
  if (const Given* given = parsed.find("max-restarts")) hosting.terms.max_restarts = whole_number(*given, 0);
  if (const Given* given = parsed.find("join-timeout")) hosting.terms.join_timeout = 1s * whole_number(*given, 1);
  const Given* const endpoint = parsed.find("rdzv-endpoint");
  if (endpoint == nullptr) throw Error(ErrorCode::kUsage, "--rdzv-endpoint is missing", "", "write HOST:29400");
  hosting.endpoint = parse_endpoint(endpoint->values.back(), kRendezvousPort);
  const std::string key_file = parsed.value("rdzv-key-file");
  hosting.key.secret = key_file.empty() ? hosting.run_id : os::read_secret(key_file);
  CommandWorld command;
  command.runtime.run(host(command.world, std::move(hosting)));
  return 0;
}

}  // namespace rubato::cli

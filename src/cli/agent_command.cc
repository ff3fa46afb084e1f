// `rubato agent`: builds the World of this machine and lives the life of a node's agent in it.
#include <fmt/format.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "build_stamp.h"
#include "cli/document.h"
#include "cli/head_command.h"
#include "cli/run_command.h"
#include "core/text.h"
#include "node/node_agent.h"
#include "os/files.h"
#include "os/machine.h"
#include "os/network.h"
#include "os/processes.h"
#include "os/python.h"
#include "os/signals.h"
#include "provider/agent_file.h"

namespace rubato::cli {
namespace {

// A head that was started again may listen at another port; it writes where. The host stays: the node may see the
// head's machine under another address than the head itself does.
std::optional<Endpoint> head_now(const std::string& head_file, const std::string& host) {
  const std::optional<std::string> text = os::RealFiles().read(head_file);
  if (!text) return std::nullopt;
  const nlohmann::json document = nlohmann::json::parse(*text, nullptr, false);
  const int64_t port = int_in(object_in(document, "agents"), "port");
  if (port <= 0 || port > 65535) return std::nullopt;
  return Endpoint{host, static_cast<uint16_t>(port)};
}

node::NodeSettings node_settings(const std::string& dir, os::RealConsole& console) {
  const std::string path = dir + "/" + provider::kAgentFileName;
  const std::optional<std::string> text = os::RealFiles().read(path);
  if (!text) throw Error(ErrorCode::kUsage, "there is no agent.json in this folder", path, "it is made by 'rubato up'");
  const provider::AgentFile file = provider::agent_file_from_text(*text);

  node::NodeSettings settings;
  settings.node = file.node;
  settings.head = file.head;
  settings.find_head = [head_file = dir + "/../../head/head.json", host = file.head.host] {
    return head_now(head_file, host);
  };
  settings.address = file.address;
  settings.folder = dir;
  settings.resources = file.resources;
  settings.key.identity = file.identity;
  settings.environment = os::read_environment();
  settings.environment["CUDA_VISIBLE_DEVICES"] = join(file.gpus, ",");
  settings.version = RUBATO_VERSION;
  try {
    settings.python = os::find_python("", settings.environment);
    settings.old_torch = is_old_torch(os::installed_torch(settings.python, settings.environment));
  } catch (const Error& error) {
    // Programs without Python run all the same, and a job may bring its own with --python.
    console.err(fmt::format("note: {}\n", error.message));
  }
  return settings;
}

Task<int> live(World& world, node::NodeSettings settings, Channel<int>& signals) {
  node::NodeAgent agent(world, std::move(settings), &signals);
  co_return co_await agent.run();
}

}  // namespace

int agent_command(const std::string& dir) {
  os::Runtime runtime;
  os::RealProcesses processes(runtime);
  os::RealNetwork network(runtime);
  os::RealFiles files;
  os::RealConsole console;
  os::Signals signals(runtime, {SIGTERM, SIGINT});
  Random random(os::entropy());
  const MachineFacts machine = os::read_machine_facts();
  World world{runtime, network, processes, files, console, random, machine};
  return runtime.run(live(world, node_settings(dir, console), signals.channel()));
}

}  // namespace rubato::cli

// `rubato agent`: a node's agent on the real machine.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "daemon/daemon_world.h"
#include "daemon/head_command.h"
#include "daemon/run_command.h"
#include "daemon/training_library.h"
#include "node/delivery.h"
#include "node/node_agent.h"
#include "node/notice_watch.h"
#include "os/folder_watch.h"
#include "os/http_server.h"
#include "os/plan_board.h"
#include "os/probe.h"
#include "os/python.h"
#include "provider/agent_file.h"
#include "provider/pod_variables.h"
#include "terminal/values.h"

namespace rubato::cli {

namespace {

using nlohmann::json;

// A new head may listen elsewhere. Its file is two folders above the node's: CLUSTER/head/head.json.
std::optional<Endpoint> read_head_endpoint(Files& files, const std::string& head_file, const Endpoint& told) {
  const json document = json::parse(files.read(head_file).value_or(""), nullptr, false);
  if (!document.is_object()) return std::nullopt;
  // Beside the head, others who crowd its port are passed by. Nodes behind a bridge come over it, as they would from
  // another machine.
  const std::string file = document.value("/agents/socket"_json_pointer, std::string());
  const std::string path = head_file.substr(0, head_file.rfind('/') + 1) + file;
  if (!file.empty() && elastic::is_loopback(told.host) && files.exists(path)) return Endpoint{path, 0};
  // The host is the one that this node reaches: over a bridge it is not the head's own name for itself.
  const uint16_t port = document.value("/agents/port"_json_pointer, uint16_t{0});
  if (port == 0) return std::nullopt;
  return Endpoint{told.host, port};
}

// Where the folder lies is not known to who writes the file from another machine: paths may be relative to it.
TlsFiles in_folder(TlsFiles files, const std::string& dir) {
  for (std::string* path : {&files.ca, &files.certificate, &files.key}) {
    if (!path->empty() && path->front() != '/') *path = dir + "/" + *path;
  }
  return files;
}

// A machine of its own whose file does not say what it has: all of it.
Resources resources_of(DaemonWorld& daemon) {
  Resources out;
  out.set(kCpu, int64_t{1000} * daemon.machine.cpus);
  if (daemon.machine.gpus > 0) out.set(kGpu, int64_t{1000} * daemon.machine.gpus);
  const std::string meminfo = daemon.files.read("/proc/meminfo").value_or("");
  for (const std::string_view line : split(meminfo, '\n')) {
    const auto rest = strip_prefix(line, "MemTotal:");
    if (!rest) continue;
    const std::string_view digits = trim(*rest).substr(0, trim(*rest).find(' '));
    if (const auto kib = parse_int(digits)) out.set(kMemory, int64_t{1024} * *kib);
  }
  return out;
}

// Gloo listens where the host's own name leads, which on many machines is loopback (Debian's 127.0.1.1) or nowhere.
// Other nodes come by the node's address, so that its interface is meant; what the person set stays. The name is not
// asked for first: where no name server answers, that takes ten seconds.
void point_gloo_at(const std::string& address, agent::Environment& environment) {
  if (address.empty() || elastic::is_loopback(address)) return;
  for (const os::InterfaceAddress& one : os::interface_addresses()) {
    if (one.address != address) continue;
    for (const char* name : {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}) environment.try_emplace(name, one.interface);
  }
}

provider::AgentFile agent_file_in(DaemonWorld& daemon, const std::string& dir) {
  const std::string path = dir + "/" + provider::kAgentFileName;
  const std::optional<std::string> text = daemon.files.read(path);
  if (!text) throw Error(ErrorCode::kUsage, "this folder is not a node's", path, "nodes are made by: rubato up");
  return provider::agent_file_from_text(*text);
}

// Whether the head's folder of outputs is there and may be written to.
bool sees_outputs(Files& files, const provider::AgentFile& file) {
  if (file.outputs.empty()) return true;
  const std::string path = file.outputs + "/" + provider::kOutputsMark;
  if (files.read(path) != file.outputs_mark) return false;
  try {
    (void)files.open_append(path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

node::NodeSettings link_settings(DaemonWorld& daemon, const provider::AgentFile& file, const std::string& dir) {
  node::NodeSettings settings;
  settings.node = file.node;
  settings.head = file.head;
  settings.folder = dir;
  settings.key.identity = in_folder(file.identity, dir);
  settings.own_disk = !sees_outputs(daemon.files, file);
  const std::string head_file = dir + "/../../head/head.json";
  Files& files = daemon.files;
  const auto moved = std::make_shared<std::optional<Endpoint>>();
  settings.find_head = [&files, head_file, told = file.head, moved] {
    const std::optional<Endpoint> beside = read_head_endpoint(files, head_file, told);
    return beside ? beside : *moved;
  };
  settings.head_moved = [moved](Endpoint to) { *moved = std::move(to); };
  const auto name = daemon.environment.find(provider::kHeadNameVariable);
  if (name != daemon.environment.end()) settings.head_name = name->second;
  return settings;
}

// Where AdaptDL's workers ask. Null: there is no port left; jobs that need none run all the same.
std::unique_ptr<HttpServer> open_supervisor(DaemonWorld& daemon) {
  try {
    return os::make_http_server(daemon.runtime, Endpoint{"127.0.0.1", 0}, TlsFiles{}, HttpLimits{}, daemon.log);
  } catch (const Error& error) {
    daemon.log.warning("AdaptDL's supervisor cannot be asked here", {{"error", error.message}});
    return nullptr;
  }
}

Task<int> deliver(DaemonWorld& daemon, std::string dir) {
  const provider::AgentFile file = agent_file_in(daemon, dir);
  node::NodeSettings settings = link_settings(daemon, file, dir);
  const bool all = co_await node::deliver_all(daemon.world, std::move(settings));
  co_return all ? 0 : 1;
}

// A full or read-only disk must not keep a script from running that never asks for the library.
void add_library(DaemonWorld& daemon, const std::string& dir, node::NodeSettings& settings) {
  try {
    add_training_library(daemon.world.files, dir, settings.python, settings.environment);
  } catch (const Error& error) {
    daemon.log.warning("the training library cannot be unpacked: workers go without it",
                       {{"folder", dir}, {"error", error.message}});
  }
}

Task<int> run_agent(DaemonWorld& daemon, std::string dir) {
  const provider::AgentFile file = agent_file_in(daemon, dir);
  node::NodeSettings settings = link_settings(daemon, file, dir);
  settings.address = file.address;
  settings.resources = file.resources;
  settings.environment = daemon.environment;
  if (file.resources.empty()) {
    settings.resources = resources_of(daemon);
    for (const std::string& name : file.denied) settings.resources.set(name, 0);
    if (std::ranges::count(file.denied, kGpu) > 0) settings.environment["CUDA_VISIBLE_DEVICES"] = "";
  } else if (!file.gpus.empty() || file.resources.of(kGpu) == 0) {
    settings.environment["CUDA_VISIBLE_DEVICES"] = join(file.gpus, ",");
  }
  point_gloo_at(file.address, settings.environment);
  settings.version = daemon.version;
  settings.unpack = node::package_unpacker();
  settings.watch_folder = os::watch_folder;
  os::BulkWork& bulk = daemon.bulk;
  settings.offload = [&bulk](std::function<void()> work) { return beside(bulk, std::move(work)); };
  try {
    settings.python = os::find_python("", daemon.environment);
    settings.old_torch = is_old_torch(os::installed_torch(settings.python, daemon.environment));
    add_library(daemon, dir, settings);
  } catch (const Error& error) {
    // Jobs may bring their own, or need none.
    daemon.log.warning("no Python here", {{"error", error.message}});
  }
  const std::unique_ptr<HttpServer> supervisor = open_supervisor(daemon);
  settings.supervisor = supervisor.get();
  os::RealInPlaceHost in_place(daemon.runtime, daemon.files);
  settings.in_place = &in_place;
  Channel<node::MachineNotice> notices(daemon.world.clock.loop());
  Scope watching(daemon.world.clock.loop());
  if (!file.notice.empty()) {
    node::NoticeWatchSettings watch;
    watch.source = file.notice;
    watch.node = file.node;
    watch.environment = daemon.environment;
    watching.spawn(node::watch_notices(daemon.world, std::move(watch), notices));
  }
  node::NodeAgent agent(daemon.world, std::move(settings), &daemon.signals.channel(), &notices);
  co_return co_await agent.run();
}

}  // namespace

int agent_command(const std::string& dir) {
  DaemonWorld daemon("agent");
  return daemon.run(run_agent(daemon, dir));
}

int deliver_command(const std::string& dir) {
  DaemonWorld daemon("deliver");
  return daemon.run(deliver(daemon, dir));
}

}  // namespace rubato::cli

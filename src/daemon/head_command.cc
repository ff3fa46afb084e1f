// A head on the real machine. All deciding is in src/head and below; this ties it to os.
#include "daemon/head_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "client/head_end.h"
#include "client/head_settings.h"
#include "cluster/event.h"
#include "core/text.h"
#include "daemon/daemon_world.h"
#include "daemon/head_sockets.h"
#include "daemon/machine_provider.h"
#include "daemon/supervisor_watch.h"
#include "head/api.h"
#include "node/last_lines.h"
#include "os/certificates.h"
#include "os/channel_connection.h"
#include "os/daemons.h"
#include "os/etcd_journal.h"
#include "os/etcd_store.h"
#include "os/http_server.h"
#include "os/journal_note.h"
#include "os/secret.h"
#include "os/sqlite_journal.h"
#include "provider/local_provider.h"
#include "provider/pod_variables.h"
#include "world/journal_chain.h"

namespace rubato::cli {

namespace {

using nlohmann::json;

constexpr Duration kHeartbeat = 3s;
constexpr double kOwnRateFactor = 20;

// The ports that the head before had, so that those who know them find this one; zero when there was none.
struct Ports {
  uint16_t api = 0;
  uint16_t agents = 0;
};

Ports ports_before(Files& files, const std::string& file) {
  const json document = json::parse(files.read(file).value_or(""), nullptr, false);
  Ports ports;
  if (!document.is_object()) return ports;
  ports.api = document.value("api", uint16_t{0});
  ports.agents = document.value("agents", uint16_t{0});
  return ports;
}

// At the port that was asked for, or at any when somebody else has it by now.
template <class Make>
auto at_port(uint16_t wanted, Make make) {
  try {
    return make(wanted);
  } catch (const Error& error) {
    if (wanted == 0 || error.code != ErrorCode::kConflict) throw;
    return make(uint16_t{0});
  }
}

TlsFiles identity_of(const std::string& dir) {
  TlsFiles files;
  files.use_tls = true;
  files.ca = dir + "/ca.pem";
  files.certificate = dir + "/head.pem";
  files.key = dir + "/head.key";
  return files;
}

// How often a head that appends nothing looks whether its journal is still there.
constexpr Duration kJournalCheck = 1s;

struct OpenJournal {
  std::unique_ptr<Store> store;  // the etcd behind it, if any
  std::unique_ptr<Journal> journal;
};

// Not beside the journal: who deletes `journal*` must be noticed.
std::string journal_note_file(const std::string& dir) { return dir + "/head/journal.note"; }

std::string encode_loss(const JournalLoss& loss, WallTime now) {
  cluster::JournalLost lost;
  lost.first = loss.first;
  lost.last = loss.last;
  lost.epoch = loss.epoch;
  lost.cause = loss.cause;
  lost.kept_in = loss.kept_in;
  return cluster::encode(now, lost);
}

// Made by the first write; shared with work that may outlive its journal.
using NoteHolder = std::shared_ptr<std::unique_ptr<os::JournalNoteFile>>;

Task<void> write_etcd_note(os::Runtime& runtime, NoteHolder holder, std::string path, JournalNote note) {
  std::function<bool()> work = [holder, path = std::move(path), note = std::move(note)] {
    std::unique_ptr<os::JournalNoteFile>& file = *holder;
    if (!file || !file->is_in_place()) {
      file = std::make_unique<os::JournalNoteFile>(path, note);
    } else {
      file->write(note);
    }
    return true;
  };
  Task<bool> written = runtime.offload(std::move(work));
  (void)co_await std::move(written);
}

// Who has deleted the journal and its note has not deleted what jobs wrote: there was something to lose.
void check_for_a_past(Files& files, const std::string& dir, const std::string& journal, const std::string& note) {
  if (files.exists(journal) || files.exists(note) || !files.exists(dir + "/jobs")) return;
  const auto is_job = [](const Files::Entry& entry) { return entry.name.starts_with("j-"); };
  if (std::ranges::none_of(files.list(dir + "/jobs"), is_job)) return;
  throw DamagedError(
      fmt::format("the journal '{}' is gone, and jobs have run here: their logs are in '{}/jobs'", journal, dir),
      journal, "put it back from a copy; or go on without it: rubato up --accept-journal-loss");
}

Task<OpenJournal> open_journal(DaemonWorld& daemon, std::string dir, std::string cluster, std::string store,
                               bool accept_loss) {
  OpenJournal open;
  const std::string note_file = journal_note_file(dir);
  EncodeLoss encode;
  if (accept_loss) {
    encode = [&daemon](const JournalLoss& loss) { return encode_loss(loss, daemon.runtime.wall()); };
  }
  if (store.empty()) {
    if (!accept_loss) check_for_a_past(daemon.files, dir, dir + "/journal.db", note_file);
    open.journal = co_await os::SqliteJournal::open(daemon.runtime, dir + "/journal.db", note_file, std::move(encode));
    co_return open;
  }
  open.store = std::make_unique<os::EtcdStore>(daemon.network, daemon.runtime, os::etcd_endpoints(store), TlsFiles{});
  std::string prefix = "/rubato/" + cluster;
  os::EtcdJournalNote note;
  const std::string etcd_note_file = note_file + "-etcd";
  note.before = os::JournalNoteFile::read(etcd_note_file);
  note.accept_loss = std::move(encode);
  const NoteHolder holder = std::make_shared<std::unique_ptr<os::JournalNoteFile>>();
  note.write = [&daemon, holder, etcd_note_file](JournalNote what) {
    return write_etcd_note(daemon.runtime, holder, etcd_note_file, std::move(what));
  };
  open.journal = co_await os::EtcdJournal::open(*open.store, daemon.runtime, std::move(prefix), daemon.random.hex(16),
                                                std::move(note));
  co_return open;
}

// Ends, with the reason, when the journal is not there any more: a head must not go on telling people that their jobs
// are safe. A store that does not answer is another matter: the next commit tells.
Task<int> until_journal_is_gone(Loop& loop, Journal& journal) {
  while (true) {
    co_await Sleep(loop, loop.now() + kJournalCheck);
    try {
      co_await journal.check();
    } catch (const Error& error) {
      if (error.code != ErrorCode::kUnavailable) throw;
    }
  }
}

provider::LocalSettings local_settings(const DaemonWorld& daemon, const std::string& dir, const std::string& cluster) {
  provider::LocalSettings settings;
  settings.cluster = cluster;
  settings.folder = dir;
  settings.program = daemon.program;
  for (const auto& [name, value] : daemon.environment) settings.env.push_back(name + "=" + value);
  settings.issue = [dir](const NodeId& node, const std::string& folder) {
    TlsFiles files;
    files.use_tls = true;
    files.ca = dir + "/ca.pem";
    files.certificate = folder + "/node.pem";
    files.key = folder + "/node.key";
    os::issue_certificate(dir, "node/" + node.value, {}, files.certificate, files.key);
    return files;
  };
  return settings;
}

MachineProviderSettings machine_settings(const std::string& dir, const std::string& cluster,
                                         const HeadSettings& wanted) {
  MachineProviderSettings settings;
  settings.provider = wanted.provider;
  settings.address = wanted.address;
  settings.cluster = cluster;
  settings.folder = dir;
  return settings;
}

// What the workers of a dead agent had printed goes to the jobs' logs before the node's folder is removed.
Task<void> save_last_lines(DaemonWorld& daemon, provider::NodeRemoval removal, std::string folder) {
  const NodeId node = removal.node;
  if (!removal.keep_lines) co_return;
  try {
    node::KeepLines keep = std::move(removal.keep_lines);
    co_await node::send_last_lines(daemon.world, std::move(folder), std::move(keep));
  } catch (const Error& error) {
    if (error.code == ErrorCode::kUnavailable) throw;  // no room for them now: the node's folder stays until then
    daemon.log.warning("the last lines of a node are lost", {{"node", node.value}, {"error", error.message}});
  }
}

std::unique_ptr<provider::NodeProvider> local_provider(DaemonWorld& daemon, Daemons& daemons, const std::string& dir,
                                                       const std::string& cluster) {
  provider::LocalSettings local = local_settings(daemon, dir, cluster);
  local.last_output = [&daemon](provider::NodeRemoval removal, std::string folder) {
    return save_last_lines(daemon, std::move(removal), std::move(folder));
  };
  return std::make_unique<provider::LocalProvider>(daemon.world, daemons, std::move(local));
}

// Where the API is, for those on this machine.
struct ApiPlace {
  std::string bind = "127.0.0.1";
  std::string host = "127.0.0.1";
  TlsFiles tls;
};

ApiPlace api_place(const HeadSettings& settings, const std::string& dir) {
  ApiPlace place;
  if (settings.listen.empty() || elastic::is_loopback(settings.listen)) return place;
  const bool everywhere = settings.listen == "0.0.0.0" || settings.listen == "::";
  place.bind = everywhere ? "" : settings.listen;
  if (!everywhere) place.host = settings.listen;
  place.tls = identity_of(dir);
  place.tls.ca.clear();  // people come with a token, not with a certificate
  return place;
}

// The sockets' files lie beside it: `socket` is their names.
std::string head_document(const MachineFacts& machine, const ApiPlace& place, const Ports& ports, uint64_t epoch,
                          bool has_api_file, bool has_agents_file) {
  json document = {{"pid", machine.pid},
                   {"api", {{"host", place.host}, {"port", ports.api}, {"tls", place.tls.use_tls}}},
                   {"agents", {{"host", "127.0.0.1"}, {"port", ports.agents}}},
                   {"epoch", epoch}};
  if (has_api_file) document["api"]["socket"] = kApiSocket;
  if (has_agents_file) document["agents"]["socket"] = kAgentsSocket;
  return document.dump() + "\n";
}

// The agents' port and their socket's file; a file system may have no sockets, then the port alone.
struct AgentsDoor {
  std::unique_ptr<Listener> listener;
  bool has_file = false;
};

AgentsDoor open_agents_door(DaemonWorld& daemon, const Endpoint& endpoint, const std::string& file,
                            const ChannelKey& key) {
  AgentsDoor door;
  std::vector<Endpoint> endpoints = {endpoint, Endpoint{file, 0}};
  try {
    door.listener = os::make_listener(daemon.runtime, endpoints, key, kHeartbeat);
    door.has_file = true;
  } catch (const Error& error) {
    if (error.code == ErrorCode::kConflict) throw;
    daemon.log.warning("agents of this machine come by its port", {{"error", error.message}});
    endpoints.pop_back();
    door.listener = os::make_listener(daemon.runtime, endpoints, key, kHeartbeat);
  }
  return door;
}

// For the people of this machine: whoever else comes to the port cannot keep them out. Null: as above.
std::unique_ptr<HttpServer> open_api_file(DaemonWorld& daemon, const std::string& file) {
  HttpLimits limits;  // our own user's scripts alone come here
  limits.requests_per_second *= kOwnRateFactor;
  limits.requests_burst *= kOwnRateFactor;
  try {
    return os::make_http_server(daemon.runtime, Endpoint{file, 0}, TlsFiles{}, limits, daemon.log);
  } catch (const Error& error) {
    daemon.log.warning("people of this machine come by the API's port", {{"error", error.message}});
    return nullptr;
  }
}

Task<void> serve_api(HttpServer& server, head::Api& api) {
  HttpHandler handler = [&api](ServerRequest request) { return api.handle(std::move(request)); };
  HttpAdmit admit = [&api](const ServerRequest& head) { return api.admit_headers(head); };
  co_await server.serve(std::move(handler), std::move(admit));
}

Task<int> until_shutdown(head::Controller& controller, Listener& listener) {
  co_await controller.run(listener);
  co_return 0;
}

// SIGTERM: this head ends, its agents and their workers go on and wait for the next one, which its supervisor starts.
Task<int> until_signal(Channel<int>& signals) {
  const std::optional<int> signal = co_await signals.pop();
  co_return 128 + signal.value_or(SIGTERM);
}

Task<int> until_told(DaemonWorld& daemon, head::Controller& controller, Listener& listener) {
  Task<int> shutdown = until_shutdown(controller, listener);
  Task<int> signal = until_signal(daemon.signals.channel());
  const std::variant<int, int> first = co_await race(daemon.runtime, std::move(shutdown), std::move(signal));
  co_return std::visit([](int code) { return code; }, first);
}

// What is kept for those who find no head.
void write_end(Files& files, const std::string& dir, const HeadEnd& end) {
  const json document = {{"message", end.message}, {"hint", end.hint}, {"permanent", end.is_permanent}};
  try {
    files.write_atomically(head_end_file(dir), document.dump() + "\n");
  } catch (const Error&) {
    // A full disk, likely; the log has it too.
  }
}

// Started by hand beside the one that `rubato up` has started, a second head would take the journal from the first.
void refuse_beside_another(const std::string& dir, int self) {
  os::RealDaemons daemons;
  const std::optional<int> other = daemons.running(dir + "/head");
  if (!other || *other == self) return;
  throw Error(ErrorCode::kConflict, fmt::format("this cluster has a head already (pid {})", *other), dir,
              "nothing is to be done; `rubato status` shows what it does");
}

// What `up` has said, but for the address of a pod that was made again since.
HeadSettings settings_now(DaemonWorld& daemon, const std::string& dir) {
  HeadSettings settings = read_head_settings(dir);
  const auto own = daemon.environment.find(provider::kHeadAddressVariable);
  if (own != daemon.environment.end() && !own->second.empty() && !settings.address.empty())
    settings.address = own->second;
  return settings;
}

Task<int> run_head(DaemonWorld& daemon, std::string dir, HeadStart start) {
  const HeadSettings wanted = settings_now(daemon, dir);
  const std::string cluster = dir.substr(dir.rfind('/') + 1);
  const std::string head_file = dir + "/head/head.json";
  const std::string ports_file = dir + "/head/ports.json";
  const Ports before = ports_before(daemon.files, ports_file);
  const ApiPlace place = api_place(wanted, dir);

  ChannelKey key;
  key.identity = identity_of(dir);
  // Nodes in namespaces of their own come over a bridge; agents prove themselves by certificate in any case.
  const std::string agents_host = wanted.isolated || !wanted.provider.empty() ? "" : "127.0.0.1";
  const AgentsDoor agents_door = at_port(before.agents, [&](uint16_t port) {
    return open_agents_door(daemon, Endpoint{agents_host, port}, dir + "/head/" + kAgentsSocket, key);
  });
  Listener* const listener = agents_door.listener.get();
  const auto server = at_port(before.api, [&](uint16_t port) {
    return os::make_http_server(daemon.runtime, Endpoint{place.bind, port}, place.tls, HttpLimits{}, daemon.log);
  });
  const std::unique_ptr<HttpServer> own_server = open_api_file(daemon, dir + "/head/" + kApiSocket);

  const OpenJournal journal = co_await open_journal(daemon, dir, cluster, wanted.store, start.accept_loss);
  os::RealDaemons daemons;
  const std::unique_ptr<provider::NodeProvider> provider =
      wanted.provider.empty() ? local_provider(daemon, daemons, dir, cluster)
                              : machine_provider(daemon, machine_settings(dir, cluster, wanted));
  head::HeadSettings settings;
  settings.folder = dir;
  settings.version = daemon.version;
  settings.restarted_after = start.restarted_after;
  SupervisorWatch supervisor(daemon, dir);
  settings.supervision = [&supervisor] { return supervisor.seen(); };
  settings.heartbeat = kHeartbeat;
  settings.key = key;
  settings.stays_here = wanted.store.empty();
  os::BulkWork& bulk = daemon.bulk;
  settings.offload = [&bulk](std::function<void()> work) { return beside(bulk, std::move(work)); };
  settings.agents = Endpoint{wanted.address.empty() ? "127.0.0.1" : wanted.address, listener->port()};
  Metrics metrics;
  const DaemonWorld::TurnMeasure measured(daemon, metrics);
  head::Controller controller(daemon.world, *journal.journal, *provider, settings, metrics, daemon.log);
  co_await controller.recover();
  const size_t record_bytes_max =
      wanted.store.empty() ? os::SqliteJournal::kRecordBytesMax : os::EtcdJournal::kRecordBytesMax;
  head::Api api(daemon.world, controller, metrics, os::read_secret(dir + "/token"), record_bytes_max);

  Scope scope(daemon.runtime);
  scope.spawn(serve_api(*server, api));
  if (own_server) scope.spawn(serve_api(*own_server, api));
  const Ports ports{server->port(), listener->port()};
  daemon.files.write_atomically(ports_file, json({{"api", ports.api}, {"agents", ports.agents}}).dump() + "\n");
  daemon.files.write_atomically(head_file, head_document(daemon.machine, place, ports, controller.state().epoch,
                                                         own_server != nullptr, agents_door.has_file));
  scope.spawn(supervisor.keep());
  Task<int> told = until_told(daemon, controller, *listener);
  Task<int> gone = until_journal_is_gone(daemon.runtime, *journal.journal);
  const std::variant<int, int> first = co_await race(daemon.runtime, std::move(told), std::move(gone));
  const int code = std::visit([](int value) { return value; }, first);
  if (controller.state().shutting_down && controller.state().nodes.empty()) {
    daemon.files.remove_tree(head_file);
    if (code == 0) write_end(daemon.files, dir, HeadEnd{.is_permanent = true});
  }
  co_return code;
}

// Whoever finds no head is told why. One that was replaced leaves that to the new one.
void keep_end(DaemonWorld& daemon, const std::string& dir, const Error& error, bool is_permanent) {
  os::RealDaemons daemons;
  const std::optional<int> holder = daemons.running(dir + "/head");
  if (holder && *holder != daemon.machine.pid) return;
  write_end(daemon.files, dir, HeadEnd{error.message, error.hint, is_permanent});
}

// What a restart cannot mend: a journal that is damaged, gone or another head's; settings that make no sense.
bool is_permanent(const Error& error) {
  return error.code == ErrorCode::kUsage || error.code == ErrorCode::kConflict ||
         dynamic_cast<const DamagedError*>(&error) != nullptr;
}

Task<int> run_and_tell(DaemonWorld& daemon, std::string dir, HeadStart start) {
  refuse_beside_another(dir, daemon.machine.pid);
  try {
    Task<int> head = run_head(daemon, dir, std::move(start));
    co_return co_await std::move(head);
  } catch (const Error& error) {
    keep_end(daemon, dir, error, is_permanent(error));
    throw;
  }
}

}  // namespace

int head_command(const std::string& dir, const HeadStart& start) {
  DaemonWorld daemon("head");
  return daemon.run(run_and_tell(daemon, dir, start));
}

}  // namespace rubato::cli

#include "cli/pod_command.h"

#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <variant>

#include "cli/command_world.h"
#include "core/scope.h"
#include "core/text.h"
#include "kubernetes/exec.h"
#include "os/byte_streams.h"
#include "os/signals.h"
#include "provider/pod_address.h"

namespace rubato::cli {
namespace {

using kubernetes::ExecOrder;
using kubernetes::ExecOutput;
using kubernetes::ExecSession;
using provider::PodAddress;

constexpr int kOwnFailure = 255;      // as ssh's
constexpr Duration kPingPause = 20s;  // load balancers end connections that are silent for a minute
constexpr Duration kSilentMax = 3 * kPingPause;
constexpr Duration kResizePause = 250ms;  // between two looks at the terminal's size
constexpr Duration kIdleMax = 600s;       // as an ssh that serves later commands
constexpr Duration kIdlePause = 2s;
constexpr Duration kRelayTimeout = 10s;

// A login begins in the home folder. "$1": the terminal's kind.
constexpr const char* kShellScript =
    "cd \"${HOME:-/}\" || exit 1; [ -z \"$1\" ] || export TERM=\"$1\"; exec sh -c \"$0\"";
constexpr const char* kRelayScript = "exec \"$HOME/.rubato/bin/rubato\" k8s relay \"$0\"";

std::vector<Flag> context_flag() {
  return {{.name = "context",
           .kind = FlagKind::kValue,
           .value = "NAME",
           .help = "of the kubeconfig, instead of the current one"}};
}

PodAddress pod_in(const ParsedCommand& parsed, size_t index) {
  std::optional<PodAddress> pod;
  if (parsed.positionals.size() > index) pod = provider::parse_pod_address("pod:" + parsed.positionals[index]);
  if (!pod) throw Error(ErrorCode::kUsage, "which pod?", "", "write NAMESPACE/POD/CONTAINER");
  pod->context = parsed.value("context");
  return *pod;
}

uint16_t port_in(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0)
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is no port", text));
  return port;
}

struct Forward {
  os::StreamListener listener;
  uint16_t port = 0;
};

// "127.0.0.1:8265=8265"
Forward forward_of(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos) throw Error(ErrorCode::kUsage, fmt::format("'{}' is no forward", text));
  const std::string listen = text.substr(0, at);
  const Endpoint endpoint = listen.starts_with('/') ? Endpoint{listen, 0} : parse_endpoint(listen, 0);
  const uint16_t port = port_in(std::string_view(text).substr(at + 1));
  return Forward{os::StreamListener(endpoint), port};
}

// The pod's API server, and how a connection to it becomes another one.
class PodReach {
 public:
  PodReach(World& world, os::Runtime& runtime, PodAddress pod, const Environment& env)
      : pod_(std::move(pod)), upgrades_(runtime), client_(world, kubernetes::open_access(world, access(pod_, env))) {}

  Task<std::unique_ptr<ExecSession>> open(std::vector<std::string> argv, bool tty) {
    ExecOrder order;
    order.pod = {pod_.namespace_name, pod_.pod};
    order.container = pod_.container;
    order.argv = std::move(argv);
    order.tty = tty;
    return kubernetes::open_exec(client_, upgrades_, std::move(order));
  }

 private:
  static kubernetes::AccessSettings access(const PodAddress& pod, const Environment& env) {
    kubernetes::AccessSettings out;
    out.env = env;
    out.context = pod.context;
    return out;
  }

  const PodAddress pod_;
  os::RealUpgrades upgrades_;
  kubernetes::Client client_;
};

Task<void> pump_input(ByteStream& from, ExecSession& to) {
  while (true) {
    std::string bytes = co_await from.read();
    if (bytes.empty()) break;
    co_await to.write(std::move(bytes));
  }
  co_await to.end_input();
}

// Never returns. Throws kUnavailable when the other side has fallen silent.
Task<int> keep_alive(Loop& loop, ExecSession& session) {
  while (true) {
    co_await Sleep(loop, loop.now() + kPingPause);
    if (session.is_silent(kSilentMax)) {
      throw Error(ErrorCode::kUnavailable, "the API server does not answer any more", "",
                  "the command may go on there; try again");
    }
    co_await session.ping();
  }
}

// Until the command ends: its exit code.
Task<int> pump_output(ExecSession& from, ByteStream& out, ByteStream* err) {
  while (true) {
    std::optional<ExecOutput> came = co_await from.read();
    if (!came) break;
    ByteStream* to = came->is_stderr ? err : &out;
    if (to == nullptr) continue;
    const bool taken = co_await to->write(std::move(came->bytes));
    if (!taken) co_return kOwnFailure;
  }
  co_return from.exit_code();
}

// The same, on a connection that is watched. `err` may be null.
Task<int> pump_while_alive(Loop& loop, ExecSession& from, ByteStream& out, ByteStream* err) {
  Task<int> pumped = pump_output(from, out, err);
  Task<int> watched = keep_alive(loop, from);
  const std::variant<int, int> first = co_await race(loop, std::move(pumped), std::move(watched));
  co_return std::visit([](int code) { return code; }, first);
}

Task<void> keep_size(Loop& loop, ExecSession& session) {
  std::optional<std::pair<int, int>> told;
  while (true) {
    const auto size = os::terminal_size();
    if (size && size != told) co_await session.resize(size->first, size->second);
    told = size;
    co_await Sleep(loop, loop.now() + kResizePause);
  }
}

Task<void> end_by_signal(os::Signals& signals, os::RawKeys& keys) {
  const std::optional<int> number = co_await signals.channel().pop();
  keys.restore();
  os::die_by_signal(number.value_or(SIGTERM));
}

// ---- forwards ----

struct Served {
  int connections = 0;
  Instant last{};
};

Task<void> serve_one(os::Runtime& runtime, PodReach& reach, uint16_t port, std::unique_ptr<ByteStream> local,
                     Served& served) {
  ++served.connections;
  try {
    std::vector<std::string> argv = {"sh", "-c", kRelayScript, std::to_string(port)};
    const std::unique_ptr<ExecSession> session = co_await reach.open(std::move(argv), false);
    Scope scope(runtime);
    scope.spawn(pump_input(*local, *session));
    co_await pump_while_alive(runtime, *session, *local, nullptr);
  } catch (const Error&) {
    // Whoever connected sees the end of the connection, and asks by another way what the matter is.
  }
  --served.connections;
  served.last = runtime.now();
}

Task<void> serve(os::Runtime& runtime, PodReach& reach, Forward& forward, Served& served) {
  Scope connections(runtime);
  while (true) {
    std::unique_ptr<ByteStream> local = co_await forward.listener.accept(runtime);
    connections.spawn(serve_one(runtime, reach, forward.port, std::move(local), served));
  }
}

// Until nobody has used it for long, or another has taken its place.
Task<int> serve_while_used(os::Runtime& runtime, PodReach& reach, Forward& forward) {
  Served served;
  served.last = runtime.now();
  Scope scope(runtime);
  scope.spawn(serve(runtime, reach, forward, served));
  while (true) {
    co_await Sleep(runtime, runtime.now() + kIdlePause);
    if (!forward.listener.is_in_place()) break;
    if (served.connections == 0 && runtime.now() - served.last >= kIdleMax) break;
  }
  co_return 0;
}

// ---- a command ----

struct ShellOrder {
  std::string line, term;
  bool tty = false;
  std::vector<Forward> forwards;
};

Task<int> run_shell(os::Runtime& runtime, PodReach& reach, ShellOrder order) {
  const std::string line = order.line.empty() ? "command -v bash >/dev/null && exec bash -l; exec sh -l" : order.line;
  std::vector<std::string> argv = {"sh", "-c", kShellScript, line, order.tty ? order.term : ""};
  const std::unique_ptr<ExecSession> session = co_await reach.open(std::move(argv), order.tty);
  os::DescriptorStream in(runtime, 0), out(runtime, 1), err(runtime, 2);
  std::optional<os::RawKeys> keys;
  std::optional<os::Signals> signals;
  Scope scope(runtime);
  Served served;
  if (order.tty) {
    keys.emplace();
    signals.emplace(runtime, std::vector<int>{SIGTERM, SIGHUP});
    scope.spawn(end_by_signal(*signals, *keys));
    scope.spawn(keep_size(runtime, *session));
  }
  scope.spawn(pump_input(in, *session));
  for (Forward& one : order.forwards) scope.spawn(serve(runtime, reach, one, served));
  const int code = co_await pump_while_alive(runtime, *session, out, &err);
  co_return code;
}

Task<void> pump(ByteStream& from, ByteStream& to) {
  while (true) {
    std::string bytes = co_await from.read();
    if (bytes.empty()) break;
    const bool taken = co_await to.write(std::move(bytes));
    if (!taken) break;
  }
  to.end_write();
}

Task<int> run_relay(os::Runtime& runtime, uint16_t port) {
  Endpoint endpoint{"127.0.0.1", port};
  const Instant deadline = runtime.now() + kRelayTimeout;
  const std::unique_ptr<ByteStream> socket = co_await os::connect_stream(runtime, std::move(endpoint), deadline);
  os::DescriptorStream in(runtime, 0), out(runtime, 1);
  Scope scope(runtime);
  scope.spawn(pump(in, *socket));
  co_await pump(*socket, out);
  co_return 0;
}

// Apart from what the command there may print: one line, which provider::explain_ssh reads.
int report_failure(const Shell& shell, const Error& error) {
  shell.err(provider::pod_failure_line(error));
  return kOwnFailure;
}

}  // namespace

const Command& k8s_shell_table() {
  static const Command table{
      .name = "k8s shell",
      .summary = "run a line of shell in a pod, with our standard streams: what ssh is to hosts",
      .usage = "rubato k8s shell [--tty] [--context NAME] [--forward LISTEN=PORT] NAMESPACE/POD/CONTAINER [LINE]",
      .positional = {.name = "POD [LINE]", .help = "where, and what", .remainder = true},
      .flags =
          [] {
            std::vector<Flag> flags = context_flag();
            flags.push_back({.name = "tty", .help = "with a terminal there"});
            flags.push_back({.name = "forward",
                             .kind = FlagKind::kRepeat,
                             .value = "LISTEN=PORT",
                             .help = "connections here lead to a port there"});
            return flags;
          }(),
      .hidden = true};
  return table;
}

const Command& k8s_forward_table() {
  static const Command table{.name = "k8s forward",
                             .summary = "a socket here that leads to a port in a pod, in the background",
                             .usage = "rubato k8s forward [--context NAME] SOCKET NAMESPACE/POD/CONTAINER PORT",
                             .positional = {.name = "SOCKET POD PORT", .help = "from where to where", .at_most = 3},
                             .flags = context_flag(),
                             .hidden = true};
  return table;
}

const Command& k8s_relay_table() {
  static const Command table{.name = "k8s relay",
                             .summary = "standard input and output to a port of this machine: what forward runs there",
                             .usage = "rubato k8s relay PORT",
                             .positional = {.name = "PORT", .help = "which", .at_most = 1},
                             .hidden = true};
  return table;
}

int k8s_shell_command(const ParsedCommand& parsed, const Shell& shell) {
  try {
    PodAddress pod = pod_in(parsed, 0);
    ShellOrder order;
    order.tty = parsed.has("tty");
    const std::vector<std::string>& arguments = parsed.positionals;
    order.line = join(std::vector<std::string>(arguments.begin() + 1, arguments.end()), " ");
    const auto term = shell.env.find("TERM");
    order.term = term == shell.env.end() ? "xterm" : term->second;
    if (const Given* given = parsed.find("forward")) {
      for (const std::string& text : given->values) order.forwards.push_back(forward_of(text));
    }
    CommandWorld command;
    PodReach reach(command.world, command.runtime, std::move(pod), shell.env);
    return command.runtime.run(run_shell(command.runtime, reach, std::move(order)));
  } catch (const Error& error) {
    return report_failure(shell, error);
  }
}

int k8s_forward_command(const ParsedCommand& parsed, const Shell& shell) {
  try {
    PodAddress pod = pod_in(parsed, 1);
    if (parsed.positionals.size() != 3) throw Error(ErrorCode::kUsage, "which port?");
    const Endpoint at{parsed.positionals.front(), 0};
    Forward forward{os::StreamListener(at), port_in(parsed.positionals[2])};
    os::go_to_background();
    CommandWorld command;
    PodReach reach(command.world, command.runtime, std::move(pod), shell.env);
    return command.runtime.run(serve_while_used(command.runtime, reach, forward));
  } catch (const Error& error) {
    return report_failure(shell, error);
  }
}

int k8s_relay_command(const ParsedCommand& parsed, const Shell& shell) {
  try {
    if (parsed.positionals.empty()) throw Error(ErrorCode::kUsage, "which port?");
    const uint16_t port = port_in(parsed.positionals.front());
    os::Runtime runtime;
    return runtime.run(run_relay(runtime, port));
  } catch (const Error& error) {
    return report_failure(shell, error);
  }
}

}  // namespace rubato::cli

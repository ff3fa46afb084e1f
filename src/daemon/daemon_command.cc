// `rubato daemon`: starts a head or an agent on a machine that was reached over SSH, so that it outlives the
// connection; tells whether it runs; ends it. For those who bring nodes up, not for people.
#include "daemon/daemon_command.h"

#include <fmt/format.h>

#include <csignal>
#include <filesystem>

#include "core/error.h"
#include "os/daemons.h"
#include "os/machine.h"
#include "os/runtime.h"
#include "os/while_heard.h"
#include "terminal/values.h"

namespace rubato::cli {

namespace {

constexpr Duration kGrace = 45s;  // an agent's workers have theirs inside of it
constexpr Duration kKillMax = 10s;
constexpr Duration kHeardGrace = 5s;
constexpr Duration kLook = 10ms;

Task<int> gone_within(os::Runtime& runtime, os::RealDaemons& daemons, std::string folder, Duration patience) {
  const Instant deadline = runtime.now() + patience;
  while (daemons.running(folder)) {
    if (runtime.now() >= deadline) co_return 0;
    co_await Sleep(runtime, runtime.now() + kLook);
  }
  co_return 1;
}

int stop(const std::string& folder, Duration grace) {
  os::RealDaemons daemons;
  os::Runtime runtime;
  daemons.signal(folder, SIGTERM);
  if (runtime.run(gone_within(runtime, daemons, folder, grace)) == 1) return 0;
  daemons.signal(folder, SIGKILL);
  if (runtime.run(gone_within(runtime, daemons, folder, kKillMax)) == 1) return 0;
  throw Error(ErrorCode::kFailed, "the daemon does not die", folder,
              "a process that waits for a device or a network disk cannot be killed; see `ps`");
}

int start(const ParsedCommand& parsed, const Shell& shell, const std::string& folder) {
  DaemonSpec spec;
  spec.folder = folder;
  spec.argv = {os::own_program()};
  spec.argv.insert(spec.argv.end(), parsed.positionals.begin() + 2, parsed.positionals.end());
  for (const auto& [name, value] : shell.env) spec.env.push_back(name + "=" + value);
  os::RealDaemons().start(spec);
  return 0;
}

}  // namespace

int while_heard_command(const ParsedCommand& parsed, const Shell&) {
  if (parsed.positionals.empty()) throw Error(ErrorCode::kUsage, "the command is missing");
  const ExitStatus status = os::run_while_heard(parsed.positionals, kHeardGrace);
  return status.signal != 0 ? 128 + status.signal : status.code;
}

int daemon_command(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.positionals.size() < 2) {
    throw Error(ErrorCode::kUsage, "expected start, running or stop, and a folder", "", "rubato daemon --help");
  }
  const std::string& verb = parsed.positionals[0];
  const std::string folder = std::filesystem::absolute(parsed.positionals[1]).string();
  Duration grace = kGrace;
  if (const Given* given = parsed.find("grace")) grace = duration_value(*given, 0s);
  if (verb == "start" && parsed.positionals.size() > 2) return start(parsed, shell, folder);
  if (verb == "stop") return stop(folder, grace);
  if (verb == "running") {
    const std::optional<int> pid = os::RealDaemons().running(folder);
    if (pid) shell.out(fmt::format("{}\n", *pid));
    return pid ? 0 : 1;
  }
  throw Error(ErrorCode::kUsage, fmt::format("'{}' is not one of start (with a command), running, stop", verb));
}

}  // namespace rubato::cli

#include "cli/daemon_world.h"

#include <signal.h>

#include <filesystem>

#include "build_stamp.h"
#include "os/exec.h"
#include "os/secret.h"

namespace rubato::cli {

namespace {

Task<int> run_watched(os::Runtime& runtime, const Log& log, Task<int> main) {
  Scope scope(runtime);
  scope.spawn(tell_of_stalls(runtime, log));
  co_return co_await std::move(main);
}

}  // namespace

Task<void> tell_of_stalls(Loop& loop, const Log& log) {
  while (true) {
    const Instant due = loop.now() + kStallLook;
    co_await Sleep(loop, due);
    const Duration late = loop.now() - due;
    if (late < kStallMin) continue;
    log.warning("the loop stood still: others may have taken this process for dead", {{"for", late}});
  }
}

DaemonWorld::DaemonWorld(const std::string& name)
    : environment(os::read_environment()),
      machine(os::read_machine_facts(environment)),
      program(std::filesystem::read_symlink("/proc/self/exe").string()),
      version(RUBATO_VERSION),
      processes(runtime),
      network(runtime),
      signals(runtime, {SIGTERM, SIGINT}),
      random{os::entropy()},
      world{runtime, network, processes, files, console, random, machine},
      log([this](LogLevel, std::string_view line) { console.err(std::string(line) + "\n"); },
          [this] { return runtime.wall(); }) {
  os::allow_many_open_files();
  log = log.with({{"who", name}});
}

int DaemonWorld::run(Task<int> main) {
  try {
    Task<int> watched = run_watched(runtime, log, std::move(main));
    return runtime.run(std::move(watched));
  } catch (const Error& error) {
    log.error(error.message, {{"where", error.where}, {"fix", error.hint}});
    return exit_code(error);
  }
}

}  // namespace rubato::cli

#include "cli/daemon_world.h"

#include <signal.h>

#include <filesystem>

#include "build_stamp.h"
#include "os/secret.h"

namespace rubato::cli {

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
  log = log.with({{"who", name}});
}

int DaemonWorld::run(Task<int> main) {
  try {
    return runtime.run(std::move(main));
  } catch (const Error& error) {
    log.error(error.message, {{"where", error.where}, {"fix", error.hint}});
    return exit_code(error);
  }
}

}  // namespace rubato::cli

#include "daemon/daemon_world.h"

#include <signal.h>

#include "build_stamp.h"
#include "os/exec.h"
#include "os/secret.h"

namespace rubato::cli {

namespace {

Task<int> run_watched(os::Runtime& runtime, const Log& log, Task<int> main) {
  Scope scope(runtime);
  scope.spawn(report_stalls(runtime, log));
  co_return co_await std::move(main);
}

}  // namespace

Task<void> report_stalls(Loop& loop, const Log& log) {
  while (true) {
    const Instant due = loop.now() + kStallLook;
    co_await Sleep(loop, due);
    const Duration late = loop.now() - due;
    if (late < kStallMin) continue;
    log.warning("the loop stood still: others may have taken this process for dead", {{"for", late}});
  }
}

Task<void> beside(os::BulkWork& bulk, std::function<void()> work) { return bulk.run(std::move(work)); }

DaemonWorld::DaemonWorld(const std::string& name)
    : environment(os::read_environment()),
      machine(os::read_machine_facts(environment)),
      program(os::own_program()),
      version(RUBATO_VERSION),
      processes(runtime),
      network(runtime),
      signals(runtime, {SIGTERM, SIGINT}),
      random{os::entropy()},
      world{runtime, network, processes, files, console, random, machine},
      log([this](LogLevel, std::string_view line) { console.err(std::string(line) + "\n"); },
          [this] { return runtime.wall(); }),
      bulk(runtime),
      watch_(os::TurnWatchSettings::from(environment)) {
  os::allow_many_open_files();
  log = log.with({{"who", name}});
  watch_.report = [this](const os::LongTurn& turn) { report_long_turn(turn); };
  watch_.start();
}

DaemonWorld::TurnMeasure::TurnMeasure(DaemonWorld& daemon, Metrics& metrics) : daemon_(daemon) {
  Histogram& turns = metrics.histogram("rubato_loop_turn_seconds",
                                       "CPU time of the head's loop from one look at the network to the next.",
                                       {0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1});
  daemon_.watch_.observe = [&turns](Duration cpu) { turns.observe(to_seconds(cpu)); };
}

void DaemonWorld::report_long_turn(const os::LongTurn& turn) {
  ++long_turns_;
  // In a test every one counts: it has to say what ran.
  if (turn.stack.empty() && warned_ != Instant{} && runtime.now() < warned_ + kLongTurnsTold) return;
  warned_ = runtime.now();
  log.warning("a turn of the loop took long", {{"cpu", turn.cpu}, {"turns", long_turns_}, {"stack", turn.stack}});
  long_turns_ = 0;
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

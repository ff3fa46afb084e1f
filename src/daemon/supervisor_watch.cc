#include "daemon/supervisor_watch.h"

#include <memory>

#include "client/supervision.h"
#include "os/daemons.h"

namespace rubato::cli {
namespace {

constexpr Duration kLookEvery = 1s;

struct SupervisorState {
  head::HeadSupervision seen;
  bool replaced = false;
  std::string problem;
};

// Not on the loop: it waits for the disk, and for a process that starts.
SupervisorState check_supervisor(const std::string& dir, const DaemonSpec& spec) {
  os::RealFiles files;
  os::RealDaemons daemons;
  SupervisorState state;
  const std::string keeper = read_wanted(files, dir);
  if (keeper.empty()) return state;
  std::optional<int> pid = daemons.running(spec.folder);
  if (!pid && keeper == kKeptByRubato) {
    try {
      daemons.start(spec);
      state.replaced = true;
      pid = daemons.running(spec.folder);
    } catch (const Error& error) {
      state.problem = error.message;
    }
  }
  const os::Supervision told = read_supervision(files, dir);
  state.seen = {.kind = keeper, .pid = pid.value_or(0), .restarts = told.restarts, .last_end = told.last_end};
  return state;
}

}  // namespace

DaemonSpec supervisor_spec(const std::string& program, const std::string& dir, const os::EnvironmentMap& env) {
  DaemonSpec spec;
  spec.folder = supervisor_folder(dir);
  spec.argv = {program, "supervise", "--dir", dir};
  for (const auto& [name, value] : env) spec.env.push_back(name + "=" + value);
  return spec;
}

SupervisorWatch::SupervisorWatch(DaemonWorld& daemon, std::string dir) : daemon_(daemon), dir_(std::move(dir)) {
  const std::string keeper = read_wanted(daemon_.files, dir_);
  if (!keeper.empty()) seen_.kind = keeper;
}

Task<void> SupervisorWatch::keep() {
  const DaemonSpec spec = supervisor_spec(daemon_.program, dir_, daemon_.environment);
  while (true) {
    const auto found = std::make_shared<SupervisorState>();  // the work may outlive this coroutine
    std::function<void()> work = [found, dir = dir_, spec] { *found = check_supervisor(dir, spec); };
    Task<void> looked = beside(daemon_.bulk, std::move(work));
    co_await std::move(looked);
    seen_ = found->seen;
    if (found->replaced) daemon_.log.warning("the supervisor of this head was gone; another one was started");
    if (!found->problem.empty()) {
      daemon_.log.warning("this head has no supervisor, and none can be started", {{"error", found->problem}});
    }
    co_await Sleep(daemon_.runtime, daemon_.runtime.now() + kLookEvery);
  }
}

}  // namespace rubato::cli

#include "daemon/run_command.h"

#include <fmt/format.h>

#include "agent/error_file.h"
#include "agent/launcher.h"
#include "core/text.h"
#include "daemon/fetched_program.h"
#include "daemon/training_library.h"
#include "os/cpu_set.h"
#include "os/etcd_store.h"
#include "os/exec.h"
#include "os/files.h"
#include "os/machine.h"
#include "os/network.h"
#include "os/numa.h"
#include "os/plan_board.h"
#include "os/processes.h"
#include "os/python.h"
#include "os/secret.h"
#include "os/signals.h"
#include "os/timer_host.h"
#include "os/writer_thread.h"

namespace rubato::cli {

namespace {

std::unique_ptr<Store> make_store(const LaunchSpec& spec, Network& network, Clock& clock) {
  if (spec.backend != Backend::kEtcd) return nullptr;
  std::vector<Endpoint> endpoints;
  for (const std::string_view text : split(spec.endpoint, ',')) endpoints.push_back(parse_endpoint(text, 2379));
  TlsFiles tls;
  tls.use_tls = spec.etcd.https;
  tls.ca = spec.etcd.ca;
  tls.certificate = spec.etcd.certificate;
  tls.key = spec.etcd.key;
  return std::make_unique<os::EtcdStore>(network, clock, std::move(endpoints), std::move(tls));
}

std::pair<int, int> major_and_minor(std::string_view version) {
  const auto parts = split(version, '.');
  const int major = parts.empty() ? 0 : std::atoi(std::string(parts[0]).c_str());
  const int minor = parts.size() < 2 ? 0 : std::atoi(std::string(parts[1]).c_str());
  return {major, minor};
}

// torchrun finds out when it starts a worker, and ends with 1.
std::string find_python(const LaunchSpec& spec, const os::EnvironmentMap& environment) {
  try {
    return os::find_python(spec.python, environment);
  } catch (Error& error) {
    error.code = ErrorCode::kFailed;
    throw;
  }
}

// Without a place for it a script goes without, as under torchrun: most never ask for it. One that does is told why.
void add_library(Files& files, const LaunchSpec& spec, const std::string& python, agent::Environment& workers,
                 Console& console) {
  const std::string cache = library_cache(workers);
  if (cache.empty()) {
    if (os::has_package("rubato", python, workers)) return;
    console.err(
        "rubato: warning: workers cannot import the training library: neither HOME nor XDG_CACHE_HOME names a folder "
        "for it\n");
    return;
  }
  try {
    files.make_folders(cache);
    add_training_library(files, cache, python, workers);
    if (spec.our_adaptdl) agent::prefer_our_adaptdl(workers);
  } catch (const Error& error) {
    console.err(fmt::format("rubato: warning: workers cannot import the training library: {}\n", error.message));
  }
}

// How long a stalled terminal is waited for with the last error.
constexpr Duration kLastWordMax = 500ms;

Task<int> launch_agent(agent::LaunchContext context, int& signal) {
  World& world = context.world;
  Outlets& outlets = *context.outlets;
  const os::EnvironmentMap environment = context.environment;
  int code = 0;
  try {
    const agent::Outcome outcome = co_await agent::launch(std::move(context));
    signal = outcome.signal;
    co_return outcome.exit_code;
  } catch (const Error& error) {
    // Here, and not by our caller: his write would wait for a reader.
    world.console.err(render(error));
    write_launcher_error(error, environment);
    code = 1;  // whatever it is, torchrun's launcher ends with 1 once its flags are read
  }
  co_await outlets.err().drained(0, world.clock.now() + kLastWordMax);
  co_return code;
}

// What of World and beyond it `rubato run` needs of this machine, in the order in which it must go.
struct Machine {
  explicit Machine(const LaunchSpec& spec) : signals(runtime, os::without_ignored_hangup(spec.signals)) {
    // As under torchrun: a worker may ask its person (input(), breakpoint()), and what it leaves running goes on.
    if (spec.prewarm.empty()) processes.share_terminal();
    processes.leave_daemons();
  }
  os::Runtime runtime;
  os::LoopOutlets outlets{runtime};
  os::LoopConsole console{outlets};
  os::RealProcesses processes{runtime};
  os::RealTimerHost timers{runtime, processes};
  os::RealNetwork network{runtime};
  os::RealFiles files;
  os::RealInPlaceHost in_place{runtime, files};
  os::Signals signals;
};

}  // namespace

void write_launcher_error(const Error& error, const std::map<std::string, std::string>& environment) {
  const auto path = environment.find("TORCHELASTIC_ERROR_FILE");
  if (path == environment.end() || path->second.empty()) return;
  os::RealFiles files;
  try {
    files.write_atomically(path->second, agent::launcher_document(error.message, render(error), os::wall_now()));
  } catch (const Error& why) {
    os::RealConsole().err(fmt::format("rubato: cannot write TORCHELASTIC_ERROR_FILE: {}\n", why.message));
  }
}

bool is_old_torch(const std::optional<std::string>& version) {
  return !version || major_and_minor(*version) < std::pair(2, 2);
}

std::string local_rank_flag(const std::optional<std::string>& version) {
  return version && major_and_minor(*version) < std::pair(2, 0) ? "--local_rank" : "--local-rank";
}

namespace {

int run_here(LaunchSpec spec, const os::EnvironmentMap& environment) {
  os::allow_many_open_files();
  const MachineFacts machine = os::read_machine_facts(environment);
  if (spec.numa_binding) {
    spec.cpus = os::cpus_near_gpus(*spec.numa_binding, spec.nproc, environment, os::allowed_cpus());
  }
  int code = 0;
  int signal = 0;
  {
    const FetchedProgram fetched(spec, environment);
    Machine here(spec);
    Random random(os::entropy());
    World world{here.runtime, here.network, here.processes, here.files, here.console, random, machine};

    if (spec.run_id.empty()) spec.run_id = random.hex(12);
    std::string python;
    std::optional<std::string> torch;
    if (spec.kind != ProgramKind::kBinary) {
      python = find_python(spec, environment);
      torch = os::installed_torch(python, environment);
    }
    if (!spec.local_rank_flag.empty()) spec.local_rank_flag = local_rank_flag(torch);
    agent::LaunchContext context{world, spec};
    context.key.secret = spec.key_file.empty() ? spec.run_id : os::read_secret(spec.key_file);
    context.environment = environment;
    if (!python.empty()) add_library(here.files, spec, python, context.environment, here.console);
    context.python = python;
    context.old_torch = !python.empty() && is_old_torch(torch);
    const std::unique_ptr<Store> store = make_store(spec, here.network, here.runtime);
    context.store = store.get();
    context.signals = &here.signals.channel();
    context.outlets = &here.outlets;
    context.timers = &here.timers;
    context.in_place = &here.in_place;
    code = here.runtime.run(launch_agent(std::move(context), signal));
  }
  // Everything is closed and reaped: now the caller may see how it ended.
  if (signal != 0) os::die_by_signal(signal);
  return code;
}

}  // namespace

int run_command(const LaunchSpec& wanted) {
  const os::EnvironmentMap environment = os::read_environment();
  try {
    return run_here(wanted, environment);
  } catch (const Error& error) {
    write_launcher_error(error, environment);
    throw;
  }
}

}  // namespace rubato::cli

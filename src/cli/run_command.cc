#include "cli/run_command.h"

#include "agent/launcher.h"
#include "core/text.h"
#include "os/etcd_store.h"
#include "os/exec.h"
#include "os/files.h"
#include "os/machine.h"
#include "os/network.h"
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

// How long a stalled terminal is waited for with the last error.
constexpr Duration kLastWordMax = 500ms;

Task<int> launch_agent(agent::LaunchContext context, int& signal) {
  World& world = context.world;
  Outlets& outlets = *context.outlets;
  int code = 0;
  try {
    const agent::Outcome outcome = co_await agent::launch(std::move(context));
    signal = outcome.signal;
    co_return outcome.exit_code;
  } catch (const Error& error) {
    // Here, and not by our caller: his write would wait for a reader.
    world.console.err(render(error));
    code = 1;  // whatever it is, torchrun's launcher ends with 1 once its flags are read
  }
  co_await outlets.err().drained(0, world.clock.now() + kLastWordMax);
  co_return code;
}

// What of World and beyond it `rubato run` needs of this machine, in the order in which it must go.
struct Machine {
  explicit Machine(const LaunchSpec& spec) : signals(runtime, spec.signals) {
    // As under torchrun: one worker may ask its person (input(), breakpoint()), and what a worker leaves running goes
    // on.
    if (spec.nproc == 1 && spec.prewarm.empty()) processes.share_terminal();
    processes.leave_daemons();
  }
  os::Runtime runtime;
  os::LoopOutlets outlets{runtime};
  os::LoopConsole console{outlets};
  os::RealProcesses processes{runtime};
  os::RealTimerHost timers{runtime, processes};
  os::RealNetwork network{runtime};
  os::RealFiles files;
  os::Signals signals;
};

}  // namespace

bool is_old_torch(const std::optional<std::string>& version) {
  if (!version) return true;
  const auto parts = split(*version, '.');
  const int major = parts.empty() ? 0 : std::atoi(std::string(parts[0]).c_str());
  const int minor = parts.size() < 2 ? 0 : std::atoi(std::string(parts[1]).c_str());
  return major < 2 || (major == 2 && minor < 2);
}

int run_command(const LaunchSpec& wanted) {
  LaunchSpec spec = wanted;
  os::allow_many_open_files();
  const os::EnvironmentMap environment = os::read_environment();
  const MachineFacts machine = os::read_machine_facts(environment);
  int code = 0;
  int signal = 0;
  {
    Machine here(spec);
    Random random(os::entropy());
    World world{here.runtime, here.network, here.processes, here.files, here.console, random, machine};

    if (spec.run_id.empty()) spec.run_id = random.hex(12);
    agent::LaunchContext context{world, spec};
    context.key.secret = spec.key_file.empty() ? spec.run_id : os::read_secret(spec.key_file);
    context.environment = environment;
    if (spec.kind != ProgramKind::kBinary) {
      context.python = os::find_python(spec.python, environment);
      context.old_torch = is_old_torch(os::installed_torch(context.python, environment));
    }
    const std::unique_ptr<Store> store = make_store(spec, here.network, here.runtime);
    context.store = store.get();
    context.signals = &here.signals.channel();
    context.outlets = &here.outlets;
    context.timers = &here.timers;
    code = here.runtime.run(launch_agent(std::move(context), signal));
  }
  // Everything is closed and reaped: now the caller may see how it ended.
  if (signal != 0) os::die_by_signal(signal);
  return code;
}

}  // namespace rubato::cli

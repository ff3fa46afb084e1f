#include "cli/run_flags.h"

#include <fmt/format.h>

#include <csignal>
#include <map>

#include "cli/commands.h"
#include "cli/run_rendezvous.h"
#include "core/text.h"
#include "daemon/object_store.h"
#include "daemon/training_library.h"
#include "terminal/values.h"

namespace rubato::cli {
namespace {

constexpr int kNodesMax = 100'000;
constexpr int kWorkersMax = 4096;

void read_local_rank_argument(const ParsedCommand& parsed, LaunchSpec& spec) {
  if (parsed.has("use-env")) return;
  if (spec.kind == ProgramKind::kBinary) {
    throw Error(ErrorCode::kUsage, "--no-python needs --use-env here", "",
                "'rubato launch' hands --local-rank to Python scripts; 'rubato run' to none");
  }
  spec.local_rank_flag = "--local-rank";
}

void read_program(const ParsedCommand& parsed, LaunchSpec& spec) {
  const Given* module = parsed.find("module");
  const Given* no_python = parsed.find("no-python");
  if (parsed.has("run-path")) {
    spec.kind = ProgramKind::kRunPath;
  } else if (module != nullptr && no_python != nullptr) {
    throw Error(ErrorCode::kUsage, fmt::format("{} and {} exclude each other", no_python->origin, module->origin), "",
                "a module needs Python: drop one of the two");
  } else if (module != nullptr) {
    spec.kind = ProgramKind::kModule;
  } else if (no_python != nullptr) {
    spec.kind = ProgramKind::kBinary;
  }
  if (parsed.positionals.empty() || parsed.positionals.front().empty()) {
    throw Error(ErrorCode::kUsage, "no program to run was given", "",
                "write rubato run [flags] train.py [args]; see 'rubato run --help'");
  }
  spec.program = parsed.positionals.front();
  spec.args.assign(parsed.positionals.begin() + 1, parsed.positionals.end());
  spec.python = parsed.value("python");
  if (const Given* given = parsed.find("prewarm")) {
    if (spec.kind == ProgramKind::kBinary) {
      throw Error(ErrorCode::kUsage, fmt::format("{} needs Python, but --no-python is given", given->origin), "",
                  fmt::format("drop {}", given->origin));
    }
    spec.prewarm = list_value(*given);
  }
}

void read_nodes(const ParsedCommand& parsed, LaunchSpec& spec) {
  const Given* given = parsed.find("nnodes");
  if (given == nullptr) return;
  const auto parts = split(given->values.back(), ':');
  const std::string form = "write --nnodes 4, or 2:4 for an elastic group, or 2:8:2 for one of multiples of 2 only";
  if (parts.size() > 3) throw bad_value(*given, "expected N, MIN:MAX or MIN:MAX:STEP", form);
  const std::optional<int> low = parse_int(trim(parts.front()));
  const std::optional<int> high = parse_int(trim(parts.size() > 1 ? parts[1] : parts.front()));
  const std::optional<int> step = parts.size() > 2 ? parse_int(trim(parts[2])) : 1;
  if (!low) throw bad_value(*given, fmt::format("'{}' is not a number of nodes", parts.front()), form);
  if (!high) throw bad_value(*given, fmt::format("'{}' is not a number of nodes", parts[1]), form);
  if (*low < 1) throw bad_value(*given, "at least one node is needed", form);
  if (*high < *low) throw bad_value(*given, fmt::format("the maximum {} is below the minimum {}", *high, *low), form);
  if (*high > kNodesMax) throw bad_value(*given, fmt::format("more than {} nodes", kNodesMax), form);
  if (!step || *step < 1) throw bad_value(*given, fmt::format("'{}' is no step", parts.back()), form);
  for (const int bound : {*low, *high}) {
    if (bound % *step != 0)
      throw bad_value(*given, fmt::format("{} is not a multiple of the step {}", bound, *step), form);
  }
  spec.min_nodes = *low;
  spec.max_nodes = *high;
  spec.nodes_step = *step;
}

int count_workers(const Given& given, const MachineFacts& machine) {
  const std::string_view text = trim(given.values.back());
  if (text == "cpu") return machine.cpus;
  if (text == "auto") return machine.gpus > 0 ? machine.gpus : machine.cpus;
  if (text == "gpu") {
    if (machine.gpus > 0) return machine.gpus;
    throw bad_value(given, "this machine shows no GPU",
                    "GPUs are counted in /dev/nvidia[0-9]* (else /proc/driver/nvidia/gpus), less what "
                    "CUDA_VISIBLE_DEVICES hides: check the driver with 'rubato doctor', or use auto or cpu");
  }
  if (text == "xpu") throw bad_value(given, "XPUs are not counted here", "write how many workers: --nproc-per-node N");
  const std::optional<int> number = parse_int(text);
  if (!number) throw bad_value(given, "expected a number, auto, gpu or cpu");
  if (*number < 1) throw bad_value(given, "at least one worker is needed");
  if (*number > kWorkersMax) throw bad_value(given, fmt::format("more than {} workers on one machine", kWorkersMax));
  return *number;
}

constexpr std::string_view kStartMethods = "spawn, fork or forkserver";
constexpr std::string_view kNumaModes = "node, socket, exclusive or core-complex";

bool is_one_of(std::string_view word, std::string_view choices) {
  for (const std::string_view part : split(choices, ' ')) {
    if (strip_suffix(part, ",").value_or(part) == word && word != "or") return true;
  }
  return false;
}

NumaBinding numa_value(const Given& given) {
  const std::string& mode = given.values.back();
  if (mode == "node") return NumaBinding::kNode;
  if (mode == "socket") return NumaBinding::kSocket;
  if (mode == "exclusive") return NumaBinding::kExclusive;
  if (mode == "core-complex") return NumaBinding::kCoreComplex;
  throw bad_value(given, fmt::format("expected {}", kNumaModes));
}

void read_group(const ParsedCommand& parsed, const MachineFacts& machine, LaunchSpec& spec) {
  read_nodes(parsed, spec);
  if (const Given* given = parsed.find("nproc-per-node")) spec.nproc = count_workers(*given, machine);
  spec.role = parsed.value("role", "default");
}

// As torchrun: the worker's GPU must be among those that the user left visible.
void read_devices(const ParsedCommand& parsed, const Environment& env, LaunchSpec& spec) {
  if (const Given* given = parsed.find("numa-binding")) spec.numa_binding = numa_value(*given);
  const Given* given = parsed.find("virtual-local-rank");
  if (given == nullptr) return;
  spec.virtual_local_rank = true;
  const auto visible = env.find("CUDA_VISIBLE_DEVICES");
  if (visible == env.end()) return;
  const size_t devices = split(visible->second, ',').size();
  if (static_cast<size_t>(spec.nproc) <= devices) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: {} workers, but CUDA_VISIBLE_DEVICES={} has {}", given->origin, spec.nproc,
                          visible->second, devices),
              "", "start no more workers than devices");
}

// A name that is none is noted only, as torchrun does: the list may be for another system.
void read_signals(const Given& given, LaunchSpec& spec) {
  constexpr int kSignalsMax = 64;
  std::map<std::string, int> numbers;
  std::vector<std::string> names;
  for (int signal = 1; signal <= kSignalsMax; ++signal) {
    names.push_back(signal_name(signal));
    numbers.emplace(names.back(), signal);
  }
  spec.signals.clear();
  for (const std::string& name : list_value(given)) {
    const auto found = numbers.find(name);
    if (found == numbers.end()) {
      const auto near = nearest(name, names);
      spec.notes.push_back(fmt::format("{}: there is no signal '{}'{}", given.origin, name,
                                       near ? fmt::format("; did you mean {}?", *near) : ""));
      continue;
    }
    const int signal = found->second;
    if (signal == SIGKILL || signal == SIGSTOP) throw bad_value(given, fmt::format("{} cannot be caught", name));
    if (signal == SIGCHLD) throw bad_value(given, "SIGCHLD is how the system tells of a worker's end");
    spec.signals.push_back(signal);
  }
}

// Ours, then torchrun's flag, then torchrun's variable, which has no flag's form.
Duration read_grace(const ParsedCommand& parsed, const Environment& env) {
  constexpr int kSecondsMax = 1'000'000'000;
  if (const Given* given = parsed.find("grace")) return duration_value(*given, 0s);
  if (const Given* given = parsed.find("shutdown-timeout"))
    return std::chrono::seconds(int_value(*given, 0, kSecondsMax));
  const auto variable = env.find("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  if (variable == env.end() || variable->second.empty()) return LaunchSpec{}.grace;
  const Given given{.values = {variable->second}, .origin = variable->first, .joint = '='};
  return std::chrono::seconds(int_value(given, 0, kSecondsMax));
}

void read_faults(const ParsedCommand& parsed, const Environment& env, LaunchSpec& spec) {
  if (const Given* given = parsed.find("max-restarts")) spec.max_restarts = int_value(*given, 0, 1'000'000'000);
  if (const Given* given = parsed.find("spares")) spec.spares = int_value(*given, 0, 100'000);
  if (spec.spares > 0 && spec.nodes_step > 1)
    spec.notes.push_back("--spares has no effect where sizes have steps: workers start again when the group changes");
  spec.in_place = !parsed.has("always-restart");
  if (const Given* given = parsed.find("adaptdl")) spec.our_adaptdl = wants_our_adaptdl(*given);
  spec.grace = read_grace(parsed, env);
  spec.notice_file = parsed.value("notice");
  spec.signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  if (const Given* given = parsed.find("signals-to-handle")) read_signals(*given, spec);
}

// torchrun's two forms: one digit for all, or "RANK:DIGIT,..." for each.
StreamChoice read_streams(const Given& given) {
  const auto digit = [&](std::string_view text) {
    const std::optional<int> value = parse_int(text);
    if (value && *value >= 0 && *value <= 3) return *value;
    throw bad_value(given, fmt::format("'{}' is none of 0 (none), 1 (stdout), 2 (stderr), 3 (both)", text),
                    "write 3 for all workers, or 0:1,1:2 per local rank");
  };
  StreamChoice choice;
  if (given.values.back().find(':') == std::string::npos) {
    choice.all = digit(given.values.back());
    return choice;
  }
  for (const std::string& part : list_value(given)) {
    const auto pair = split_once(part, ':');
    const std::optional<int> rank = pair ? parse_int(pair->first) : std::nullopt;
    if (!rank || *rank < 0) {
      throw bad_value(given, fmt::format("'{}' is not RANK:DIGIT", part), "write 0:1,1:2 per local rank");
    }
    choice.by_local_rank[*rank] = digit(pair->second);
  }
  return choice;
}

// "apple,orange": two words. A doubled comma is one that belongs to a word.
std::vector<std::string> filter_words(const Given* given) {
  std::vector<std::string> arguments;
  if (given == nullptr || given->values.back().empty()) return arguments;
  const std::string& text = given->values.back();
  arguments.emplace_back();
  for (size_t i = 0; i < text.size(); ++i) {
    const bool comma = text[i] == ',';
    if (comma && text.substr(i + 1, 1) != ",") {
      arguments.emplace_back();
      continue;
    }
    if (comma) ++i;
    arguments.back() += text[i];
  }
  std::erase(arguments, "");  // it would be in every line
  return arguments;
}

void read_output(const ParsedCommand& parsed, LaunchSpec& spec) {
  spec.log_dir = parsed.value("log-dir");
  spec.events_file = parsed.value("events");
  spec.quiet = parsed.has("quiet");
  if (const Given* given = parsed.find("redirects")) spec.redirects = read_streams(*given);
  if (const Given* given = parsed.find("tee")) spec.tee = read_streams(*given);
  spec.stdout_filters = filter_words(parsed.find("duplicate-stdout-filters"));
  spec.stderr_filters = filter_words(parsed.find("duplicate-stderr-filters"));
  if (!parsed.has("tee") && (!spec.stdout_filters.empty() || !spec.stderr_filters.empty())) {
    spec.notes.emplace_back("filters for duplicates have no effect without --tee");
  }
  const Given* filter = parsed.find("local-ranks-filter");
  if (filter == nullptr || filter->values.back().empty()) return;
  spec.local_ranks_filter.emplace();
  for (const std::string& part : list_value(*filter)) {
    const std::optional<int> rank = parse_int(part);
    if (!rank || *rank < 0) throw bad_value(*filter, fmt::format("'{}' is not a local rank", part), "write 0,1");
    spec.local_ranks_filter->push_back(*rank);
  }
}

// Flags that only say how torchrun itself works inside.
void note_the_meaningless(const ParsedCommand& parsed, LaunchSpec& spec) {
  if (const Given* given = parsed.find("monitor-interval")) {
    duration_value(*given, 0s);
    spec.notes.push_back(fmt::format("{} has no effect: a worker's end is seen at once", given->origin));
  }
  if (const Given* given = parsed.find("exit-barrier-timeout")) {
    duration_value(*given, 0s);
    spec.notes.push_back(
        fmt::format("{} has no effect: agents wait for each other until all workers have ended", given->origin));
  }
  if (const Given* given = parsed.find("start-method")) {
    if (!is_one_of(given->values.back(), kStartMethods)) {
      throw bad_value(*given, fmt::format("expected {}", kStartMethods));
    }
    spec.notes.push_back(fmt::format("{} has no effect: every worker is a program of its own", given->origin));
  }
  if (const Given* given = parsed.find("event-log-handler")) {
    spec.notes.push_back(fmt::format("{} has no effect: use --events FILE", given->origin));
  }
}

// Better an error than a run that differs from what was asked.
void refuse_what_we_lack(const ParsedCommand& parsed) {
  const Given* specs = parsed.find("logs-specs");
  if (specs != nullptr && specs->values.back() != "default") {
    throw bad_value(*specs, "Python classes for logs are not supported", "use --log-dir, --redirects and --tee");
  }
}

}  // namespace

LaunchSpec launch_spec(const ParsedCommand& parsed, const Environment& env, const MachineFacts& machine,
                       RunVerb verb) {
  LaunchSpec spec;
  refuse_what_we_lack(parsed);
  read_group(parsed, machine, spec);
  read_devices(parsed, env, spec);
  read_rendezvous(parsed, spec);
  read_faults(parsed, env, spec);
  read_output(parsed, spec);
  note_the_meaningless(parsed, spec);
  read_program(parsed, spec);
  if (verb == RunVerb::kLaunch) {
    read_local_rank_argument(parsed, spec);
  } else if (const Given* given = parsed.find("use-env")) {
    spec.notes.push_back(fmt::format("{} has no effect: the rank is always in the environment", given->origin));
  }
  return spec;
}

LaunchSpec parse_run(const std::vector<std::string>& args, const Environment& env, const MachineFacts& machine) {
  return launch_spec(parse_command(run_table(), args, env), env, machine);
}

bool is_refused_by_argparse(const ParsedCommand& parsed) {
  if (parsed.positionals.empty()) return true;
  for (const char* name : {"max-restarts", "node-rank", "master-port", "shutdown-timeout"}) {
    const Given* given = parsed.find(name);
    if (given != nullptr && !parse_int(trim(given->values.back()))) return true;
  }
  for (const char* name : {"monitor-interval", "exit-barrier-timeout"}) {
    const Given* given = parsed.find(name);
    if (given != nullptr && !parse_duration(given->values.back())) return true;
  }
  const Given* method = parsed.find("start-method");
  if (method != nullptr && !is_one_of(method->values.back(), kStartMethods)) return true;
  const Given* binding = parsed.find("numa-binding");
  return binding != nullptr && !is_one_of(binding->values.back(), kNumaModes);
}

void check_script(const LaunchSpec& spec, os::ScriptKind found) {
  if (spec.kind == ProgramKind::kModule || spec.kind == ProgramKind::kBinary) return;
  if (spec.kind == ProgramKind::kScript && spec.program == "-") return;  // Python reads its standard input
  if (is_object_address(spec.program)) return;                           // it is fetched first
  switch (found) {
    case os::ScriptKind::kFile:
    case os::ScriptKind::kRunnableFolder:
      return;
    case os::ScriptKind::kMissing:
      throw Error(ErrorCode::kUsage, fmt::format("there is no script '{}'", spec.program), "",
                  "check the path; use -m for a module, --no-python for another program");
    case os::ScriptKind::kFolder:
      throw Error(ErrorCode::kUsage, fmt::format("'{}' is a folder without __main__.py, not a script", spec.program),
                  "", "name the script in it");
  }
}

}  // namespace rubato::cli

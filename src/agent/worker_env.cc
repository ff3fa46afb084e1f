#include "agent/worker_env.h"

#include <fmt/format.h>

#include <csignal>

#include "agent/template.h"
#include "core/text.h"
#include "world/processes.h"

namespace rubato::agent {

bool limits_threads(const Environment& inherited, const LaunchSpec& spec) {
  return spec.nproc > 1 && !inherited.contains("OMP_NUM_THREADS");
}

Environment group_environment(const Environment& inherited, const LaunchSpec& spec, bool old_torch) {
  Environment env = inherited;
  if (limits_threads(inherited, spec)) env["OMP_NUM_THREADS"] = "1";
  env["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(spec.max_restarts);
  env["TORCHELASTIC_RUN_ID"] = spec.run_id;
  env["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  env["ROLE_NAME"] = spec.role;
  // PyTorch's own workers take these when nothing is said.
  static const std::vector<int> usual = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  if (!spec.signals.empty() && spec.signals != usual) {
    std::vector<std::string> names;
    for (const int signal : spec.signals) names.push_back(signal_name(signal));
    env["TORCHELASTIC_SIGNALS_TO_HANDLE"] = join(names, ",");
  }
  env.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (old_torch) env.emplace("NCCL_ASYNC_ERROR_HANDLING", "1");
  return env;
}

namespace {
// The one device of a worker, out of those that the user left visible.
std::string own_device(const Environment& group, int local_rank) {
  const auto visible = group.find("CUDA_VISIBLE_DEVICES");
  if (visible == group.end()) return std::to_string(local_rank);
  const auto devices = split(visible->second, ',');
  const auto index = static_cast<size_t>(local_rank);
  return index < devices.size() ? std::string(trim(devices[index])) : std::to_string(local_rank);
}
}  // namespace

void prefer_our_adaptdl(Environment& workers) {
  const auto library = workers.find(std::string(kLibraryVariable));
  if (library == workers.end()) return;
  std::string& path = workers["PYTHONPATH"];
  path = library->second + std::string(kAdaptdlNames) + (path.empty() ? "" : ":") + path;
  workers[std::string(kAdaptdlVariable)] = kOurAdaptdl;  // else its module gives way to the original
}

Environment adaptdl_variables(const Environment& group, const LaunchSpec& spec, const WorkerPlace& place) {
  if (group.contains("ADAPTDL_SUPERVISOR_URL")) return {};
  const elastic::Assignment& a = place.assignment;
  // It names checkpoints by the number of restarts and takes the highest: each round needs its own.
  const Generation before = place.generation > 0 ? place.generation - 1 : 0;
  return {{"ADAPTDL_JOB_ID", spec.run_id},
          {"ADAPTDL_MASTER_ADDR", place.master_addr},
          {"ADAPTDL_MASTER_PORT", std::to_string(place.master_port)},
          {"ADAPTDL_REPLICA_RANK", std::to_string(a.first_rank + place.local_rank)},
          {"ADAPTDL_NUM_REPLICAS", std::to_string(a.world_size)},
          {"ADAPTDL_NUM_NODES", std::to_string(a.group_world_size)},
          {"ADAPTDL_NUM_RESTARTS", std::to_string(before)}};
}

std::vector<std::string> worker_environment(const Environment& group, const LaunchSpec& spec,
                                            const WorkerPlace& place) {
  Environment env = group;
  const elastic::Assignment& a = place.assignment;
  env["LOCAL_RANK"] = std::to_string(place.local_rank);
  env["RANK"] = std::to_string(a.first_rank + place.local_rank);
  env["GROUP_RANK"] = std::to_string(a.group_rank);
  env["ROLE_RANK"] = std::to_string(a.first_role_rank + place.local_rank);
  env["LOCAL_WORLD_SIZE"] = std::to_string(spec.nproc);
  env["WORLD_SIZE"] = std::to_string(a.world_size);
  env["GROUP_WORLD_SIZE"] = std::to_string(a.group_world_size);
  env["ROLE_WORLD_SIZE"] = std::to_string(a.role_world_size);
  env["MASTER_ADDR"] = place.master_addr;
  env["MASTER_PORT"] = std::to_string(place.master_port);
  env["TORCHELASTIC_RESTART_COUNT"] = std::to_string(place.restarts_used);
  env["TORCHELASTIC_ERROR_FILE"] = place.error_file;
  env["RUBATO_GENERATION"] = std::to_string(place.generation);
  if (spec.virtual_local_rank) {
    env["LOCAL_RANK"] = "0";
    env["CUDA_VISIBLE_DEVICES"] = own_device(group, place.local_rank);
  }
  std::vector<std::string> out;
  out.reserve(env.size());
  for (const auto& [name, value] : env) out.push_back(name + "=" + value);
  return out;
}

namespace {
// What torchrun --run-path does: the script runs through runpy, with its own name in sys.argv; an exception that it
// does not catch is recorded as if its main were decorated with torch's `record`. The prewarmed interpreter
// (src/python/zygote.py) does the same.
constexpr const char* kRunPath = R"(import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name='__main__')
except Exception as error:
    import json, os, time, traceback
    details = {'py_callstack': traceback.format_exc(), 'timestamp': str(int(time.time()))}
    message = {'message': type(error).__name__ + ': ' + str(error), 'extraInfo': details}
    try:
        with open(os.environ.get('TORCHELASTIC_ERROR_FILE') or os.devnull, 'w') as file:
            json.dump({'message': message}, file)
    except OSError:
        pass
    raise
)";
}  // namespace

std::vector<std::string> worker_arguments(const LaunchSpec& spec, const std::string& python, int local_rank) {
  std::vector<std::string> argv;
  switch (spec.kind) {
    case ProgramKind::kScript:
      argv = {python, "-u", spec.program};
      break;
    case ProgramKind::kModule:
      argv = {python, "-u", "-m", spec.program};
      break;
    case ProgramKind::kRunPath:
      argv = {python, "-u", "-c", kRunPath, spec.program};
      break;
    case ProgramKind::kBinary:
      argv = {spec.program};
      break;
  }
  if (!spec.local_rank_flag.empty()) argv.push_back(fmt::format("{}={}", spec.local_rank_flag, local_rank));
  argv.insert(argv.end(), spec.args.begin(), spec.args.end());
  // As torchrun: in everything but the program that is started.
  for (size_t i = 1; i < argv.size(); ++i) {
    if (argv[i] != kRunPath) argv[i] = safe_substitute(argv[i], {{"local_rank", std::to_string(local_rank)}});
  }
  return argv;
}

}  // namespace rubato::agent

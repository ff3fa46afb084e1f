#include "provider/docker_runner.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/sha256.h"
#include "core/text.h"
#include "provider/shell_stream.h"
#include "provider/sync.h"

namespace rubato::provider {

namespace {

constexpr Duration kDockerLook = 60s;
constexpr const char* kHashLabel = "rubato.container";

std::string docker_of(const ContainerSpec& spec) { return spec.use_podman ? "podman" : "docker"; }

bool sets_shm_size(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    if (option.find("--shm-size") != std::string::npos || option.find("--ipc") != std::string::npos) return true;
  }
  return false;
}

bool sets_gpus(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    if (option.find("--gpus") != std::string::npos || option.find("--runtime") != std::string::npos ||
        option.find("--device") != std::string::npos) {
      return true;
    }
  }
  return false;
}

// Adds to "$@" what this machine has: $gpus and $shm say whether it is asked for.
constexpr std::string_view kDetect = R"sh(
if [ "$shm" = yes ]; then
  kib=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo 2>/dev/null)
  if [ -n "$kib" ]; then set -- --shm-size="$((kib / 3))k" "$@"; fi
fi
if [ "$gpus" = yes ] && command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi >/dev/null 2>&1; then
  if [ $docker = podman ]; then set -- --device=nvidia.com/gpu=all "$@"
  elif docker info -f '{{json .Runtimes}}' 2>/dev/null | grep -q '"nvidia"'; then set -- --runtime=nvidia "$@"
  else set -- --gpus=all "$@"; fi
fi
)sh";

}  // namespace

std::string container_hash(const ContainerSpec& spec) {
  Sha256 hash;
  const auto add = [&](std::string_view text) {
    hash.update(std::to_string(text.size()) + ":");
    hash.update(text);
  };
  add(docker_of(spec));
  add(spec.container.image);
  add(spec.container.name);
  for (const std::string& option : spec.container.run_options) add(option);
  add(spec.detect_gpus ? "gpus" : "");
  add(spec.detect_shm_size ? "shm" : "");
  return hash.hex().substr(0, 16);
}

std::string bring_up_script(const ContainerSpec& spec) {
  const std::string name = shell_quote(spec.container.name), image = shell_quote(spec.container.image);
  std::string script = fmt::format(
      "docker={}\ncommand -v $docker >/dev/null 2>&1 || {{ echo \"there is no $docker here\" >&2; exit 41; }}\n"
      "$docker info >/dev/null 2>&1 || {{ $docker info 2>&1 | tail -n 3 >&2; exit 42; }}\n",
      docker_of(spec));
  if (spec.container.pull_before_run) {
    // Without a registry at hand an image that is there will do.
    script += fmt::format(
        "$docker pull {} || {{ $docker image inspect {} >/dev/null 2>&1 && "
        "echo 'the image cannot be pulled; the one that is there is used' >&2; }} || exit 1\n",
        image, image);
  }
  script += fmt::format("$docker rm -f {} >/dev/null 2>&1\nshm={}\ngpus={}\n", name,
                        spec.detect_shm_size && !sets_shm_size(spec.container.run_options) ? "yes" : "no",
                        spec.detect_gpus && !sets_gpus(spec.container.run_options) ? "yes" : "no");
  // As a person writes them: "--ulimit nofile=65536:65536" is two words, and $HOME means the machine's.
  script += "set -- " + join(spec.container.run_options, " ") + "\n";
  script += kDetect;
  script += fmt::format(
      "$docker run --rm --name {} -d -i -t --label {}={} -e LC_ALL=C.UTF-8 --net=host --entrypoint= \"$@\" {} "
      "sh -c 'command -v bash >/dev/null 2>&1 && exec bash; exec sh'\n",
      name, kHashLabel, container_hash(spec), image);
  return script;
}

DockerRunner::DockerRunner(World& world, RunnerSettings settings, CommandRunner& host, ContainerSpec spec)
    : world_(world), settings_(std::move(settings)), host_(host), spec_(std::move(spec)) {}

std::string DockerRunner::describe() const {
  return fmt::format("container {} in {}", spec_.container.name, host_.describe());
}

Task<bool> DockerRunner::is_up() {
  Command look;
  look.what = "looking for the container";
  look.script = fmt::format("{} inspect -f '{{{{.State.Running}}}} {{{{index .Config.Labels \"{}\"}}}}' {} 2>/dev/null",
                            docker_of(spec_), kHashLabel, shell_quote(spec_.container.name));
  look.timeout = kDockerLook;
  const CommandResult result = co_await host_.run(std::move(look));
  const std::vector<std::string_view> lines = split(result.out, '\n');
  for (const std::string_view line : lines) {
    if (trim(line) == "true " + container_hash(spec_)) co_return true;
  }
  co_return false;
}

Task<void> DockerRunner::bring_up(Duration timeout, std::function<void(std::string_view)> on_line) {
  const bool up = co_await is_up();
  if (up) co_return;
  Command make;
  make.what = "starting the container";
  make.script = bring_up_script(spec_);
  make.login = true;  // docker may be where only the person's profile finds it
  make.timeout = timeout;
  make.on_line = std::move(on_line);
  const CommandResult result = co_await host_.run(std::move(make));
  if (result.ok()) co_return;
  std::string hint = "see the output above; the options are docker.run_options of the cluster file";
  if (result.exit_code == 41) hint = "install it with an initialization command, or leave out the docker section";
  if (result.exit_code == 42) hint = "is its service running, and is the user in the group docker?";
  throw Error(
      ErrorCode::kFailed,
      fmt::format("the container {} cannot be started on {}: {} ended with exit code {}{}", spec_.container.name,
                  host_.describe(), docker_of(spec_), result.exit_code, last_output(result)),
      host_.describe(), hint);
}

Task<void> DockerRunner::remove(Duration timeout) {
  Command command;
  command.what = "removing the container";
  command.script =
      fmt::format("{} rm -f {} >/dev/null 2>&1; true", docker_of(spec_), shell_quote(spec_.container.name));
  command.timeout = timeout;
  (void)co_await host_.run(std::move(command));
}

Task<CommandResult> DockerRunner::run(Command command) {
  Command outer;
  outer.what = summary(command);
  std::vector<std::string> arguments = {docker_of(spec_), "exec", "-i", spec_.container.name};
  const std::vector<std::string> shell = shell_argv(command.login);
  arguments.insert(arguments.end(), shell.begin(), shell.end());
  outer.script = "exec " + shell_join(arguments);
  outer.input = script_line(command) + command.input;
  outer.input_file = std::move(command.input_file);
  outer.out_file = std::move(command.out_file);
  outer.out_max = command.out_max;
  outer.timeout = command.timeout;
  outer.on_line = std::move(command.on_line);
  co_return co_await host_.run(std::move(outer));
}

Task<void> DockerRunner::upload(std::string local, std::string remote, SyncOptions options) {
  SyncRoute route;
  co_await sync_up(world_, settings_, *this, std::move(route), std::move(local), std::move(remote), std::move(options));
}

Task<void> DockerRunner::download(std::string remote, std::string local, SyncOptions options) {
  SyncRoute route;
  co_await sync_down(world_, settings_, *this, std::move(route), std::move(remote), std::move(local),
                     std::move(options));
}

}  // namespace rubato::provider

#include "provider/node_setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/scope.h"
#include "core/text.h"
#include "provider/docker_runner.h"
#include "provider/node_scripts.h"

namespace rubato::provider {

namespace {

constexpr size_t kSetupLogMax = size_t{32} << 20;  // of one call
constexpr Duration kSetupLookMax = 30s;
constexpr Duration kProbePause = 300ms;  // of the first minute, in which machines boot; then doubles up to the next
constexpr Duration kProbePauseMax = 8s;
constexpr Duration kBootUsual = 60s;

// Lines of a node's set-up in a file, bounded.
class SetupLog {
 public:
  SetupLog(World& world, const std::string& path) : world_(world) {
    if (path.empty()) return;
    const size_t slash = path.rfind('/');
    if (slash != std::string::npos) world.files.make_folders(path.substr(0, slash));
    file_ = world.files.open_append(path);
  }
  void line(std::string_view text) {
    if (!file_ || written_ > kSetupLogMax) return;
    written_ += text.size() + 1;
    append(written_ > kSetupLogMax ? std::string("(more was written, and is left out)\n") : std::string(text) + "\n");
  }
  void title(SetupStep step, std::string_view sentence) {
    line(fmt::format("== {} {}: {}", format_time(world_.clock.wall()), to_string(step), sentence));
  }

 private:
  // A full disk here must not end the set-up there.
  void append(const std::string& text) {
    try {
      file_->append(text);
    } catch (const Error&) {
      file_.reset();
    }
  }

  World& world_;
  std::unique_ptr<Appender> file_;
  size_t written_ = 0;
};

std::string unit_name(const NodeSetupSpec& spec) {
  std::string name = fmt::format("rubato-{}-{}", spec.cluster, spec.node.value);
  const auto odd = [](char c) {
    return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_');
  };
  std::ranges::replace_if(name, odd, '_');
  return name;
}

class NodeSetup {
 public:
  NodeSetup(World& world, RunnerSettings settings, CommandRunner& host, RemoteBinary& binary, NodeSetupSpec spec,
            std::function<void(SetupStep, std::string)> on_step)
      : world_(world),
        host_(host),
        binary_(binary),
        spec_(std::move(spec)),
        on_step_(std::move(on_step)),
        log_(world, spec_.log_file),
        folder_(node_folder(spec_.cluster, spec_.node)) {
    if (spec_.container) container_.emplace(world, settings, host, *spec_.container);
  }

  Task<void> run() {
    co_await reachable();
    const bool is_set_up = co_await set_up_before();
    if (!is_set_up) {
      if (container_) {
        co_await attempts(SetupStep::kInitialization, &NodeSetup::initialization);
        co_await attempts(SetupStep::kFiles, &NodeSetup::files);
      } else {
        co_await attempts(SetupStep::kFiles, &NodeSetup::files);
        co_await attempts(SetupStep::kInitialization, &NodeSetup::initialization);
      }
      co_await attempts(SetupStep::kSetup, &NodeSetup::setup);
    }
    co_await attempts(SetupStep::kAgent, &NodeSetup::agent);
  }

 private:
  using Step = Task<void> (NodeSetup::*)();

  void report(SetupStep step, const std::string& detail) {
    log_.title(step, detail);
    if (on_step_) on_step_(step, detail);
  }
  std::function<void(std::string_view)> into_log() {
    return [this](std::string_view line) { log_.line(line); };
  }
  CommandRunner& inside() { return container_ ? static_cast<CommandRunner&>(*container_) : host_; }

  Error in_step(SetupStep step, const Error& error) const {
    std::string hint = error.hint;
    if (!spec_.log_file.empty())
      hint += fmt::format("{}all of its output: {}", hint.empty() ? "" : "; ", spec_.log_file);
    return Error(error.code,
                 fmt::format("node {} failed at '{}': {}", spec_.node.value, to_string(step), error.message),
                 error.where, hint);
  }

  Task<void> attempts(SetupStep step, Step body) {
    Duration pause = spec_.limits.again_first;
    for (int attempt = 1;; ++attempt) {
      std::optional<Error> failed;
      try {
        co_await (this->*body)();
      } catch (const Error& error) {
        failed = error;
      }
      if (!failed) co_return;
      log_.title(step, "failed: " + failed->message);
      if (attempt >= spec_.limits.attempts || failed->code == ErrorCode::kUsage) throw in_step(step, *failed);
      report(step, fmt::format("attempt {} of {} in {}: {}", attempt + 1, spec_.limits.attempts, format_duration(pause),
                             failed->message.substr(0, failed->message.find('\n'))));
      co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
      pause = std::min(2 * pause, spec_.limits.again_max);
    }
  }

  // A host that boots refuses connections, then logins, for a while; who was told wrong is told at once.
  Task<void> reachable() {
    const Instant begun = world_.clock.now(), deadline = begun + spec_.limits.reachable;
    Duration pause = kProbePause;
    report(SetupStep::kReachable, "connecting to " + host_.describe());
    while (true) {
      std::optional<Error> failed;
      Command probe;
      probe.what = "the first command";
      probe.script = "true";
      probe.timeout = std::clamp<Duration>(deadline - world_.clock.now(), 1s, kSetupLookMax);
      try {
        (void)co_await host_.run(std::move(probe));
      } catch (const Error& error) {
        failed = error;
      }
      if (!failed) co_return;
      const bool hopeless = failed->code == ErrorCode::kUsage && !spec_.fresh_machine;
      if (hopeless || world_.clock.now() + pause >= deadline) throw in_step(SetupStep::kReachable, *failed);
      report(SetupStep::kReachable, failed->message);
      co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
      if (world_.clock.now() - begun >= kBootUsual) pause = std::min(2 * pause, kProbePauseMax);
    }
  }

  Task<bool> set_up_before() {
    if (spec_.runtime_hash.empty()) co_return false;
    if (container_) {
      const bool up = co_await container_->is_up();
      if (!up) co_return false;
    }
    Command look;
    look.what = "looking at what was set up before";
    look.script = probe_script(folder_);
    look.timeout = kSetupLookMax;
    const CommandResult result = co_await inside().run(std::move(look));
    const std::string wanted = "rubato-runtime " + spec_.runtime_hash;
    const std::vector<std::string_view> lines = split(result.out, '\n');
    co_return std::ranges::count(lines, wanted) > 0;
  }

  Task<void> files() {
    for (const NodeMount& mount : spec_.mounts) {
      report(SetupStep::kFiles,
           fmt::format("{} ({} of {})", mount.remote, &mount - spec_.mounts.data() + 1, spec_.mounts.size()));
      SyncOptions options = spec_.sync;
      options.timeout = spec_.limits.files;
      options.on_line = into_log();
      co_await inside().upload(mount.local, mount.remote, std::move(options));
    }
  }

  Task<void> commands(CommandRunner& where, SetupStep step, const std::vector<std::string>& commands) {
    for (size_t i = 0; i < commands.size(); ++i) {
      Command named;
      named.script = commands[i];
      const std::string sentence = summary(named);
      report(step, fmt::format("{} ({} of {})", sentence, i + 1, commands.size()));
      Command command;
      command.what = sentence;
      command.script = command_script(folder_, commands[i]);
      command.env = spec_.env;
      command.login = spec_.login_shells;
      command.timeout = spec_.limits.command;
      command.on_line = into_log();
      const CommandResult result = co_await where.run(std::move(command));
      if (result.ok()) continue;
      throw Error(ErrorCode::kFailed,
                  fmt::format("{} on {} ended with exit code {}{}", sentence, where.describe(), result.exit_code,
                              last_output(result)),
                  where.describe(), "correct the command in the cluster file, then: rubato up");
    }
  }

  Task<void> initialization() {
    co_await commands(host_, SetupStep::kInitialization, spec_.host_commands);
    if (!container_) co_return;
    report(SetupStep::kInitialization, "container " + spec_.container->container.name);
    co_await container_->bring_up(spec_.limits.command, into_log());
  }

  Task<void> setup() { co_await commands(inside(), SetupStep::kSetup, spec_.setup_commands); }

  Task<void> agent() {
    std::string program = spec_.program;
    if (program.empty() || container_) {
      report(SetupStep::kAgent, "looking for rubato");
      const RemoteBinary::Put put = co_await binary_.put(inside(), spec_.limits.binary);
      program = put.path;
    }
    AgentFile file = spec_.agent;
    file.identity.use_tls = true;
    file.identity.ca = "ca.pem";
    file.identity.certificate = "node.pem";
    file.identity.key = "node.key";
    report(SetupStep::kAgent, "starting the agent");
    Command start;
    start.what = "starting the agent";
    start.script = agent_script(folder_, program, unit_name(spec_), spec_, to_text(file));
    start.env = spec_.env;
    start.login = spec_.login_shells;  // workers see what a person sees who logs in
    start.timeout = spec_.limits.agent;
    start.on_line = into_log();
    const CommandResult result = co_await inside().run(std::move(start));
    if (!result.ok()) {
      throw Error(ErrorCode::kFailed,
                  fmt::format("the agent does not start on {}{}", inside().describe(), last_output(result)),
                  inside().describe());
    }
    const std::vector<std::string_view> lines = split(result.out, '\n');
    if (std::ranges::count(lines, "rubato-agent running") > 0) co_return;
    co_await commands(inside(), SetupStep::kAgent, spec_.after_agent);
  }

  World& world_;
  CommandRunner& host_;
  RemoteBinary& binary_;
  const NodeSetupSpec spec_;
  std::function<void(SetupStep, std::string)> on_step_;
  SetupLog log_;
  const std::string folder_;
  std::optional<DockerRunner> container_;
};

}  // namespace

std::string_view to_string(SetupStep step) {
  switch (step) {
    case SetupStep::kReachable:
      return "reachable";
    case SetupStep::kFiles:
      return "files";
    case SetupStep::kInitialization:
      return "initialization";
    case SetupStep::kSetup:
      return "setup";
    case SetupStep::kAgent:
      return "agent";
  }
  CHECK(false);
}

std::string node_folder(const std::string& cluster, const NodeId& node) {
  return fmt::format("~/.rubato/clusters/{}/nodes/{}", cluster, node.value);
}

Task<void> set_up_node(World& world, RunnerSettings settings, CommandRunner& host, RemoteBinary& binary,
                       NodeSetupSpec spec, std::function<void(SetupStep, std::string)> on_step) {
  NodeSetup setup(world, std::move(settings), host, binary, std::move(spec), std::move(on_step));
  co_await setup.run();
}

}  // namespace rubato::provider

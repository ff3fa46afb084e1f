#include "client/remote.h"

#include <fmt/format.h>

#include "archive/package.h"
#include "build_stamp.h"
#include "client/cluster_home.h"
#include "core/scope.h"
#include "core/text.h"
#include "os/files.h"
#include "os/foreground.h"
#include "os/machine.h"
#include "os/network.h"
#include "os/processes.h"
#include "os/runtime.h"
#include "os/secret.h"
#include "os/ssh_master.h"
#include "provider/docker_runner.h"
#include "provider/external_instances.h"
#include "provider/pod_address.h"
#include "provider/remote_binary.h"
#include "provider/ssh_runner.h"
#include "provider/sync_tree.h"

namespace rubato::cli {
namespace {

using provider::Command;
using provider::CommandResult;
using provider::SshRunner;
using provider::SshTarget;
using provider::SyncOptions;

constexpr Duration kConnectMax = 20s;
constexpr Duration kControlMax = 10s;
constexpr Duration kProgramMax = 600s;
constexpr size_t kHashInProgramName = 16;  // of provider::RemoteBinary

// The World of this machine for the coroutines of provider; made when first needed, for its guard costs a process.
struct RemoteWorld {
  explicit RemoteWorld(const Environment& env)
      : machine(os::read_machine_facts(env)),
        processes(runtime),
        network(runtime),
        random{os::entropy()},
        world{runtime, network, processes, files, console, random, machine} {
    for (const auto& [name, value] : env) settings.env.push_back(name + "=" + value);
    settings.scratch = files.make_temporary_folder("rubato-remote-");
  }
  RemoteWorld(const RemoteWorld&) = delete;
  ~RemoteWorld() {
    try {
      files.remove_tree(settings.scratch);
    } catch (const Error&) {
      // Nobody can do anything about it here; the system cleans its temporary folder.
    }
  }

  const MachineFacts machine;
  os::Runtime runtime;
  os::RealProcesses processes;
  os::RealNetwork network;
  os::RealFiles files;
  os::RealConsole console;
  Random random;
  World world;
  provider::RunnerSettings settings;
};

Task<void> run_into(SshRunner& runner, Command command, Remote::Outcome& outcome) {
  try {
    outcome.result = co_await runner.run(std::move(command));
  } catch (const Error& error) {
    outcome.error = error;
  }
}

Task<void> run_each(Loop& loop, std::vector<std::unique_ptr<SshRunner>>& runners,
                    std::vector<Remote::HostCommand>& host_commands, std::vector<Remote::Outcome>& outcomes) {
  Scope scope(loop);
  for (size_t i = 0; i < host_commands.size(); ++i) {
    Task<void> one = run_into(*runners[i], std::move(host_commands[i].command), outcomes[i]);
    scope.spawn(std::move(one));
  }
  co_await scope.join();
}

class RealRemote final : public Remote {
 public:
  explicit RealRemote(Environment env) : env_(std::move(env)) {}

  CommandResult run(const SshTarget& target, Command command) override {
    SshRunner runner = runner_for(target);
    return world().runtime.run(runner.run(std::move(command)));
  }

  void upload(const SshTarget& target, const std::string& local, const std::string& remote,
              SyncOptions options) override {
    SshRunner runner = runner_for(target);
    world().runtime.run(runner.upload(local, remote, std::move(options)));
  }

  void download(const SshTarget& target, const std::string& remote, const std::string& local,
                SyncOptions options) override {
    SshRunner runner = runner_for(target);
    world().runtime.run(runner.download(remote, local, std::move(options)));
  }

  void upload_inside(const SshTarget& target, provider::ContainerSpec container, const std::string& local,
                     const std::string& remote, SyncOptions options) override {
    SshRunner host = runner_for(target);
    provider::DockerRunner runner(world().world, world().settings, host, std::move(container));
    world().runtime.run(runner.upload(local, remote, std::move(options)));
  }

  void download_inside(const SshTarget& target, provider::ContainerSpec container, const std::string& remote,
                       const std::string& local, SyncOptions options) override {
    SshRunner host = runner_for(target);
    provider::DockerRunner runner(world().world, world().settings, host, std::move(container));
    world().runtime.run(runner.download(remote, local, std::move(options)));
  }

  std::string tree_hash(const std::string& path, SyncOptions options) override {
    return world().runtime.run(provider::tree_hash(world().world, path, std::move(options)));
  }

  std::string program_name() override {
    return "rubato-" + world().runtime.run(binary().hash()).substr(0, kHashInProgramName);
  }

  std::string put_program(const SshTarget& target) override {
    SshRunner runner = runner_for(target);
    return world().runtime.run(binary().put(runner, kProgramMax)).path;
  }

  std::vector<Outcome> run_all(std::vector<HostCommand> host_commands) override {
    std::vector<Outcome> outcomes(host_commands.size());
    std::vector<std::unique_ptr<SshRunner>> runners;
    for (const HostCommand& one : host_commands) {
      runners.push_back(std::make_unique<SshRunner>(world().world, world().settings, one.target));
    }
    world().runtime.run(run_each(world().runtime, runners, host_commands, outcomes));
    return outcomes;
  }

  void connect(const SshTarget& target) override {
    if (provider::is_pod(target.host)) return reach_pod(target);
    if (is_connected(target)) return;
    start_master(target, {});
  }

  void forward(const SshTarget& target, const std::string& socket, uint16_t port) override {
    if (provider::is_pod(target.host)) {
      const auto made = os::run_captured(provider::pod_forward_argv(target, socket, port), "", kControlMax);
      if (!made.status.ok()) throw provider::explain_ssh(target, made.err);
      return;
    }
    const std::vector<provider::SshForward> forwards = {{socket, fmt::format("127.0.0.1:{}", port)}};
    // One that leads elsewhere since the head was started again would be kept beside the new one.
    os::RealFiles().remove_tree(socket);
    // And of one that leads to the same place ssh would say that it is there already, and not make the socket again.
    os::run_captured(provider::ssh_control_argv(target, "cancel", forwards), "", kControlMax);
    const auto asked = os::run_captured(provider::ssh_control_argv(target, "forward", forwards), "", kControlMax);
    if (asked.status.ok()) return;
    start_master(target, forwards);
  }

  void disconnect(const SshTarget& target) override {
    if (!os::RealFiles().exists(provider::control_path(target))) return;
    os::run_captured(provider::ssh_control_argv(target, "exit", {}), "", kControlMax);
  }

  void disconnect_all(const std::string& cluster_folder) override {
    os::RealFiles files;
    const std::string folder = provider::control_folder(files, cluster_folder);
    for (const Files::Entry& entry : files.list(folder)) {
      if (entry.kind != Files::Entry::Kind::kOther) continue;  // a socket
      const std::string path = folder + "/" + entry.name;
      os::run_captured({"ssh", "-o", "ControlPath=" + path, "-O", "exit", "--", "localhost"}, "", kControlMax);
      files.remove_tree(path);
    }
  }

  provider::HeadMachine make_head_machine(const ClusterFile& file, provider::HeadMachineSettings settings) override {
    return head_machine(provider::head_machine_maker(file.provider.type).make, file, std::move(settings));
  }

  std::optional<provider::HeadMachine> find_head_machine(const ClusterFile& file,
                                                         provider::HeadMachineSettings settings) override {
    const provider::HeadMachineMaker::Call find = provider::head_machine_maker(file.provider.type).find;
    if (find == nullptr) return std::nullopt;
    return head_machine(find, file, std::move(settings));
  }

  provider::HeadMachine end_head_machine(const ClusterFile& file, provider::HeadMachineSettings settings) override {
    return head_machine(provider::head_machine_maker(file.provider.type).end, file, std::move(settings));
  }

  provider::ExternalGreeting greet_external(const ClusterFile& file, provider::ExternalSettings settings) override {
    settings.env = world().settings.env;
    settings.version = RUBATO_VERSION;
    settings.state = world().settings.scratch + "/provider";
    settings.look = true;
    provider::ExternalInstances instances(world().world, cluster_spec_of(file).provider_config, std::move(settings),
                                          Log());
    return world().runtime.run(instances.greet());
  }

  std::vector<provider::LivePrice> live_prices(const ClusterFile& file) override {
    const provider::CloudSurvey survey = provider::cloud_survey(file.provider.type);
    if (survey.prices == nullptr) return {};
    return world().runtime.run(survey.prices(world().world, file, world().settings.env));
  }

  int in_front(const SshTarget& target, const provider::SshOptions& options) override {
    const bool plain = !options.tty && options.shell && options.forwards.empty() && !options.command.empty();
    if (plain && !wants_more_of_ssh()) {
      const auto status = os::run_over_master(provider::control_path(target), options.command, locale());
      if (status) return code_of(*status);
    }
    return in_front_here(provider::ssh_argv(target, options));
  }

  int in_front_here(const std::vector<std::string>& argv) override { return code_of(os::run_in_front(argv)); }

 private:
  provider::HeadMachine head_machine(provider::HeadMachineMaker::Call call, const ClusterFile& file,
                                     provider::HeadMachineSettings settings) {
    CHECK(call != nullptr);
    settings.env = world().settings.env;
    settings.version = RUBATO_VERSION;
    return world().runtime.run(call(world().world, file, std::move(settings)));
  }

  static int code_of(const ExitStatus& status) { return status.signal != 0 ? 128 + status.signal : status.code; }

  // What a person's own configuration may ask of each session, and only ssh itself can do.
  bool wants_more_of_ssh() const {
    const auto home = env_.find("HOME");
    if (home == env_.end()) return true;
    const std::optional<std::string> text = os::RealFiles().read(home->second + "/.ssh/config");
    if (!text) return false;
    const std::string message = to_lower(*text);
    for (const char* word : {"include", "match", "forward", "sendenv", "setenv", "remotecommand", "requesttty"}) {
      if (message.find(word) != std::string::npos) return true;
    }
    return false;
  }

  // As ssh's configuration sends it by default nearly everywhere.
  std::vector<std::string> locale() const {
    std::vector<std::string> out;
    for (const auto& [name, value] : env_) {
      if (name == "LANG" || name.starts_with("LC_")) out.push_back(name + "=" + value);
    }
    return out;
  }

  static bool is_connected(const SshTarget& target) {
    if (!os::RealFiles().exists(provider::control_path(target))) return false;
    return os::run_captured(provider::ssh_control_argv(target, "check", {}), "", kControlMax).status.ok();
  }

  // There is no connection to keep: whether a command can be run there is all there is to know.
  static void reach_pod(const SshTarget& target) {
    provider::SshOptions options;
    options.command = "exit 0";
    const os::Captured done = os::run_captured(provider::ssh_argv(target, options), "", kConnectMax);
    if (!done.status.ok()) throw provider::explain_ssh(target, done.err);
  }

  // A process of its own that outlives this command and serves the next ones.
  static void start_master(const SshTarget& target, const std::vector<provider::SshForward>& forwards) {
    provider::SshOptions options;
    options.shell = false;
    options.control_persist = kLaptopPersist;
    options.forwards = forwards;
    std::vector<std::string> argv = provider::ssh_argv(target, options);
    argv.insert(argv.begin() + 1, "-f");
    const os::Captured done = os::run_captured(argv, "", kConnectMax);
    if (done.timed_out) {
      throw Error(ErrorCode::kUnavailable, fmt::format("{} did not answer within {}", provider::to_string(target),
                                                       format_duration(kConnectMax)));
    }
    if (!done.status.ok()) throw provider::explain_ssh(target, done.err);
  }

  RemoteWorld& world() {
    if (!world_) world_ = std::make_unique<RemoteWorld>(env_);
    return *world_;
  }
  provider::RemoteBinary& binary() {
    if (!binary_) {
      const std::string cache = clusters_folder(env_) + "/../programs";
      world().files.make_folders(cache);
      binary_ = std::make_unique<provider::RemoteBinary>(world().world, world().settings, os::own_program(), cache);
    }
    return *binary_;
  }
  SshRunner runner_for(const SshTarget& target) { return SshRunner(world().world, world().settings, target); }

  const Environment env_;
  std::unique_ptr<RemoteWorld> world_;
  std::unique_ptr<provider::RemoteBinary> binary_;
};

}  // namespace

std::string sent_text(const provider::SyncSent& sent) {
  if (sent.files == 0) return "nothing new to send";
  return fmt::format("{} file{}, {}", sent.files, sent.files == 1 ? "" : "s", archive::human_bytes(sent.bytes));
}

std::unique_ptr<Remote> real_remote(const Environment& env) { return std::make_unique<RealRemote>(env); }

}  // namespace rubato::cli

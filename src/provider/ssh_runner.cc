#include "provider/ssh_runner.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/scope.h"
#include "core/text.h"
#include "core/while_listening.h"
#include "provider/pod_address.h"
#include "provider/shell_stream.h"
#include "provider/sync.h"

namespace rubato::provider {

namespace {

constexpr int kSshFailed = 255;
constexpr Duration kDisconnectMax = 5s;

// ssh's own words come last; what the command wrote before could look like them.
std::string last_of(std::string_view text, size_t lines) {
  size_t at = text.size();
  if (at > 0 && text[at - 1] == '\n') --at;
  for (size_t i = 0; i < lines && at != std::string_view::npos; ++i)
    at = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  return std::string(at == std::string_view::npos ? text : text.substr(at + 1));
}

// Into a pod everything goes as a tar stream.
SyncRoute route_to(const SshTarget& target, Duration connect_timeout) {
  SyncRoute route;
  if (is_pod(target.host)) return route;
  route.rsync_shell = ssh_command_for_rsync(target, connect_timeout);
  route.rsync_host = target.host;
  return route;
}

}  // namespace

SshRunner::SshRunner(World& world, RunnerSettings settings, SshTarget target)
    : world_(world), settings_(std::move(settings)), target_(std::move(target)) {}

Task<CommandResult> SshRunner::run(Command command) {
  if (!is_pod(target_.host) && target_.key_file.starts_with('/') && !world_.files.exists(target_.key_file)) {
    throw Error(ErrorCode::kUsage, fmt::format("the key for {} is not there", describe()), target_.key_file,
                "check auth.ssh_private_key in the cluster file");
  }
  SshOptions options;
  options.connect_timeout = std::min(connect_timeout_, command.timeout);
  options.command = shell_command(command.login);
  HereSpec spec;
  spec.argv = ssh_argv(target_, options);
  spec.input = script_line(command) + command.input;
  spec.input_file = std::move(command.input_file);
  spec.out_file = std::move(command.out_file);
  spec.out_max = command.out_max;
  spec.on_line = std::move(command.on_line);
  Task<HereResult> running = run_here(world_, settings_, std::move(spec));
  std::optional<HereResult> result = co_await while_listening(world_.clock.loop(), command.timeout, std::move(running));
  if (!result) throw too_late(describe(), command);
  const bool own = result->err.find(kOwn255) != std::string::npos;
  if (result->command.exit_code == kSshFailed && !own) throw explain_ssh(target_, last_of(result->err, 20));
  if (result->command.exit_code == 127 && result->err.find("exec: ssh: not found") != std::string::npos) {
    throw explain_ssh(target_, result->err);
  }
  co_return std::move(result->command);
}

Task<void> SshRunner::upload(std::string local, std::string remote, SyncOptions options) {
  SyncRoute route = route_to(target_, connect_timeout_);
  co_await sync_up(world_, settings_, *this, std::move(route), std::move(local), std::move(remote), std::move(options));
}

Task<void> SshRunner::download(std::string remote, std::string local, SyncOptions options) {
  SyncRoute route = route_to(target_, connect_timeout_);
  co_await sync_down(world_, settings_, *this, std::move(route), std::move(remote), std::move(local),
                     std::move(options));
}

Task<void> SshRunner::disconnect() {
  const std::string path = control_path(target_);
  if (path.empty() || !world_.files.exists(path)) co_return;
  HereSpec spec;
  spec.argv = ssh_control_argv(target_, "exit", {});
  Task<HereResult> running = run_here(world_, settings_, std::move(spec));
  (void)co_await while_listening(world_.clock.loop(), kDisconnectMax, std::move(running));
}

}  // namespace rubato::provider

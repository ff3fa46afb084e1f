#include "provider/local_runner.h"

#include "core/error.h"
#include "core/while_listening.h"
#include "provider/shell_stream.h"
#include "provider/sync.h"

namespace rubato::provider {

LocalRunner::LocalRunner(World& world, RunnerSettings settings) : world_(world), settings_(std::move(settings)) {}

Task<CommandResult> LocalRunner::run(Command command) {
  HereSpec spec;
  spec.argv = shell_argv(command.login);
  spec.input = script_line(command) + command.input;
  spec.input_file = std::move(command.input_file);
  spec.out_file = std::move(command.out_file);
  spec.out_max = command.out_max;
  spec.on_line = std::move(command.on_line);
  Task<HereResult> running = run_here(world_, settings_, std::move(spec));
  std::optional<HereResult> result = co_await while_listening(world_.clock.loop(), command.timeout, std::move(running));
  if (!result) throw too_late(describe(), command);
  co_return std::move(result->command);
}

Task<void> LocalRunner::upload(std::string local, std::string remote, SyncOptions options) {
  SyncRoute route;
  route.rsync_here = true;
  co_await sync_up(world_, settings_, *this, std::move(route), std::move(local), std::move(remote), std::move(options));
}

Task<void> LocalRunner::download(std::string remote, std::string local, SyncOptions options) {
  SyncRoute route;
  route.rsync_here = true;
  co_await sync_down(world_, settings_, *this, std::move(route), std::move(remote), std::move(local),
                     std::move(options));
}

}  // namespace rubato::provider

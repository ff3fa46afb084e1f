#include "provider/ssh_provider.h"

#include <fmt/format.h>

#include "core/error.h"

namespace rubato::provider {

SshProvider::SshProvider(World& world, Instances& instances, RemoteBinary& binary, SshProviderSettings settings)
    : world_(world), instances_(instances), binary_(binary), settings_(std::move(settings)) {}

Task<void> SshProvider::create(NodeOrder order) {
  const NodeId node = order.node;
  Machine machine = co_await instances_.create(order);
  std::optional<Error> failed;
  try {
    co_await bring_up(std::move(order), std::move(machine));
  } catch (const Error& error) {
    failed = error;
  }
  if (!failed) co_return;
  instances_.note_failure(node, failed->message);
  throw *failed;
}

Task<void> SshProvider::bring_up(NodeOrder order, Machine machine) {
  const NodeId node = order.node;
  const std::unique_ptr<CommandRunner> runner = settings_.reach(machine);
  for (const NodeId& leftover : machine.leftovers) {
    NodeEnd end = settings_.end(leftover);
    co_await salvage_leftover(*runner, end);
    co_await stop_node(*runner, std::move(end));
  }
  if (!machine.leftovers.empty()) instances_.note_cleaned(node);
  std::function<void(SetupStep, std::string)> on_step = [tell = order.on_step](SetupStep step, std::string detail) {
    if (tell) tell(std::string(to_string(step)), std::move(detail));
  };
  NodeSetupSpec spec = co_await settings_.plan(std::move(order), std::move(machine));
  co_await set_up_node(world_, settings_.runner, *runner, binary_, std::move(spec), std::move(on_step));
}

// What cannot be brought now is lost: the machine is needed.
Task<void> SshProvider::salvage_leftover(CommandRunner& runner, NodeEnd end) {
  const std::string node = end.node.value;
  try {
    co_await salvage_node(runner, std::move(end));
  } catch (const Error& error) {
    world_.console.err(fmt::format("{} left something on {}: {}\n", node, runner.describe(), error.message));
  }
}

Task<bool> SshProvider::stop(NodeId node, Machine machine) {
  const std::unique_ptr<CommandRunner> runner = settings_.reach(machine);
  const Instant deadline = world_.clock.now() + settings_.stop_max;
  while (true) {
    NodeEnd end = settings_.end(node);
    try {
      co_await stop_node(*runner, std::move(end));
      co_return true;
    } catch (const Error& error) {
      // It answered, and the agent does not die: nothing is helped by leaving it.
      if (error.code == ErrorCode::kFailed) throw;
    }
    if (world_.clock.now() + settings_.stop_again >= deadline) co_return false;
    co_await Sleep(world_.clock.loop(), world_.clock.now() + settings_.stop_again);
  }
}

Task<void> SshProvider::salvage(NodeId node) {
  std::optional<Machine> machine = co_await instances_.find(node);
  if (!machine) co_return;
  const std::unique_ptr<CommandRunner> runner = settings_.reach(*machine);
  NodeEnd end = settings_.end(node);
  co_await salvage_node(*runner, std::move(end));
}

Task<void> SshProvider::remove(NodeId node) {
  std::optional<Machine> machine = co_await instances_.find(node);
  if (!machine) co_return;
  bool cleaned = true;
  if (instances_.machines_stay()) cleaned = co_await stop(node, std::move(*machine));
  co_await instances_.remove(node, cleaned);
}

Task<std::vector<NodeId>> SshProvider::list() { co_return co_await instances_.list(); }

}  // namespace rubato::provider

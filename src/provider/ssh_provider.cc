#include "provider/ssh_provider.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "provider/node_plan.h"

namespace rubato::provider {

SshProvider::SshProvider(World& world, Instances& instances, RemoteBinary& binary, SshProviderSettings settings)
    : world_(world), instances_(instances), binary_(binary), settings_(std::move(settings)) {
  newest_.push_back(plain_recipe());
}

NodeRecipe SshProvider::plain_recipe() const {
  NodeRecipe plain;
  plain.cluster = settings_.cluster;
  return plain;
}

namespace {

// Those that leave something in places of their own: others would end the same things again.
void add_place(std::vector<NodeRecipe>& places, const NodeRecipe& recipe) {
  const auto same = [&](const NodeRecipe& other) { return other.same_place(recipe); };
  if (std::ranges::none_of(places, same)) places.push_back(recipe);
}

}  // namespace

void SshProvider::configure(const ClusterSpec& spec) {
  instances_.configure(spec.provider_config);
  newest_.clear();
  for (const auto& [id, recipe] : spec.recipes) add_place(newest_, recipe);
  if (newest_.empty()) newest_.push_back(plain_recipe());
}

std::vector<NodeRecipe> SshProvider::recipes_of(const NodeRemoval& removal) const {
  std::vector<NodeRecipe> places;
  for (const NodeRecipe& recipe : removal.recipes) add_place(places, recipe);
  return places.empty() ? newest_ : places;
}

Task<LaunchErrors> SshProvider::launch(std::vector<NodeOrder> orders) { return instances_.launch(std::move(orders)); }

Task<void> SshProvider::create(NodeOrder order) {
  const NodeId node = order.node;
  Machine machine = co_await instances_.create(order);
  std::optional<Error> failed;
  try {
    co_await bring_up(std::move(order), std::move(machine));
  } catch (const Error& error) {
    failed = error;
  }
  if (!failed) {
    instances_.note_step(node, "up");
    co_return;
  }
  instances_.note_failure(node, failed->message);
  throw *failed;
}

Task<void> SshProvider::bring_up(NodeOrder order, Machine machine) {
  const NodeId node = order.node;
  for (const NodeRemoval& leftover : machine.leftovers) co_await end_leftover(machine, leftover);
  if (!machine.leftovers.empty()) instances_.note_cleaned(node);
  // An agent in a container of another name, or beside a container, would go on beside the new one.
  NodeRemoval older(node);
  for (const NodeRecipe& before : order.before) {
    if (!before.same_place(order.recipe)) older.recipes.push_back(before);
  }
  if (!older.recipes.empty()) co_await end_leftover(machine, std::move(older));
  const std::unique_ptr<CommandRunner> runner = settings_.reach(machine, order.recipe);
  std::function<void(SetupStep, std::string)> on_step = [this, node, tell = order.on_step](SetupStep step,
                                                                                           std::string detail) {
    instances_.note_step(node, std::string(to_string(step)));
    if (tell) tell(std::string(to_string(step)), std::move(detail));
  };
  NodeSetupSpec spec = co_await settings_.plan(std::move(order), std::move(machine));
  co_await set_up_node(world_, settings_.runner, *runner, binary_, std::move(spec), std::move(on_step));
}

Task<void> SshProvider::end_leftover(Machine machine, NodeRemoval left) {
  const std::vector<NodeRecipe> recipes = recipes_of(left);
  for (const NodeRecipe& recipe : recipes) {
    const std::unique_ptr<CommandRunner> runner = settings_.reach(machine, recipe);
    NodeEnd end = plan_end(recipe, left.node);
    co_await salvage_leftover(*runner, end);
    co_await stop_node(*runner, std::move(end));
  }
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

Task<bool> SshProvider::stop(NodeId node, NodeRecipe recipe, Machine machine) {
  const std::unique_ptr<CommandRunner> runner = settings_.reach(machine, recipe);
  const Instant deadline = world_.clock.now() + settings_.stop_max;
  while (true) {
    NodeEnd end = plan_end(recipe, node);
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

Task<void> SshProvider::salvage(NodeRemoval removal) {
  std::optional<Machine> machine = co_await instances_.find(removal.node);
  if (!machine) co_return;
  const std::vector<NodeRecipe> recipes = recipes_of(removal);
  for (const NodeRecipe& recipe : recipes) {
    const std::unique_ptr<CommandRunner> runner = settings_.reach(*machine, recipe);
    NodeEnd end = plan_end(recipe, removal.node);
    co_await salvage_node(*runner, std::move(end));
  }
}

Task<void> SshProvider::remove(NodeRemoval removal) {
  std::optional<Machine> machine = co_await instances_.find(removal.node);
  if (!machine) co_return;
  bool cleaned = true;
  if (instances_.machines_stay()) {
    const std::vector<NodeRecipe> recipes = recipes_of(removal);
    for (const NodeRecipe& recipe : recipes) {
      const bool stopped = co_await stop(removal.node, recipe, *machine);
      cleaned = cleaned && stopped;
      if (!stopped) break;  // nor would it answer for the others
    }
  }
  co_await instances_.remove(std::move(removal), cleaned);
}

Task<std::vector<NodeId>> SshProvider::list() { co_return co_await instances_.list(); }

}  // namespace rubato::provider

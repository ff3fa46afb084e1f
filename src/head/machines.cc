#include "head/machines.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace rubato::head {

using cluster::NodePhase;

namespace {
constexpr Duration kRemoveAgain = 1s;
constexpr Duration kRemoveAgainMax = 60s;
constexpr Duration kListMax = 30s;
constexpr Duration kSweepEvery = 60s;
constexpr Duration kCreateMax = 120s;
constexpr Duration kLaunchMax = 15min;  // as long as a program may take for one machine
// Machines are set up by commands of people, which have deadlines of their own.
constexpr Duration kSetupMax = 4h;
constexpr Duration kRemoveMax = 60s;
// Outputs may be large; the provider gives up when nothing moves.
constexpr Duration kSalvageMax = 2h;

Task<bool> completed(Task<void> task) {
  co_await std::move(task);
  co_return true;
}

// Nearly always; both are sorted, or nearly so, and there are thousands.
bool all_known(const cluster::State& state, std::vector<NodeId> listed) {
  std::ranges::sort(listed);
  const auto known = std::views::keys(state.nodes);
  return std::ranges::includes(known, listed);
}

cluster::LaunchFailure failure_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNoCapacity:
    case ErrorCode::kConflict:  // no free host
      return cluster::LaunchFailure::kNoCapacity;
    case ErrorCode::kQuota:
      return cluster::LaunchFailure::kQuota;
    case ErrorCode::kAuth:
      return cluster::LaunchFailure::kAuth;
    case ErrorCode::kFailed:
    case ErrorCode::kUsage:
    case ErrorCode::kUnavailable:
    case ErrorCode::kNotFound:
      break;
  }
  return cluster::LaunchFailure::kOther;
}
}  // namespace

namespace {

// How it is reached is the newest file's to say, unless that means other machines: a node of another launch hash was
// made for another user.
NodeRecipe recipe_now(const cluster::State& state, const cluster::Node& node, const std::string& id) {
  NodeRecipe recipe;
  if (state.spec) recipe.cluster = state.spec->name;
  if (const NodeRecipe* found = cluster::find_recipe(state, id)) recipe = *found;
  if (!state.spec) return recipe;
  const NodeRecipe* newest = cluster::find_recipe(state, recipe_for(*state.spec, node.type, node.head));
  if (newest && state.index.launch_hash_of(node.type) == node.hash) recipe.ssh_port = newest->ssh_port;
  return recipe;
}

std::vector<NodeRecipe> recipes_before(const cluster::State& state, const cluster::Node& node) {
  std::vector<NodeRecipe> recipes;
  for (const std::string& id : node.recipes_before) recipes.push_back(recipe_now(state, node, id));
  return recipes;
}

provider::NodeRemoval removal_of(const cluster::State& state, const cluster::Node& node) {
  provider::NodeRemoval removal(node.id);
  if (node.recipe.empty()) return removal;
  removal.recipes = recipes_before(state, node);
  removal.recipes.insert(removal.recipes.begin(), recipe_now(state, node, node.recipe));
  return removal;
}

}  // namespace

Machines::Machines(World& world, provider::NodeProvider& provider, Endpoint head, Log log, ListeningClock& listening,
                   std::function<void(cluster::Event)> tell, KeepLines keep_lines)
    : world_(world),
      provider_(provider),
      head_(std::move(head)),
      log_(std::move(log)),
      listening_(listening),
      tell_(std::move(tell)),
      keep_lines_(std::move(keep_lines)),
      unwanted_grown_(world.clock.loop()),
      scope_(world.clock.loop()) {}

void Machines::follow(const cluster::State& state) {
  configure(state);
  // What was told may be about nodes that are forgotten.
  std::set<NodeId> all = removed_;
  for (const auto& [id, runtime] : created_) all.insert(id);
  for (const auto& [id, node] : state.nodes) all.insert(id);
  follow(state, all);
}

void Machines::follow(const cluster::State& state, const std::set<NodeId>& changed) {
  for (const NodeId& id : changed) follow_node(state, id);
  start_due();
}

void Machines::start_due() {
  std::vector<provider::NodeOrder> orders = std::exchange(due_, {});
  if (orders.size() == 1) {
    scope_.spawn(create(std::move(orders.front())));
  } else if (!orders.empty()) {
    scope_.spawn(launch(std::move(orders)));
  }
}

// What it cannot take, the calls that need it tell of.
void Machines::configure(const cluster::State& state) {
  if (!state.spec) return;
  try {
    provider_.configure(*state.spec);
  } catch (const Error& error) {
    log_.warning("the provider does not take the cluster's description", {{"error", error.message}});
  }
}

void Machines::follow_node(const cluster::State& state, const NodeId& id) {
  const auto it = state.nodes.find(id);
  const cluster::Node* node = it == state.nodes.end() ? nullptr : &it->second;
  const bool requested = node && node->phase == NodePhase::kRequested;
  const bool removing = node && node->phase == NodePhase::kRemoving;
  if (const auto made = created_.find(id); made != created_.end() && !(requested && node->runtime == made->second))
    created_.erase(made);
  if (!removing) removed_.erase(id);
  if (!node) return;
  const bool known = state.spec && state.spec->types.contains(node->type);
  if (requested && known && !created_.contains(id) && creating_.insert(id).second)
    due_.push_back(order_for(state, *node));
  if (!node->refreshing.empty() && node->usable() && known && refreshing_.insert(id).second)
    start_refresh(state, *node);
  if (!removing) return;
  if (creating_.contains(id) && unwanted_.insert(id).second) unwanted_grown_.notify();
  // A call to create is ended first: the provider need not cope with both at once.
  if (!creating_.contains(id) && !refreshing_.contains(id) && !removed_.contains(id) && removing_.insert(id).second)
    scope_.spawn(remove(removal_of(state, *node), node->silent));
}

// The new files and commands, in the place where its agent is: a container cannot change beside its work.
void Machines::start_refresh(const cluster::State& state, const cluster::Node& node) {
  provider::NodeOrder order = order_for(state, node);
  order.runtime = node.refreshing;
  order.keep_running = true;
  const std::optional<ContainerSpec> place = order.recipe.container;
  order.recipe = recipe_now(state, node, recipe_for(*state.spec, node.type, node.head));
  order.recipe.container = place;
  scope_.spawn(refresh(std::move(order)));
}

provider::NodeOrder Machines::order_for(const cluster::State& state, const cluster::Node& node) {
  provider::NodeOrder order;
  order.node = node.id;
  order.type = state.spec->types.at(node.type);
  order.isolation = state.spec->isolation;
  order.notice = state.spec->notice;
  order.head = head_;
  order.of_head = node.head;
  order.runtime = node.runtime;
  order.launch_hash = node.hash;
  order.recipe = recipe_now(state, node, node.recipe);
  order.before = recipes_before(state, node);
  order.offering = node.offering;
  // After an update the agent from before may still run.
  order.restart = node.restart || !node.retired.value.empty();
  order.on_step = [this, id = node.id](std::string step, std::string detail) {
    tell_(cluster::NodeStepped{id, std::move(step), std::move(detail)});
  };
  return order;
}

Task<Machines::Outcome> Machines::made(provider::NodeOrder order) {
  const NodeId node = order.node;
  const Duration limit = order.runtime.empty() ? kCreateMax : kSetupMax;
  Outcome outcome;
  try {
    const Instant deadline = listening_.at(world_.clock.now()) + limit;
    Task<bool> made = completed(provider_.create(std::move(order)));
    Task<bool> missed = given_up(node, deadline);
    const std::variant<bool, bool> first = co_await race(world_.clock.loop(), std::move(made), std::move(missed));
    if (first.index() == 1)
      outcome.failure = std::get<1>(first) ? "it is not wanted any more" : "the provider did not answer in time";
  } catch (const Error& error) {
    outcome.failure = error.message;
    outcome.code = failure_of(error.code);
    log_.warning("node not created", {{"node", node.value}, {"error", error.message}});
  }
  co_return outcome;
}

Task<bool> Machines::given_up(NodeId node, Instant deadline) {
  while (!unwanted_.contains(node) && listening_.at(world_.clock.now()) < deadline)
    co_await unwanted_grown_.wait_until(listening_.due(deadline, world_.clock.now()));
  co_return unwanted_.contains(node);
}

Task<void> Machines::refresh(provider::NodeOrder order) {
  const NodeId node = order.node;
  const std::string runtime = order.runtime;
  const Outcome outcome = co_await made(std::move(order));
  refreshing_.erase(node);
  tell_(cluster::NodeRefreshed{node, runtime, outcome.failure});
}

Task<void> Machines::create(provider::NodeOrder order) {
  const Outcome outcome = co_await made(order);
  report(order, outcome);
}

void Machines::report(const provider::NodeOrder& order, const Outcome& outcome) {
  creating_.erase(order.node);
  unwanted_.erase(order.node);
  created_[order.node] = order.runtime;
  if (outcome.failure.empty()) {
    tell_(cluster::NodeCreated{order.node, order.runtime});
  } else {
    tell_(cluster::NodeFailed{order.node, outcome.failure, outcome.code});
  }
}

// The machines of many nodes in one call; then each is made by itself. A node that is not wanted any more meanwhile
// ends when the call does.
Task<void> Machines::launch(std::vector<provider::NodeOrder> orders) {
  provider::LaunchErrors errors;
  std::optional<Error> failed;
  try {
    Task<provider::LaunchErrors> asked = provider_.launch(orders);
    std::optional<provider::LaunchErrors> answer =
        co_await within(world_.clock.loop(), listening_, kLaunchMax, std::move(asked));
    if (answer) errors = std::move(*answer);
    if (!answer) failed.emplace(ErrorCode::kUnavailable, "the provider did not answer in time");
  } catch (const Error& error) {
    failed = error;
  }
  for (provider::NodeOrder& order : orders) {
    const auto found = errors.find(order.node);
    const Error* error = failed ? &*failed : found != errors.end() ? &found->second : nullptr;
    if (error == nullptr) {
      scope_.spawn(create(std::move(order)));
      continue;
    }
    log_.warning("node not created", {{"node", order.node.value}, {"error", error->message}});
    Outcome outcome;
    outcome.failure = error->message;
    outcome.code = failure_of(error->code);
    report(order, outcome);
  }
}

// Once: a machine that does not answer now is asked again when it is used again.
Task<void> Machines::salvage(provider::NodeRemoval removal) {
  const NodeId node = removal.node;
  try {
    Task<bool> done = completed(provider_.salvage(std::move(removal)));
    if (co_await within(world_.clock.loop(), listening_, kSalvageMax, std::move(done))) co_return;
    log_.warning("what a node has left was not brought in time", {{"node", node.value}});
  } catch (const Error& error) {
    log_.warning("what a node has left was not brought", {{"node", node.value}, {"error", error.message}});
  }
}

Task<void> Machines::remove_for_good(provider::NodeRemoval removal) {
  const NodeId node = removal.node;
  removal.keep_lines = [this, node](elastic::LogLines lines) { return keep_lines_(node, std::move(lines)); };
  co_await salvage(removal);
  Duration pause = kRemoveAgain;
  while (true) {
    try {
      Task<bool> gone = completed(provider_.remove(removal));
      if (co_await within(world_.clock.loop(), listening_, kRemoveMax, std::move(gone))) co_return;
      log_.warning("node not removed in time, trying again", {{"node", node.value}});
    } catch (const Error& error) {
      log_.warning("node not removed, trying again", {{"node", node.value}, {"error", error.message}});
    }
    co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
    pause = std::min<Duration>(2 * pause, kRemoveAgainMax);
  }
}

Task<void> Machines::remove(provider::NodeRemoval removal, bool silent) {
  const NodeId node = removal.node;
  // Its workers may live, and jobs wait for their end.
  if (silent) {
    const bool killed = co_await provider_.kill(node);
    if (killed) tell_(cluster::NodeLost{node, "its agent was silent, and was killed"});
  }
  co_await remove_for_good(std::move(removal));
  removing_.erase(node);
  removed_.insert(node);
  if (sweeps_ > 0) gone_.insert(node);
  tell_(cluster::NodeGone{node, !provider_.is_ended(node)});
}

Task<void> Machines::remove_stray(NodeId node) {
  provider::NodeRemoval removal(node);
  co_await remove_for_good(std::move(removal));
  removing_.erase(node);
}

Task<std::optional<std::vector<NodeId>>> Machines::list_machines() {
  try {
    Task<std::vector<NodeId>> listed = provider_.list();
    co_return co_await within(world_.clock.loop(), listening_, kListMax, std::move(listed));
  } catch (const Error& error) {
    log_.warning("nodes not listed", {{"error", error.message}});
  }
  co_return std::nullopt;
}

Task<void> Machines::sweep(const cluster::State& state) {
  // One that is being removed now may still be in the list, and be forgotten when the list comes.
  gone_.insert(removed_.begin(), removed_.end());
  ++sweeps_;
  const std::optional<std::vector<NodeId>> listed = co_await list_machines();
  const std::set<NodeId> gone = gone_;
  if (--sweeps_ == 0) gone_.clear();
  if (!listed || all_known(state, *listed)) co_return;
  for (const NodeId& node : *listed) {
    if (gone.contains(node) || state.nodes.contains(node) || !removing_.insert(node).second) continue;
    log_.warning("removing a node that nobody knows", {{"node", node.value}});
    tell_(cluster::StrayFound{node});
    scope_.spawn(remove_stray(node));
  }
}

Task<void> Machines::keep_sweeping(const cluster::State& state) {
  while (true) {
    co_await Sleep(world_.clock.loop(), world_.clock.now() + kSweepEvery);
    co_await sweep(state);
  }
}

}  // namespace rubato::head

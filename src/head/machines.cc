#include "head/machines.h"

namespace rubato::head {

using cluster::NodePhase;

namespace {
constexpr Duration kRemoveAgain = 1s;
constexpr Duration kCreateMax = 120s;
// Machines are set up by commands of people, which have deadlines of their own.
constexpr Duration kSetupMax = 4h;
constexpr Duration kRemoveMax = 60s;

Task<bool> completed(Task<void> task) {
  co_await std::move(task);
  co_return true;
}
}  // namespace

Machines::Machines(World& world, provider::NodeProvider& provider, Endpoint head, Log log,
                   std::function<void(cluster::Event)> tell)
    : world_(world),
      provider_(provider),
      head_(std::move(head)),
      log_(std::move(log)),
      tell_(std::move(tell)),
      scope_(world.clock.loop()) {}

void Machines::follow(const cluster::State& state) {
  const auto in_phase = [&](const NodeId& id, NodePhase phase) {
    const auto it = state.nodes.find(id);
    return it != state.nodes.end() && it->second.phase == phase;
  };
  std::erase_if(created_, [&](const auto& made) {
    return !in_phase(made.first, NodePhase::kRequested) || state.nodes.at(made.first).runtime != made.second;
  });
  std::erase_if(removed_, [&](const NodeId& id) { return !in_phase(id, NodePhase::kRemoving); });
  for (const auto& [id, node] : state.nodes) {
    if (node.phase == NodePhase::kRequested && state.spec && state.spec->types.contains(node.type) &&
        !created_.contains(id) && creating_.insert(id).second) {
      scope_.spawn(create(order_for(state, node)));
    }
    if (!node.refreshing.empty() && node.usable() && state.spec && state.spec->types.contains(node.type) &&
        refreshing_.insert(id).second) {
      provider::NodeOrder order = order_for(state, node);
      order.runtime = node.refreshing;
      order.keep_running = true;
      scope_.spawn(refresh(std::move(order)));
    }
    // A call to create is finished first: the provider need not cope with both at once.
    if (node.phase == NodePhase::kRemoving && !creating_.contains(id) && !refreshing_.contains(id) &&
        !removed_.contains(id) && removing_.insert(id).second)
      scope_.spawn(remove(id));
  }
}

provider::NodeOrder Machines::order_for(const cluster::State& state, const cluster::Node& node) {
  provider::NodeOrder order;
  order.node = node.id;
  order.type = state.spec->types.at(node.type);
  order.isolation = state.spec->isolation;
  order.head = head_;
  order.of_head = node.head;
  order.runtime = node.runtime;
  order.text = state.spec_text;
  // After an update the agent from before may still run.
  order.restart = node.restart || !node.retired.value.empty();
  order.on_step = [this, id = node.id](std::string step, std::string detail) {
    tell_(cluster::NodeStepped{id, std::move(step), std::move(detail)});
  };
  return order;
}

Task<std::string> Machines::made(provider::NodeOrder order) {
  const NodeId node = order.node;
  const Duration limit = order.runtime.empty() ? kCreateMax : kSetupMax;
  std::string failure;
  try {
    Task<bool> made = completed(provider_.create(std::move(order)));
    const Instant deadline = world_.clock.now() + limit;
    if (!co_await with_deadline(world_.clock.loop(), deadline, std::move(made)))
      failure = "the provider did not answer in time";
  } catch (const Error& error) {
    failure = error.message;
    log_.warning("node not created", {{"node", node.value}, {"error", error.message}});
  }
  co_return failure;
}

Task<void> Machines::refresh(provider::NodeOrder order) {
  const NodeId node = order.node;
  const std::string runtime = order.runtime;
  const std::string failure = co_await made(std::move(order));
  refreshing_.erase(node);
  tell_(cluster::NodeRefreshed{node, runtime, failure});
}

Task<void> Machines::create(provider::NodeOrder order) {
  const NodeId node = order.node;
  const std::string runtime = order.runtime;
  const std::string failure = co_await made(std::move(order));
  creating_.erase(node);
  created_[node] = runtime;
  if (failure.empty()) {
    tell_(cluster::NodeCreated{node, runtime});
  } else {
    tell_(cluster::NodeFailed{node, failure});
  }
}

Task<void> Machines::remove(NodeId node) {
  while (true) {
    try {
      Task<bool> gone = completed(provider_.remove(node));
      const Instant deadline = world_.clock.now() + kRemoveMax;
      if (co_await with_deadline(world_.clock.loop(), deadline, std::move(gone))) break;
      log_.warning("node not removed in time, trying again", {{"node", node.value}});
    } catch (const Error& error) {
      log_.warning("node not removed, trying again", {{"node", node.value}, {"error", error.message}});
    }
    co_await Sleep(world_.clock.loop(), world_.clock.now() + kRemoveAgain);
  }
  removing_.erase(node);
  removed_.insert(node);
  tell_(cluster::NodeGone{node});
}

Task<void> Machines::sweep(const cluster::State& state) {
  std::vector<NodeId> there;
  try {
    there = co_await provider_.list();
  } catch (const Error& error) {
    log_.warning("nodes not listed", {{"error", error.message}});
  }
  for (const NodeId& node : there) {
    if (state.nodes.contains(node) || !removing_.insert(node).second) continue;
    log_.warning("removing a node that nobody knows", {{"node", node.value}});
    scope_.spawn(remove(node));
  }
}

}  // namespace rubato::head

#include "head/machines.h"

namespace rubato::head {

using cluster::NodePhase;

namespace {
constexpr Duration kRemoveAgain = 1s;
constexpr Duration kCreateMax = 120s;
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
  std::erase_if(created_, [&](const NodeId& id) { return !in_phase(id, NodePhase::kRequested); });
  std::erase_if(removed_, [&](const NodeId& id) { return !in_phase(id, NodePhase::kRemoving); });
  for (const auto& [id, node] : state.nodes) {
    if (node.phase == NodePhase::kRequested && state.spec && state.spec->types.contains(node.type) &&
        !created_.contains(id) && creating_.insert(id).second) {
      provider::NodeOrder order;
      order.node = id;
      order.type = state.spec->types.at(node.type);
      order.isolation = state.spec->isolation;
      order.head = head_;
      scope_.spawn(create(std::move(order)));
    }
    // A call to create is finished first: the provider need not cope with both at once.
    if (node.phase == NodePhase::kRemoving && !creating_.contains(id) && !removed_.contains(id) &&
        removing_.insert(id).second)
      scope_.spawn(remove(id));
  }
}

Task<void> Machines::create(provider::NodeOrder order) {
  const NodeId node = order.node;
  std::string failure;
  try {
    Task<bool> made = completed(provider_.create(std::move(order)));
    const Instant deadline = world_.clock.now() + kCreateMax;
    if (!co_await with_deadline(world_.clock.loop(), deadline, std::move(made)))
      failure = "the provider did not answer in time";
  } catch (const Error& error) {
    failure = error.message;
    log_.warning("node not created", {{"node", node.value}, {"error", error.message}});
  }
  creating_.erase(node);
  created_.insert(node);
  if (failure.empty()) {
    tell_(cluster::NodeCreated{node});
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

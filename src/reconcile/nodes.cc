#include "reconcile/nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "reconcile/settings.h"

namespace rubato::reconcile {

using cluster::Event;
using cluster::later;
using cluster::Node;
using cluster::NodeDraining;
using cluster::NodeLost;
using cluster::NodePhase;
using cluster::NodeRefreshing;
using cluster::NodeRemoving;
using cluster::NodeRequested;
using cluster::NodeUpdating;
using cluster::State;
using cluster::Wake;

namespace {

bool coming_or_up(const Node& node) {
  return node.phase == NodePhase::kRequested || node.phase == NodePhase::kStarting || node.phase == NodePhase::kUp;
}

bool is_idle(const State& state, const NodeId& node) { return !state.jobs_on.contains(node); }

// A node that is no longer wanted: one with workers drains first.
Event dismiss(const State& state, const Node& node, const std::string& why) {
  const bool works = node.phase == NodePhase::kUp || node.phase == NodePhase::kDraining;
  if (works && !is_idle(state, node.id)) return NodeDraining{node.id, why};
  return NodeRemoving{node.id, why};
}

// Empty when its type is not wanted any more: such a node goes.
std::string wanted_runtime(const State& state, const Node& node) {
  if (!state.spec) return "";
  const auto type = state.spec->types.find(node.type);
  return type == state.spec->types.end() ? "" : runtime_hash(*state.spec, type->second, node.head);
}

// What is to be done with a node whose machine is right and whose files, commands or container are not.
std::optional<Event> update(const State& state, const Node& node) {
  const std::string wanted = wanted_runtime(state, node);
  if (node.runtime == wanted && !node.restart) return std::nullopt;
  const std::string why = node.runtime == wanted ? "a restart was asked for" : "its files or commands have changed";
  if (node.phase != NodePhase::kUp) {
    // Whatever was begun for the older one is begun anew.
    return node.runtime == wanted ? std::nullopt : std::optional<Event>(NodeUpdating{node.id, wanted, why});
  }
  if (state.no_restart) {
    if (node.runtime == wanted || node.refreshing == wanted) return std::nullopt;
    return NodeRefreshing{node.id, wanted};
  }
  if (is_idle(state, node.id)) return NodeUpdating{node.id, wanted, why};
  return NodeDraining{node.id, why, true};
}

// The steps that a single node takes whatever is wanted.
std::optional<Event> advance_node(const State& state, const cluster::Observed& observed, const Node& node, WallTime now,
                                  Wake& wake) {
  if (node.phase == NodePhase::kLost) return NodeRemoving{node.id, node.reason};
  if (node.phase == NodePhase::kDraining && is_idle(state, node.id)) {
    if (!node.update || state.shutting_down) return NodeRemoving{node.id, node.reason};
    return NodeUpdating{node.id, wanted_runtime(state, node), node.reason};
  }
  if (node.phase == NodePhase::kStarting) {
    const WallTime deadline = std::max(later(node.since, kJoinMax), later(observed.listening_since, kRejoinMax));
    if (now >= deadline)
      return NodeLost{node.id, fmt::format("its agent did not join within {}", format_duration(kJoinMax))};
    wake.by(deadline);
  }
  return std::nullopt;
}

std::vector<const Node*> of_type(const State& state, const std::string& type, const std::string& hash) {
  std::vector<const Node*> nodes;
  for (const auto& [id, node] : state.nodes) {
    const bool there = coming_or_up(node) || (node.phase == NodePhase::kDraining && node.update);
    if (!node.head && node.type == type && node.hash == hash && there) nodes.push_back(&node);
  }
  return nodes;
}

bool backs_off(const State& state, const std::string& type, WallTime now, Wake& wake) {
  const auto health = state.health.find(type);
  if (health == state.health.end() || health->second.failures == 0 || now >= health->second.not_before) return false;
  wake.by(health->second.not_before);
  return true;
}

void reconcile_head(const State& state, WallTime now, Wake& wake, std::vector<Event>& events) {
  const auto type = state.spec->types.find(state.spec->head_type);
  if (type == state.spec->types.end() || state.nodes.contains(NodeId{kHeadNode})) return;
  if (backs_off(state, type->first, now, wake)) return;
  NodeRequested request;
  request.node = NodeId{kHeadNode};
  request.type = type->first;
  request.hash = launch_hash(*state.spec, type->second);
  request.runtime = state.spec->head_runtime;
  request.head = true;
  request.why = "the head's machine is a node too";
  events.emplace_back(std::move(request));
}

// A file may allow fewer than there are: of `nodes`, the idle and youngest go first.
void keep_at_most(const State& state, std::vector<const Node*> nodes, int most, const std::string& why,
                  std::set<NodeId>& leaving, std::vector<Event>& events) {
  std::erase_if(nodes, [&](const Node* node) { return leaving.contains(node->id); });
  const int have = static_cast<int>(nodes.size());
  if (have <= most) return;
  std::ranges::sort(nodes, {}, [&](const Node* node) {
    return std::tuple(!is_idle(state, node->id), -node->requested.time_since_epoch().count(), node->id);
  });
  for (int i = 0; i < have - most; ++i) {
    const Node& node = *nodes[static_cast<size_t>(i)];
    leaving.insert(node.id);
    events.push_back(dismiss(state, node, why));
  }
}

// Whether there are so many nodes that a limit could be passed: asked at each decision.
bool may_pass_limits(const State& state) {
  if (state.index.limited() > state.spec->max_workers) return true;
  return std::ranges::any_of(state.spec->types, [&](const auto& type) {
    return state.index.count(type.first).limited > type.second.max_workers;
  });
}

void keep_limits(const State& state, std::set<NodeId>& leaving, std::vector<Event>& events) {
  if (!may_pass_limits(state)) return;
  std::vector<const Node*> all;
  for (const auto& [name, type] : state.spec->types) {
    const std::vector<const Node*> nodes = of_type(state, name, launch_hash(*state.spec, type));
    all.insert(all.end(), nodes.begin(), nodes.end());
    keep_at_most(state, nodes, type.max_workers, fmt::format("max_workers of '{}' is {} now", name, type.max_workers),
                 leaving, events);
  }
  keep_at_most(state, std::move(all), state.spec->max_workers,
               fmt::format("max_workers is {} now", state.spec->max_workers), leaving, events);
}

// Those that are not at rest.
std::vector<const Node*> nodes_to_check(const State& state) {
  std::vector<const Node*> nodes;
  if (state.shutting_down) {
    for (const auto& [id, node] : state.nodes) nodes.push_back(&node);
  } else {
    for (const NodeId& id : state.index.pending_nodes()) nodes.push_back(&state.nodes.at(id));
  }
  return nodes;
}

// A node against the file as it is now.
std::optional<Event> follow_file(const State& state, const Node& node) {
  if (state.shutting_down) {
    if (!is_idle(state, node.id)) return std::nullopt;
    return NodeRemoving{node.id, "the cluster is shutting down"};
  }
  const auto type = state.spec->types.find(node.type);
  if (type == state.spec->types.end())
    return dismiss(state, node, fmt::format("the cluster has no type '{}' any more", node.type));
  if (state.index.launch_hash_of(node.type) != node.hash)
    return dismiss(state, node, fmt::format("type '{}' has changed", node.type));
  return update(state, node);
}

int to_update(const State& state, const ClusterSpec& next, const NodeType& type) {
  const std::string hash = launch_hash(next, type);
  return static_cast<int>(std::ranges::count_if(state.nodes, [&](const auto& entry) {
    const Node& node = entry.second;
    return node.type == type.name && node.hash == hash && coming_or_up(node) &&
           node.runtime != runtime_hash(next, type, node.head);
  }));
}

}  // namespace

std::vector<Event> advance_nodes(const State& state, const cluster::Observed& observed, WallTime now, Wake& wake) {
  std::vector<Event> events;
  std::set<NodeId> touched;
  const std::vector<const Node*> nodes = nodes_to_check(state);
  for (const Node* node : nodes) {
    if (std::optional<Event> event = advance_node(state, observed, *node, now, wake)) {
      events.push_back(std::move(*event));
      touched.insert(node->id);
    }
  }
  if (!state.spec) return events;
  for (const Node* node : nodes) {
    if (!coming_or_up(*node) || touched.contains(node->id)) continue;
    if (std::optional<Event> event = follow_file(state, *node)) {
      events.push_back(std::move(*event));
      touched.insert(node->id);
    }
  }
  if (state.shutting_down) return events;
  reconcile_head(state, now, wake, events);
  keep_limits(state, touched, events);
  return events;
}

std::vector<PlannedChange> plan_changes(const State& state, const ClusterSpec& next) {
  std::vector<PlannedChange> changes;
  std::map<std::string, int> stale;  // nodes by type that do not fit the new file
  for (const auto& [id, node] : state.nodes) {
    if (!coming_or_up(node)) continue;
    const auto type = next.types.find(node.type);
    if (type == next.types.end() || launch_hash(next, type->second) != node.hash) ++stale[node.type];
  }
  for (const auto& [name, count] : stale) {
    if (!next.types.contains(name)) changes.push_back({"remove", name, count, "the type is not in the file any more"});
  }
  if (!next.head_type.empty() && !state.nodes.contains(NodeId{kHeadNode}))
    changes.push_back({"add", next.head_type, 1, "the head's machine is a node too"});
  for (const auto& [name, type] : next.types) {
    if (const int count = to_update(state, next, type); count > 0)
      changes.push_back({"update", name, count, "files or commands have changed"});
    const int have = static_cast<int>(of_type(state, name, launch_hash(next, type)).size());
    const int outdated = stale.contains(name) ? stale[name] : 0;
    const int missing = std::max(0, type.min_workers - have);
    const int replaced = std::min(outdated, missing);
    const int removed = outdated - replaced + std::max(0, have - type.max_workers);
    if (replaced > 0) changes.push_back({"replace", name, replaced, "the type has changed"});
    const std::string why = fmt::format("min_workers is {}", type.min_workers);
    if (missing > replaced) changes.push_back({"add", name, missing - replaced, why});
    if (removed > 0) {
      changes.push_back(
          {"remove", name, removed,
           outdated > replaced ? "the type has changed" : fmt::format("max_workers is {}", type.max_workers)});
    }
    if (!state.spec) continue;
    const auto old = state.spec->types.find(name);
    if (old != state.spec->types.end() && old->second.max_workers != type.max_workers) {
      changes.push_back(
          {"limits", name, 0, fmt::format("max_workers: {} → {}", old->second.max_workers, type.max_workers)});
    }
    // Those above it stay until they have been idle for long enough.
    if (old != state.spec->types.end() && old->second.min_workers > type.min_workers && have > type.min_workers) {
      changes.push_back(
          {"limits", name, 0, fmt::format("min_workers: {} → {}", old->second.min_workers, type.min_workers)});
    }
  }
  if (state.spec && !state.shutting_down) {
    for (PlannedChange& one : setting_changes(*state.spec, next)) changes.push_back(std::move(one));
  }
  return changes;
}

}  // namespace rubato::reconcile

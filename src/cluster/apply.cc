// What events about the cluster and its nodes do.
#include "cluster/apply.h"

#include <algorithm>
#include <utility>

#include "cluster/applier.h"
#include "cluster/observed.h"

namespace rubato::cluster {

namespace {

// A node that lived so long did not fail because of its type.
constexpr Duration kYoungDeath = 10s;
constexpr Duration kTypeBackoffFirst = 500ms;
constexpr Duration kTypeBackoffMax = 60s;

Node* node_at(State& state, const NodeId& id) {
  const auto it = state.nodes.find(id);
  return it == state.nodes.end() ? nullptr : &it->second;
}

bool refers_to(const Node& node, const std::string& recipe) {
  return node.recipe == recipe || std::ranges::count(node.recipes_before, recipe) > 0;
}

// Of `recipes`, those that the newest file has not and a node still needs.
std::map<std::string, NodeRecipe> still_needed(const State& state, std::map<std::string, NodeRecipe> recipes) {
  std::erase_if(recipes, [&](const auto& entry) {
    if (state.spec && state.spec->recipes.contains(entry.first)) return true;
    return std::ranges::none_of(state.nodes, [&](const auto& node) { return refers_to(node.second, entry.first); });
  });
  return recipes;
}

// From now on it is made by what the newest file says. What it was made by so far may still be there.
void take_recipe(const State& state, Node& node) {
  const std::string recipe = state.spec ? recipe_for(*state.spec, node.type, node.head) : "";
  if (recipe.empty() || recipe == node.recipe) return;
  const bool known = node.recipe.empty() || std::ranges::count(node.recipes_before, node.recipe) > 0;
  if (!known) node.recipes_before.push_back(node.recipe);
  node.recipe = recipe;
}

// In next_node: the number of types that the journal does not know yet, after a loss.
constexpr std::string_view kAnyType = "";

}  // namespace

void Applier::operator()(const HeadStarted& e) {
  state.epoch = e.epoch;
  state.head_version = e.version;
  state.head_pid = e.pid;
  state.head_since = time;
  state.has_adaptive = std::ranges::any_of(state.jobs, [](const auto& entry) { return entry.second.adaptive(); });
  resize_in(kResizeSoon);
  // The shutdown before is complete: whoever starts a head now wants a cluster, and will say which.
  if (state.shutting_down && state.nodes.empty() && state.active.empty() && state.queued.empty()) {
    state.shutting_down = false;
    state.spec.reset();
    state.spec_text.clear();
    state.old_recipes.clear();
  }
}

void Applier::operator()(const ClusterConfigured& e) {
  if (!state.spec || state.shutting_down) state.born = time;
  std::map<std::string, NodeRecipe> recipes = std::move(state.old_recipes);
  if (state.spec) recipes.merge(state.spec->recipes);
  state.spec = with_recipes(e.spec, e.text);
  state.spec_text = e.text;
  state.old_recipes = still_needed(state, std::move(recipes));
  state.no_restart = e.no_restart;
  state.shutting_down = false;
  if (const auto any = state.next_node.find(std::string(kAnyType)); any != state.next_node.end()) {
    for (const auto& [name, type] : e.spec.types) state.next_node.try_emplace(name, any->second);
  }
  state.health.clear();
  state.shortages.clear();
  for (auto& [id, node] : state.nodes) node.restart = node.restart || e.restart;
}

void Applier::operator()(const ShutdownRequested&) { state.shutting_down = true; }

// Agents obey no head that is older than one that they have obeyed. Nodes that only the lost records told of may
// still be there, and are being removed: new ones have other numbers. A record makes one node at most.
void Applier::operator()(const JournalLost& e) {
  state.epoch = std::max(state.epoch, e.epoch);
  const uint64_t lost = e.first <= e.last ? e.last - e.first + 1 : 0;
  state.next_node.try_emplace(std::string(kAnyType), 0);
  for (auto& [type, number] : state.next_node) number += lost;
}

void Applier::operator()(const NodeRequested& e) {
  Node node;
  node.id = e.node;
  node.type = e.type;
  node.hash = e.hash;
  node.requested = node.since = time;
  node.changed = offset;
  node.reason = e.why;
  node.offering = e.offering;
  node.reasons = e.reasons;
  node.runtime = e.runtime;
  node.head = e.head;
  take_recipe(state, node);  // the records are in order: what is configured now is what it is made by
  state.nodes[e.node] = node;
  if (!e.head) ++state.next_node[e.type];
}

void Applier::operator()(const NodeStepped& e) {
  Node* node = node_at(state, e.node);
  if (!node) return;
  node->step = e.step;
  node->detail = e.detail;
  node->step_since = time;
}

void Applier::operator()(const NodeUpdating& e) {
  Node* node = node_at(state, e.node);
  if (!node || node->phase == NodePhase::kLost || node->phase == NodePhase::kRemoving) return;
  drop_workers(*node);
  node->runtime = e.runtime;
  take_recipe(state, *node);
  node->refreshing.clear();
  node->update = false;
  if (!node->agent.value.empty()) node->retired = node->agent;
  node->agent = {};
  move(*node, NodePhase::kRequested, e.why);
}

void Applier::operator()(const NodeRefreshing& e) {
  if (Node* node = node_at(state, e.node)) node->refreshing = e.runtime;
}

void Applier::operator()(const NodeRefreshed& e) {
  Node* node = node_at(state, e.node);
  if (!node || node->refreshing != e.runtime) return;
  // One that failed is not tried again until the next configuration: its work goes on with what is there.
  node->refreshing.clear();
  node->runtime = e.runtime;
  node->reason = e.error;
}

void Applier::operator()(const NodeCreated& e) {
  Node* node = node_at(state, e.node);
  if (!node || node->phase != NodePhase::kRequested || node->runtime != e.runtime) return;
  node->restart = false;
  node->recipes_before.clear();
  note_success(state.shortages, node->type, node->offering);
  move(*node, NodePhase::kStarting, "");
}

void Applier::operator()(const NodeFailed& e) {
  Node* node = node_at(state, e.node);
  if (!node) return;
  // Of this kind there is none: that says nothing about the nodes of its type.
  const bool none = e.code != LaunchFailure::kOther;
  if (none) note_failure(state.shortages, e.code, node->type, node->offering, e.error, time);
  if (node->phase == NodePhase::kRemoving) return;  // it goes already
  if (none && node->agent.value.empty()) node->never_was = true;
  if (none) {
    drop_workers(*node);
    move(*node, NodePhase::kLost, e.error);
  } else {
    lose(*node, e.error, true);
  }
}

void Applier::operator()(const NodeJoined& e) {
  Node* node = node_at(state, e.node);
  // One that is given up stays given up, however late its agent speaks.
  if (!node || node->phase == NodePhase::kLost || node->phase == NodePhase::kRemoving) return;
  if (node->agent != e.agent) drop_workers(*node);
  // An agent may speak before the call that started it has ended: it is the new one, for the old one is retired.
  if (node->phase == NodePhase::kRequested) node->restart = false;
  node->agent = e.agent;
  node->agent_started = e.started;
  node->info = e.info;
  node->resources = e.resources;
  node->own_disk = e.own_disk;
  state.learned[node->type] = e.resources;
  if (node->phase != NodePhase::kDraining) move(*node, NodePhase::kUp, "");
  mind_idleness(state, e.node);
  state.last_join = time;
}

void Applier::operator()(const NodeLost& e) {
  if (!e.silent) forget_cut_off(e.node);
  Node* node = node_at(state, e.node);
  if (!node || node->phase == NodePhase::kRemoving || node->phase == NodePhase::kLost) return;  // that is how it goes
  if (e.silent) note_cut_off(*node);
  node->silent = e.silent;
  // One that drained had lived.
  lose(*node, e.reason, node->phase != NodePhase::kDraining && time - node->since < kYoungDeath);
}

void Applier::operator()(const NodeDraining& e) {
  Node* node = node_at(state, e.node);
  if (!node || node->phase == NodePhase::kRemoving) return;
  node->update = e.update;
  node->deadline = e.deadline;
  node->noticed = e.noticed;
  if (!e.reasons.wanted.empty()) node->reasons = e.reasons;
  move(*node, NodePhase::kDraining, e.reason);
  if (node->departs()) begin_evacuations(*node);
}

void Applier::operator()(const NodeKept& e) {
  Node* node = node_at(state, e.node);
  if (!node || node->phase != NodePhase::kDraining) return;
  node->update = node->noticed = false;
  node->deadline = {};
  move(*node, NodePhase::kUp, "");
}

void Applier::operator()(const NodeRemoving& e) {
  if (Node* node = node_at(state, e.node)) {
    drop_workers(*node);
    if (!e.reasons.wanted.empty()) node->reasons = e.reasons;
    move(*node, NodePhase::kRemoving, e.reason);
  }
}

void Applier::operator()(const NodeGone& e) {
  if (!e.unreachable) forget_cut_off(e.node);
  if (Node* node = node_at(state, e.node)) {
    drop_workers(*node);
    Spent& spent = state.spent[node->type];
    ++spent.nodes;
    if (!node->never_was) spent.time += time - node->requested;
    spent.micros += cost_of(*node, time);
    lose_outputs(*node);
    state.nodes.erase(e.node);
    if (!state.old_recipes.empty()) state.old_recipes = still_needed(state, std::move(state.old_recipes));
  }
}

void Applier::operator()(const StrayFound&) { ++state.strays; }

void Applier::operator()(const ResourcesRequested& e) { state.wanted_bundles = e.bundles; }

void Applier::operator()(const ScaleHeld& e) {
  state.held = e.reasons;
  state.held_digest = digest(e.reasons);
  state.held_at = offset;
  state.held_time = time;
}

// What a node had that is no more will not come, but from a machine that is found again.
void Applier::lose_outputs(const Node& node) {
  const auto it = state.outputs_on.find(node.id);
  if (it == state.outputs_on.end()) return;
  for (const JobId& id : it->second) {
    Output* output = output_at(id, node.id);
    if (!output || output->phase != Output::Phase::kHeld) continue;
    output->phase = Output::Phase::kMissing;
    output->reason = node.reason.empty() ? "the node is gone" : "the node is gone: " + node.reason;
  }
  state.outputs_on.erase(it);
}

void Applier::move(Node& node, NodePhase phase, const std::string& reason) {
  node.phase = phase;
  node.since = time;
  node.changed = offset;
  node.reason = reason;
  mind_idleness(state, node.id);
  resize_in(kResizeSoon);
}

void Applier::lose(Node& node, const std::string& reason, bool young) {
  TypeHealth& health = state.health[node.type];
  health.failures = young ? health.failures + 1 : 0;
  if (young) {
    const int doublings = std::min(health.failures - 1, 10);
    health.not_before = later(time, std::min(kTypeBackoffFirst * (1 << doublings), Duration(kTypeBackoffMax)));
  }
  drop_workers(node);
  move(node, NodePhase::kLost, reason);
}

void Applier::begin_evacuations(const Node& node) {
  const auto it = state.jobs_on.find(node.id);
  if (it == state.jobs_on.end()) return;
  for (const JobId& id : it->second) {
    Job& job = state.jobs.at(id);
    if (!job.seat_on(node.id) || job.phase != JobPhase::kRunning || job.done.contains(node.id)) continue;
    Evacuation evacuation;
    evacuation.node = node.id;
    evacuation.cause = node.reason;
    evacuation.at = time;
    evacuation.deadline = node.deadline;
    evacuation.workers = job.workers();
    job.evacuation = std::move(evacuation);
    job.restarts.lost = true;  // whoever fails beside it has that for a cause
  }
}

// Nobody hears it: what it had of a started round may still run there.
void Applier::note_cut_off(const Node& node) {
  const auto it = state.jobs_on.find(node.id);
  if (it == state.jobs_on.end()) return;
  CutOff cut_off;
  cut_off.agent = node.agent;
  cut_off.address = node.info.address;
  cut_off.port = node.info.peer_port;
  for (const JobId& id : it->second) {
    Job& job = state.jobs.at(id);
    const bool ran = std::ranges::any_of(
        job.round, [&](const Seat& seat) { return seat.node == node.id && seat.agent == node.agent; });
    const auto beside = job.beside.find(node.id);
    const bool near = beside != job.beside.end() && beside->second.agent == node.agent;
    const bool done = job.phase == JobPhase::kRunning && job.done.contains(node.id);
    if ((!ran && !near) || done || ended(job.phase)) continue;
    cut_off.round = ran ? job.ran : beside->second.round;
    job.cut_off[node.id] = cut_off;
    state.beside_cut_off.insert(id);
  }
}

// It is known that no worker lives there.
void Applier::forget_cut_off(const NodeId& node) {
  std::erase_if(state.beside_cut_off, [&](const JobId& id) {
    Job& job = state.jobs.at(id);
    job.cut_off.erase(node);
    return job.cut_off.empty();
  });
}

// Its agent is gone, and workers die with their agent.
void Applier::drop_workers(const Node& node) {
  const auto it = state.jobs_on.find(node.id);
  if (it == state.jobs_on.end()) return;
  const std::set<JobId> affected = it->second;
  for (const JobId& id : affected) {
    change(id, [&](Job& job) {
      job.leaving.erase(node.id);
      job.beside.erase(node.id);
      if (job.evacuation && job.evacuation->node == node.id && job.evacuation->stopped == WallTime{}) {
        job.evacuation->stopped = time;
        job.evacuation->saved = false;
      }
      if (job.seat_on(node.id) && !job.done.contains(node.id)) job.restarts.lost = true;
    });
  }
}
// Whether the autoscaler's plan may be another one after it.
bool moves_scale(const Event& event) {
  return !std::holds_alternative<JobHeld>(event) && !std::holds_alternative<JobStarted>(event) &&
         !std::holds_alternative<SeatFailed>(event) && !std::holds_alternative<RestartCharged>(event) &&
         !std::holds_alternative<CheckpointMissed>(event) && !std::holds_alternative<OutputKept>(event) &&
         !std::holds_alternative<OutputMissing>(event) && !std::holds_alternative<ScaleHeld>(event) &&
         !std::holds_alternative<JobProfiled>(event) && !std::holds_alternative<StrayFound>(event) &&
         !std::holds_alternative<NodeStepped>(event);
}

void apply(State& state, const Record& record) {
  state.offset = record.offset;
  state.time = std::max(state.time, record.time);
  if (moves_scale(record.event)) ++state.scale_changes;
  std::visit(Applier{state, record.offset, state.time}, record.event);
  reindex(state, record.event);
}

}  // namespace rubato::cluster

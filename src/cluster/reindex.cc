#include "cluster/reindex.h"

#include <type_traits>

namespace rubato::cluster {

void mind_idleness(State& state, const NodeId& id) {
  const auto it = state.nodes.find(id);
  if (it == state.nodes.end()) return;
  Node& node = it->second;
  if (node.phase != NodePhase::kUp || state.jobs_on.contains(id)) {
    node.idle_since = {};
  } else if (node.idle_since == WallTime{}) {
    node.idle_since = state.time;
  }
}

namespace {

void move_on_nodes(State& state, const Job& job, const Whereabouts& before) {
  std::set<NodeId> touched;
  for (const Seat& seat : before.seats) touched.insert(seat.node);
  for (const auto& [node, workers] : before.leaving) touched.insert(node);
  for (const NodeId& node : touched) {
    const auto it = state.jobs_on.find(node);
    if (it == state.jobs_on.end()) continue;
    it->second.erase(job.id);
    if (it->second.empty()) state.jobs_on.erase(it);
  }
  for (const Seat& seat : job.seats) {
    state.jobs_on[seat.node].insert(job.id);
    touched.insert(seat.node);
  }
  for (const auto& [node, workers] : job.leaving) {
    state.jobs_on[node].insert(job.id);
    touched.insert(node);
  }
  for (const NodeId& node : touched) {
    mind_idleness(state, node);
    state.index.update_node(state, node);
  }
}

}  // namespace

void reindex(State& state, const Job& job, const Whereabouts& before) {
  if (job.seats != before.seats || job.leaving != before.leaving) move_on_nodes(state, job, before);
  state.queued.erase(job.id);
  state.active.erase(job.id);
  // A queued job whose old workers are still going away needs care as well.
  if (job.phase == JobPhase::kQueued) state.queued.insert(job.id);
  if (!ended(job.phase) && (job.phase != JobPhase::kQueued || !job.leaving.empty())) state.active.insert(job.id);
  state.index.update_job(state, job.id);
}

void reindex(State& state, const Event& event) {
  const auto effect = [&]<class E>(const E& e) {
    if constexpr (std::is_same_v<E, ClusterConfigured> || std::is_same_v<E, HeadStarted>) {
      state.index.update_spec(state);
    } else if constexpr (
        requires { e.node; } && !requires { e.job; }) {
      state.index.update_node(state, e.node);
      const auto here = state.jobs_on.find(e.node);
      if (here == state.jobs_on.end()) return;
      // Whether they lack something depends on it.
      for (const JobId& job : here->second) state.index.update_job(state, job);
    }
  };
  std::visit(effect, event);
}

}  // namespace rubato::cluster

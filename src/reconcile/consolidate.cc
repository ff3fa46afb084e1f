#include "reconcile/consolidate.h"

#include <fmt/format.h>

#include <algorithm>

#include "policy/board.h"

namespace rubato::reconcile {

using cluster::Job;
using cluster::JobPhase;
using cluster::later;
using cluster::Node;
using cluster::NodeDraining;
using cluster::NodePhase;
using cluster::Seat;
using cluster::State;
using cluster::Wake;

namespace {

bool agrees(const Job& job) {
  return job.phase == JobPhase::kRunning && job.spec.workers_min < job.spec.workers_max && job.done.empty() &&
         !job.restarts.failure_pending && job.leaving.empty();
}

// Nothing has moved for the whole time.
bool settled(const State& state, Duration after, WallTime now, Wake& wake) {
  WallTime last = state.last_join;
  for (const JobId& id : state.active) {
    const Job& job = state.jobs.at(id);
    last = std::max({last, job.since, job.rescaled, job.ended_at});
  }
  const WallTime due = later(last, after);
  if (now >= due) return true;
  wake.by(due);
  return false;
}

struct Move {
  const Node* node = nullptr;
  int workers = 0;
  int64_t saved = 0, cost = 0;  // in millionths
};

int64_t price(const State& state, const NodeId& id) {
  const auto it = state.nodes.find(id);
  return it == state.nodes.end() ? 0 : cluster::price_micros(it->second.offering.price_per_hour);
}

// All of its work fits on the others: nullopt when it does not, or may not be moved.
std::optional<Move> move_off(const State& state, const Node& node, Duration after) {
  const auto here = state.jobs_on.find(node.id);
  if (here == state.jobs_on.end()) return std::nullopt;
  policy::Board board(state);
  Move move;
  move.node = &node;
  move.saved = cluster::cost_micros(price(state, node.id), after);
  for (const JobId& id : here->second) {
    const Job& job = state.jobs.at(id);
    if (!agrees(job)) return std::nullopt;
    std::set<NodeId> shunned{node.id};
    for (const auto& [other, until] : job.shunned) shunned.insert(other);
    std::vector<Seat> others;
    int workers = 0;
    for (const Seat& seat : job.seats) {
      move.cost += cluster::cost_micros(price(state, seat.node), kMoveTime);
      if (seat.node == node.id) {
        workers = seat.workers;
      } else {
        others.push_back(seat);
      }
    }
    if (!board.take(job.spec.per_worker, workers, shunned, others)) return std::nullopt;
    move.workers += workers;
  }
  return move;
}

bool may_go(const State& state, const Node& node) {
  if (node.head || node.phase != NodePhase::kUp || node.offering.price_per_hour <= 0) return false;
  const auto type = state.spec->types.find(node.type);
  if (type == state.spec->types.end()) return false;
  const auto alike = std::ranges::count_if(state.nodes, [&](const auto& entry) {
    return entry.second.type == node.type && !entry.second.head && entry.second.phase == NodePhase::kUp;
  });
  return alike > type->second.min_workers;
}

}  // namespace

std::optional<cluster::Event> consolidate(const State& state, WallTime now, Wake& wake) {
  const std::optional<Duration> after = state.spec->scaling.consolidate_after;
  if (!after || !state.queued.empty() || !settled(state, *after, now, wake)) return std::nullopt;
  std::optional<Move> best;
  for (const auto& [id, node] : state.nodes) {
    if (!may_go(state, node)) continue;
    const std::optional<Move> move = move_off(state, node, *after);
    if (!move || move->saved <= move->cost) continue;
    if (!best || move->saved - move->cost > best->saved - best->cost) best = move;
  }
  if (!best) return std::nullopt;
  NodeDraining draining;
  draining.node = best->node->id;
  draining.reason =
      fmt::format("its {} worker{} fit on other nodes, and that pays", best->workers, best->workers == 1 ? "" : "s");
  draining.reasons.wanted =
      fmt::format("fewer nodes for the same work (consolidate_after {})", format_duration(*after));
  draining.reasons.others.push_back(
      {fmt::format("staying costs ${:.4f} in {}, moving ${:.4f}", static_cast<double>(best->saved) / 1e6,
                   format_duration(*after), static_cast<double>(best->cost) / 1e6),
       ""});
  return draining;
}

}  // namespace rubato::reconcile

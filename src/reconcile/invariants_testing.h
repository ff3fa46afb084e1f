// What must hold after every record, whatever happens.
#pragma once

#include <gtest/gtest.h>

#include "reconcile/cluster_testing.h"

namespace rubato::reconcile {

// The indexes are what the jobs say.
inline void check_indexes(const State& state) {
  std::set<JobId> active, queued, gone;
  std::map<NodeId, std::set<JobId>> jobs_on;
  for (const auto& [id, job] : state.jobs) {
    EXPECT_EQ(id, job.id);
    if (ended(job.phase)) {
      gone.insert(id);
      EXPECT_TRUE(job.seats.empty() && job.leaving.empty());
      continue;
    }
    if (job.phase == JobPhase::kQueued) queued.insert(id);
    if (job.phase != JobPhase::kQueued || !job.leaving.empty()) active.insert(id);
    for (const Seat& seat : job.seats) jobs_on[seat.node].insert(id);
    for (const auto& [node, workers] : job.leaving) {
      EXPECT_GT(workers, 0);
      jobs_on[node].insert(id);
    }
  }
  EXPECT_EQ(active, state.active);
  EXPECT_EQ(queued, state.queued);
  EXPECT_EQ(jobs_on, state.jobs_on);
  EXPECT_EQ(gone, std::set<JobId>(state.ended_jobs.begin(), state.ended_jobs.end()));
  EXPECT_EQ(gone.size(), state.ended_jobs.size());
}

inline void check_room(const State& state) {
  for (const auto& [id, node] : state.nodes) {
    if (node.phase != NodePhase::kUp && node.phase != NodePhase::kDraining) continue;
    const Resources used = used_on(state, id);
    EXPECT_TRUE(used.fits_in(node.resources))
        << id.value << " has " << describe(node.resources) << ", used " << describe(used);
  }
}

inline void check_placed(const State& before, const State& after, const JobPlaced& event) {
  const Job& job = after.jobs.at(event.job);
  EXPECT_EQ(event.generation, before.jobs.at(event.job).generation + 1);
  EXPECT_GE(job.workers(), job.spec.workers_min);
  EXPECT_LE(job.workers(), job.spec.workers_max);
  EXPECT_EQ(job.workers() % job.spec.workers_step, 0);
  std::set<NodeId> nodes;
  for (const Seat& seat : job.seats) {
    EXPECT_GT(seat.workers, 0);
    EXPECT_TRUE(nodes.insert(seat.node).second) << "two seats on " << seat.node.value;
    ASSERT_TRUE(before.nodes.contains(seat.node)) << "seat on a node that is gone";
    EXPECT_TRUE(before.nodes.at(seat.node).usable()) << seat.node.value;
    EXPECT_EQ(before.nodes.at(seat.node).agent, seat.agent);
  }
}

inline void check_sized(const State& after, const JobSized& event) {
  const JobSpec& spec = after.jobs.at(event.job).spec;
  for (const int workers : {event.workers, event.worthwhile}) {
    EXPECT_GE(workers, spec.workers_min);
    EXPECT_LE(workers, spec.workers_max);
    EXPECT_EQ(workers % spec.workers_step, 0);
  }
}

inline void check_started(const State& before, const State& after, const Observed& observed, const JobStarted& event) {
  const Job& job = after.jobs.at(event.job);
  EXPECT_TRUE(gathering(before.jobs.at(event.job).phase));
  EXPECT_EQ(event.generation, job.generation);
  const Job& last = before.jobs.at(event.job);
  EXPECT_EQ(event.in_place, last.in_place);
  if (event.in_place) {
    // Somebody has the job's state, and has left the older generation: that cannot go on without it.
    ASSERT_TRUE(event.plan && last.plan);
    const auto lives_on = [&](const elastic::PlannedWorker& one) {
      return std::ranges::find(last.plan->members, one.id, &elastic::PlannedWorker::id) != last.plan->members.end();
    };
    EXPECT_TRUE(std::ranges::any_of(event.plan->members, lives_on));
  } else {
    EXPECT_TRUE(job.leaving.empty()) << "generation " << job.generation << " starts beside workers of an older one";
  }
  if (event.plan) {
    EXPECT_EQ(event.plan->members.size(), static_cast<size_t>(job.workers()));
  }
  int next = 0;
  for (const Seat& seat : job.seats) {
    EXPECT_TRUE(observed.of(job.id, seat.node, job.generation)) << seat.node.value << " was not ready";
    for (const elastic::JobOrder& job_order : orders_for(after, seat.node, "/out").job_orders) {
      if (job_order.job != job.id) continue;
      EXPECT_EQ(job_order.phase, elastic::Phase::kRunning);
      EXPECT_EQ(job_order.place.first_rank, next);
      EXPECT_EQ(job_order.place.world_size, job.workers());
      EXPECT_EQ(job_order.workers, seat.workers);
      next += job_order.workers;
    }
  }
  EXPECT_EQ(next, job.workers());
}

// Who has ended well everywhere, whether the head has heard it or not, is not run again.
inline void check_not_finished(const FakeCluster& cluster, const Job& before) {
  if (before.ran == 0) return;
  bool finished = true;
  for (const NodeId& node : before.unfinished) {
    const auto agent = cluster.agents.find(node);
    if (agent == cluster.agents.end()) return;
    const auto part = agent->second.parts.find(before.id);
    finished = finished && part != agent->second.parts.end() && part->second.finished == before.ran;
  }
  EXPECT_FALSE(finished) << before.id.value << " had ended well, and is run again";
}

inline void check_record(const FakeCluster& cluster, const State& before, const State& after, const Record& record) {
  EXPECT_TRUE(after.index == index_of(after)) << "what apply() keeps is what follows from the state";
  const std::optional<JobId> id = job_of(record.event);
  if (id && before.jobs.contains(*id)) {
    const bool of_output =
        std::holds_alternative<OutputKept>(record.event) || std::holds_alternative<OutputMissing>(record.event);
    EXPECT_TRUE(of_output || !ended(before.jobs.at(*id).phase)) << "it had ended";
    EXPECT_LE(after.jobs.at(*id).restarts.used, after.jobs.at(*id).spec.max_restarts);
    EXPECT_GE(after.jobs.at(*id).generation, before.jobs.at(*id).generation);
  }
  if (const auto* placed = std::get_if<JobPlaced>(&record.event)) check_placed(before, after, *placed);
  if (const auto* sized = std::get_if<JobSized>(&record.event)) check_sized(after, *sized);
  if (const auto* started = std::get_if<JobStarted>(&record.event))
    check_started(before, after, cluster.observed, *started);
  if (const auto* started = std::get_if<JobStarted>(&record.event); started && !started->in_place)
    check_not_finished(cluster, before.jobs.at(started->job));
  if (const auto* charged = std::get_if<RestartCharged>(&record.event)) {
    EXPECT_TRUE(before.jobs.at(charged->job).restarts.failure_pending) << "nothing failed";
    EXPECT_FALSE(before.jobs.at(charged->job).restarts.lost) << "a lost node costs nothing";
    EXPECT_EQ(charged->used, before.jobs.at(charged->job).restarts.used + 1);
  }
  check_indexes(after);
  check_room(after);
}

// The truth at the agents: no node is overcommitted, and no two generations of a job run at once: but for such as live
// on from each other, of which at most one can train (check_started).
inline void check_truth(const FakeCluster& cluster) {
  std::map<JobId, Generation> alive;
  for (const auto& [node, agent] : cluster.agents) {
    Resources used;
    for (const auto& [job, part] : agent.parts) {
      if (part.live == 0) continue;
      used += times(part.asked.spec.per_worker, part.live);
      const Generation group = cluster.groups.at(job).at(part.group);
      const auto [it, first] = alive.emplace(job, group);
      EXPECT_EQ(it->second, group) << job.value << ": two generations at once";
    }
    const auto known = cluster.state.nodes.find(node);
    if (known == cluster.state.nodes.end()) continue;
    EXPECT_TRUE(used.fits_in(known->second.resources)) << node.value << " runs " << describe(used);
  }
}

}  // namespace rubato::reconcile

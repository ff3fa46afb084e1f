// A head that was dead, stopped or frozen acts on what it has heard, not on what it has not heard yet.
#include <gtest/gtest.h>

#include "sim/cluster_testing.h"

namespace rubato::sim {
namespace {

using cluster::JobPhase;

WorkerBehaviour trains_for(Duration time, Duration ends_within = 100ms) {
  return [time, ends_within](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel model;
    model.start_delay = 300ms;
    model.runs = time;
    model.sigterm_delay = ends_within;
    return model;
  };
}

int count_of(const ClusterSim& cluster, std::string_view type) {
  int count = 0;
  for (const auto& [offset, bytes] : cluster.journal.records())
    count += cluster::type_name(cluster::decode(offset, bytes).event) == type ? 1 : 0;
  return count;
}

size_t nodes_up(const ClusterSim& cluster) {
  if (!cluster.head_up()) return 0;
  return static_cast<size_t>(std::ranges::count_if(
      cluster.state().nodes, [](const auto& entry) { return entry.second.phase == cluster::NodePhase::kUp; }));
}

void expect_ran_once(ClusterSim& cluster, size_t workers) {
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 300s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded) << cluster.story();
  EXPECT_EQ(cluster.job(0)->generation, 1u) << cluster.story();
  EXPECT_EQ(cluster.sim.workers.past().size(), workers) << cluster.story();
}

// There is room for it to grow, so that the first thing a new head would decide is a new generation.
void run_beside_free_nodes(ClusterSim& cluster, JobSpec spec) {
  cluster.text = ClusterSim::cluster_text(1);
  cluster.start_head();
  cluster.submit(std::move(spec));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 1; }, 60s));
  cluster.text = ClusterSim::cluster_text(3);
  ASSERT_TRUE(cluster.run_until([&] { return nodes_up(cluster) == 3; }, 60s)) << cluster.story();
  ASSERT_EQ(cluster.job(0)->workers(), 1);
}

TEST(NewHead, DoesNotRunAgainWhatEndedWellWhileNobodyLed) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterSim cluster(seed, 3);
    cluster.behaviour = trains_for(4s);
    run_beside_free_nodes(cluster, sim_job(1, 3));
    cluster.kill_head();
    cluster.sim.simulator.run_for(10s);
    cluster.start_head();
    expect_ran_once(cluster, 1);
  }
}

TEST(NewHead, SaysThatAJobEndedInTimeWhoseTimeoutPassedMeanwhile) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterSim cluster(seed, 3);
    cluster.behaviour = trains_for(4s);
    JobSpec spec = sim_job(1, 1);
    spec.timeout = 8s;
    run_beside_free_nodes(cluster, spec);
    cluster.kill_head();
    cluster.sim.simulator.run_for(20s);
    cluster.start_head();
    expect_ran_once(cluster, 1);
  }
}

TEST(NewHead, StillStopsAJobThatRunsBeyondItsTimeout) {
  ClusterSim cluster(1, 3);
  cluster.behaviour = trains_for(600s);
  JobSpec spec = sim_job(1, 1);
  spec.timeout = 8s;
  run_beside_free_nodes(cluster, spec);
  cluster.kill_head();
  cluster.sim.simulator.run_for(20s);
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 60s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kFailed);
}

// Stopped (SIGSTOP) for longer than the adoption time, at every moment around its start.
TEST(NewHead, ThatIsStoppedGivesNobodyUp) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    ClusterSim cluster(seed, 3);
    cluster.behaviour = trains_for(60s);
    cluster.start_head();
    cluster.submit(sim_job(3, 3));
    ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 3; }, 60s));
    cluster.kill_head();
    cluster.sim.simulator.run_for(1s);
    cluster.start_head();
    cluster.sim.simulator.run_for(std::chrono::milliseconds(seed * 20));
    cluster.head_program().stop();
    cluster.sim.simulator.run_for(16s);
    cluster.head_program().resume();
    expect_ran_once(cluster, 3);
    EXPECT_EQ(count_of(cluster, "node-lost"), 0) << seed << "\n" << cluster.story();
  }
}

TEST(OldHead, ThatIsStoppedOrFrozenGivesNobodyUp) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    ClusterSim cluster(seed, 3);
    cluster.behaviour = trains_for(90s);
    cluster.start_head();
    cluster.submit(sim_job(3, 3));
    ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 3; }, 60s));
    for (int i = 0; i < 3; ++i) {
      cluster.sim.simulator.run_for(std::chrono::milliseconds(seed * 37));
      const Duration span = std::chrono::milliseconds(500 * ((seed + static_cast<uint64_t>(i)) % 40));
      if (seed % 2 == 0) {
        cluster.head_program().stop();
        cluster.sim.simulator.run_for(span);
        cluster.head_program().resume();
      } else {
        cluster.sim.machine(1).freeze();
        cluster.sim.simulator.run_for(span);
        cluster.sim.machine(1).thaw();
      }
    }
    expect_ran_once(cluster, 3);
    EXPECT_EQ(count_of(cluster, "node-lost"), 0) << seed << "\n" << cluster.story();
  }
}

// The report that a job has ended well, and in time, waits in the socket while the head stands still.
TEST(OldHead, ReadsWhatCameMeanwhileBeforeItDecides) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    ClusterSim cluster(seed, 3);
    cluster.behaviour = trains_for(4s);
    JobSpec spec = sim_job(1, 3);
    spec.timeout = 8s;
    run_beside_free_nodes(cluster, spec);
    cluster.head_program().stop();
    cluster.sim.simulator.run_for(20s);
    cluster.head_program().resume();
    expect_ran_once(cluster, 1);
  }
}

// An agent that dies while the head stands still is given up when the head has listened.
TEST(OldHead, ThatWasStoppedStillReplacesTheDead) {
  ClusterSim cluster(1, 3, 5);
  cluster.behaviour = trains_for(60s);
  cluster.start_head();
  cluster.submit(sim_job(3, 3));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 3; }, 60s));
  cluster.head_program().stop();
  cluster.sim.simulator.run_for(5s);
  cluster.machines.agent(cluster.machines.list().front()).kill();
  cluster.sim.simulator.run_for(11s);
  cluster.head_program().resume();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 300s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded) << cluster.story();
  EXPECT_EQ(count_of(cluster, "node-lost"), 1) << cluster.story();
}

// Told to grow in the moment in which it ends, a millisecond earlier or later: who has ended well has ended.
TEST(Growth, OfAJobThatHasJustEndedDoesNotRunItAgain) {
  // When it is decided, in the time of its training.
  ClusterSim first(1, 3);
  first.behaviour = trains_for(60s);
  run_beside_free_nodes(first, sim_job(1, 3));
  ASSERT_TRUE(first.run_until([&] { return first.job(0)->generation == 2; }, 60s)) << first.story();
  const Duration decided = first.sim.now() - *first.sim.workers.live().begin()->second.trained_from;

  int grown = 0, spared = 0;
  for (int step = -60; step < 60; ++step) {
    ClusterSim cluster(1, 3);
    cluster.behaviour = trains_for(decided + step * 500us);
    run_beside_free_nodes(cluster, sim_job(1, 3));
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 300s)) << cluster.story();
    EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded) << cluster.story();
    const std::vector<WorkerRecord>& past = cluster.sim.workers.past();
    const bool ended_well = past.front().status && past.front().status->ok() && !past.front().told_to_end;
    EXPECT_EQ(past.size() > 1, !ended_well) << step << "\n" << cluster.story();
    grown += past.size() > 1 ? 1 : 0;
    spared += ended_well && count_of(cluster, "job-placed") > 1 ? 1 : 0;
  }
  EXPECT_GT(grown, 0);
  EXPECT_GT(spared, 0) << "none ended between the decision and the order";
}

// A worker fails; within a second another node's agent dies, while the workers take two seconds to end.
TEST(LostNode, IsReplacedWhileItsJobGathersAfterAFailure) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterSim cluster(seed, 3, 6);
    cluster.text =
        "cluster_name: sim\nprovider: {type: local}\nautoscaling: {max_workers: 3, idle_timeout: 60s}\n"
        "node_types:\n  small:\n    resources: {CPU: 1}\n    min_workers: 0\n    max_workers: 3\n";
    cluster.behaviour = [](const SpawnSpec&, const WorkerRecord& worker, Random&) {
      WorkerModel model;
      model.start_delay = 300ms;
      model.runs = 600s;
      model.sigterm_delay = 2s;
      model.talks = false;
      if (worker.world_size == 3 && worker.rank == 0 && worker.generation < 4) model.crash_after = 3s;
      return model;
    };
    cluster.start_head();
    JobSpec spec = sim_job(1, 3);
    spec.max_restarts = 5;
    cluster.submit(spec);
    const auto failed = [&] { return count_of(cluster, "seat-failed") > 0; };
    ASSERT_TRUE(cluster.run_until(failed, 120s)) << cluster.story();
    const rubato::NodeId other = cluster.job(0)->seats.back().node;
    cluster.sim.simulator.run_for(std::chrono::milliseconds(seed * 100));
    cluster.machines.agent(other).kill();
    const auto whole = [&] {
      const cluster::Job* job = cluster.job(0);
      return job && job->phase == JobPhase::kRunning && job->workers() == 3 && !job->seat_on(other);
    };
    EXPECT_TRUE(cluster.run_until(whole, 60s)) << seed << "\n" << cluster.story();
  }
}

}  // namespace
}  // namespace rubato::sim

// What comes in the end when nothing goes wrong any more.
#include <gtest/gtest.h>

#include "policy/place.h"
#include "reconcile/invariants_testing.h"

namespace rubato::reconcile {
namespace {

FakeCluster cluster_with(uint64_t seed, int nodes, double each) {
  FakeCluster cluster(seed);
  cluster.happen({ClusterConfigured{cluster_of({node_type("n", cpus(each), nodes, nodes)}), "text"}});
  return cluster;
}

void run_until(FakeCluster& cluster, const std::function<bool()>& done, int steps_max = 20'000) {
  for (int i = 0; i < steps_max && !done(); ++i) {
    if (!cluster.step()) break;
    check_truth(cluster);
  }
  EXPECT_TRUE(done());
}

bool all_ended(const FakeCluster& cluster) { return cluster.state.active.empty() && cluster.state.queued.empty(); }

TEST(Liveness, ElasticJobsReachTheMostTheyCanHave) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    FakeCluster cluster = cluster_with(seed, 3, 4);
    cluster.ends_rate = 0;  // they train for ever
    const int jobs = 1 + static_cast<int>(seed % 3);
    for (int i = 0; i < jobs; ++i) cluster.submit(job_of(1 + i, 4 + i));
    const auto settled = [&] {
      int workers = 0, most = 0;
      for (const auto& [id, job] : cluster.state.jobs) {
        if (job.phase != JobPhase::kRunning) return false;
        workers += job.workers();
        most += job.spec.workers_max;
      }
      return workers == std::min(12, most);
    };
    run_until(cluster, settled);
    // A node dies: its replacement is used as well.
    cluster.kill(cluster.agents.begin()->first);
    run_until(cluster, [&] { return cluster.dead.empty() && settled(); });
    for (const auto& [id, job] : cluster.state.jobs) EXPECT_EQ(job.restarts.used, 0);
  }
}

TEST(Liveness, AGangIsNotStarvedByAStreamOfSmallJobs) {
  FakeCluster cluster = cluster_with(3, 2, 4);
  cluster.ends_rate = 0.02;
  for (int i = 0; i < 6; ++i) cluster.submit(job_of(1, 1));
  const JobId gang = cluster.submit(job_of(8, 8));
  // Whenever there is room for one more, one more is submitted.
  const auto stream = [&] {
    if (cluster.state.queued.size() < 3) cluster.submit(job_of(1, 1));
    return cluster.state.jobs.at(gang).phase == JobPhase::kRunning;
  };
  cluster.check_idempotence = false;
  run_until(cluster, stream, 200'000);
  EXPECT_GE(cluster.state.jobs.at(gang).started - cluster.state.jobs.at(gang).submitted, policy::kStarvation)
      << "small ones passed it until then";
}

TEST(Liveness, EveryJobOfAMixedQueueEnds) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    FakeCluster cluster = cluster_with(seed, 4, 4);
    for (int i = 0; i < 12; ++i) {
      JobSpec spec = job_of(1 + i % 5, 1 + i % 5 + i % 3, cpus(1 + i % 2));
      spec.priority = i % 4;
      spec.owner = i % 3 ? "ann" : "bob";
      cluster.submit(spec);
    }
    run_until(cluster, [&] { return all_ended(cluster); });
    for (const auto& [id, job] : cluster.state.jobs) EXPECT_EQ(job.phase, JobPhase::kSucceeded);
  }
}

TEST(Liveness, AJobThatAlwaysFailsEndsAfterItsRestarts) {
  FakeCluster cluster = cluster_with(5, 2, 2);
  cluster.failure_rate = 1;
  cluster.ends_rate = 1;
  JobSpec spec = job_of(4, 4);
  spec.max_restarts = 3;
  const JobId job = cluster.submit(spec);
  run_until(cluster, [&] { return all_ended(cluster); });
  EXPECT_EQ(cluster.state.jobs.at(job).phase, JobPhase::kFailed);
  EXPECT_EQ(cluster.state.jobs.at(job).restarts.used, 3);
  EXPECT_EQ(cluster.state.jobs.at(job).generation, 5u) << "four starts, and the seats gathered for a fifth";
}

TEST(Liveness, AShutdownEndsAllJobsAndRemovesAllNodes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    FakeCluster cluster = cluster_with(seed, 3, 2);
    cluster.ends_rate = 0;
    for (int i = 0; i < 5; ++i) cluster.submit(job_of(2, 4));
    for (uint64_t i = 0; i < 10 * seed; ++i) cluster.step();
    cluster.happen({ShutdownRequested{}});
    run_until(cluster, [&] { return all_ended(cluster) && cluster.state.nodes.empty(); });
    for (const auto& [id, job] : cluster.state.jobs) EXPECT_EQ(job.phase, JobPhase::kStopped);
  }
}

TEST(Liveness, ANewHeadGoesOnWithTheWorkersThatRun) {
  FakeCluster cluster = cluster_with(9, 2, 2);
  cluster.ends_rate = 0;
  const JobId job = cluster.submit(job_of(4, 4));
  run_until(cluster, [&] { return cluster.state.jobs.at(job).phase == JobPhase::kRunning; });
  for (int i = 0; i < 50; ++i) cluster.step();
  cluster.restart_head(cluster.replayed());
  for (int i = 0; i < 50; ++i) cluster.step();
  EXPECT_EQ(cluster.state.jobs.at(job).phase, JobPhase::kRunning);
  EXPECT_EQ(cluster.state.jobs.at(job).generation, 1u) << "nobody noticed";
  cluster.ends_rate = 1;
  run_until(cluster, [&] { return all_ended(cluster); });
}

}  // namespace
}  // namespace rubato::reconcile

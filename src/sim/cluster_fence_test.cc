// Nodes that are cut off or stand still: workers of two generations of a job never live at once, and no training stops
// that need not. The cluster itself checks the first after each event (ClusterSim::broken).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "elastic/lease.h"
#include "sim/cluster_testing.h"

namespace rubato::sim {
namespace {

using cluster::JobPhase;

constexpr Duration kHeartbeat = 3s;
// A turn of the head, its commit, and the way to the agents.
constexpr Duration kRoundTrip = 500ms;

// Workers that do not notice each other, so that only the agents can end them.
WorkerModel deaf_worker() {
  WorkerModel model;
  model.start_delay = 100ms;
  model.runs = std::nullopt;
  model.talks = false;
  return model;
}

struct FenceSim : ClusterSim {
  FenceSim(uint64_t seed, int nodes, int spare, JobSpec spec,
           std::function<WorkerModel(const WorkerRecord&)> model = {})
      : ClusterSim(seed, nodes, nodes + spare) {
    behaviour = [model](const SpawnSpec&, const WorkerRecord& worker, Random&) {
      return model ? model(worker) : deaf_worker();
    };
    // As hosts over SSH: nobody ends what does not answer.
    machines.made.unreachable = [this](const rubato::NodeId& node) { return cut_off.contains(node); };
    start_head();
    submit(std::move(spec));
    EXPECT_TRUE(run_until([&] { return all_train(); }, 60s)) << story();
    sim.simulator.run_for(10s);
    EXPECT_TRUE(all_train()) << story();
    first = job(0)->generation;
    ended = sim.workers.past().size();
  }

  bool all_train() const {
    return job(0) && job(0)->phase == JobPhase::kRunning && job(0)->workers() == job(0)->spec.workers_max &&
           training(job(0)->id) == job(0)->workers();
  }
  rubato::NodeId seat(size_t number) const { return job(0)->seats.at(number).node; }
  SimMachine& machine(const rubato::NodeId& node) { return sim.machine(machines.machine_of(node)); }
  int live_on(const rubato::NodeId& node) {
    const NodeId here = machine(node).node();
    return static_cast<int>(
        std::ranges::count_if(sim.workers.live(), [&](const auto& one) { return one.second.machine == here; }));
  }
  void cut(const rubato::NodeId& node) {
    cut_off.insert(node);
    cut_at = sim.now();
    sim.network.isolate(machine(node).node());
  }
  void heal() {
    cut_off.clear();
    sim.network.heal();
  }
  // The next generation has started.
  bool runs_anew() const { return job(0) && job(0)->phase == JobPhase::kRunning && job(0)->generation > first; }
  testing::AssertionResult sound() const {
    if (broken.empty()) return testing::AssertionSuccess();
    return testing::AssertionFailure() << broken.front() << "\n" << story();
  }

  std::set<rubato::NodeId> cut_off;
  Instant cut_at{};
  Generation first = 0;  // that runs when the faults begin
  size_t ended = 0;      // workers until then
};

// (a), (d)
TEST(ClusterFence, ASilentNodeHasEndedItsWorkersBeforeTheNextGenerationStarts) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    FenceSim cluster(seed, 3, 0, sim_job(2, 3));
    const rubato::NodeId victim = cluster.seat(seed % 3);
    cluster.cut(victim);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.runs_anew(); }, 60s)) << cluster.story();
    EXPECT_LE(cluster.sim.now() - cluster.cut_at, kHeartbeat + 1s + kRoundTrip) << cluster.story();
    EXPECT_EQ(cluster.live_on(victim), 0) << "seed " << seed;
    cluster.sim.simulator.run_for(30s);
    EXPECT_EQ(cluster.job(0)->restarts.used, 0);
    EXPECT_TRUE(cluster.sound()) << "seed " << seed;
  }
}

// (d): half of two, the head with one of them.
TEST(ClusterFence, HalfOfAJobIsEnoughOnTheHeadsSide) {
  FenceSim cluster(1, 2, 0, sim_job(1, 2));
  cluster.cut(cluster.seat(1));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.runs_anew(); }, 60s)) << cluster.story();
  EXPECT_LE(cluster.sim.now() - cluster.cut_at, kHeartbeat + 1s + kRoundTrip) << cluster.story();
  EXPECT_TRUE(cluster.sound());
}

// A node that is cut off from the head alone hears of it from the others.
TEST(ClusterFence, ANodeThatOnlyTheHeadMissesIsToldByTheOthers) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    FenceSim cluster(seed, 3, 0, sim_job(2, 3));
    const rubato::NodeId victim = cluster.seat(2);
    cluster.cut_off.insert(victim);
    cluster.cut_at = cluster.sim.now();
    cluster.sim.network.cut({cluster.sim.machine(1).node()}, {cluster.machine(victim).node()});
    ASSERT_TRUE(cluster.run_until([&] { return cluster.runs_anew(); }, 60s)) << cluster.story();
    EXPECT_LE(cluster.sim.now() - cluster.cut_at, kHeartbeat + 1s + 2 * kRoundTrip) << "seed " << seed;
    EXPECT_EQ(cluster.live_on(victim), 0) << "seed " << seed;
    EXPECT_TRUE(cluster.sound()) << "seed " << seed;
  }
}

// (e)
TEST(ClusterFence, AJobThatLostMoreThanHalfWaitsForItsLease) {
  FenceSim cluster(1, 3, 3, sim_job(1, 3));
  cluster.cut(cluster.seat(1));
  cluster.cut(cluster.seat(2));
  cluster.sim.simulator.run_for(elastic::kDefaultLease - 10s);
  EXPECT_EQ(cluster.job(0)->generation, cluster.first) << cluster.story();
  EXPECT_TRUE(cluster.run_until([&] { return cluster.runs_anew(); }, 20s)) << cluster.story();
  EXPECT_TRUE(cluster.sound());
}

TEST(ClusterFence, AJobOnOneNodeGoesOnForItsLeaseAndStartsElsewhereAfterIt) {
  JobSpec spec = sim_job(1, 1);
  spec.lease = 30s;
  FenceSim cluster(1, 2, 1, spec);
  const rubato::NodeId victim = cluster.seat(0);
  cluster.cut(victim);
  cluster.sim.simulator.run_for(25s);
  EXPECT_EQ(cluster.live_on(victim), 1) << "it trains on";
  EXPECT_EQ(cluster.job(0)->generation, cluster.first) << cluster.story();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.runs_anew(); }, 20s)) << cluster.story();
  EXPECT_GE(cluster.sim.now() - cluster.cut_at, 29s);
  EXPECT_EQ(cluster.live_on(victim), 0);
  EXPECT_TRUE(cluster.sound());
}

TEST(ClusterFence, ANodeThatComesBackWithinTheLeaseHasLostNothing) {
  FenceSim cluster(1, 2, 0, sim_job(1, 1));
  const rubato::NodeId victim = cluster.seat(0);
  cluster.cut(victim);
  cluster.sim.simulator.run_for(60s);
  cluster.heal();
  cluster.sim.simulator.run_for(200s);
  EXPECT_EQ(cluster.job(0)->generation, cluster.first) << cluster.story();
  EXPECT_EQ(cluster.sim.workers.past().size(), cluster.ended) << "no worker has ended";
  EXPECT_TRUE(cluster.sound());
}

TEST(ClusterFence, APersonsWordIsProofOfDeath) {
  FenceSim cluster(1, 2, 1, sim_job(1, 1));
  const rubato::NodeId victim = cluster.seat(0);
  cluster.cut_off.insert(victim);
  cluster.machine(victim).crash();
  cluster.sim.simulator.run_for(10s);
  EXPECT_EQ(cluster.job(0)->generation, cluster.first) << cluster.story();
  reconcile::DeclareNodeLost lost;
  lost.node = victim;
  lost.by = "ann";
  cluster.ask(lost);
  EXPECT_TRUE(cluster.run_until([&] { return cluster.runs_anew(); }, 5s)) << cluster.story();
  EXPECT_TRUE(cluster.sound());
}

TEST(ClusterFence, ARefusedConnectionIsProofOfDeath) {
  FenceSim cluster(1, 2, 1, sim_job(1, 1));
  const rubato::NodeId victim = cluster.seat(0);
  cluster.cut_off.insert(victim);
  cluster.machines.agent(victim).kill();
  EXPECT_TRUE(cluster.run_until([&] { return cluster.runs_anew(); }, 2s)) << cluster.story();
  EXPECT_TRUE(cluster.sound());
}

// (b)
TEST(ClusterFence, ADeadHeadStopsNothing) {
  for (const int nodes : {1, 3}) {
    FenceSim cluster(1, nodes, 0, sim_job(nodes, nodes));
    cluster.kill_head();
    cluster.sim.simulator.run_for(20min);
    EXPECT_EQ(cluster.sim.workers.past().size(), cluster.ended) << nodes;
    cluster.start_head();
    cluster.sim.simulator.run_for(60s);
    EXPECT_EQ(cluster.job(0)->generation, cluster.first) << cluster.story();
    EXPECT_EQ(cluster.sim.workers.past().size(), cluster.ended) << nodes;
  }
}

// (c)
TEST(ClusterFence, TheLossOfTheHeadsMachineStopsNothingBeforeTheLease) {
  for (const int nodes : {1, 2, 3, 5}) {
    for (const bool power : {false, true}) {
      FenceSim cluster(1, nodes, 0, sim_job(nodes, nodes));
      if (power) {
        cluster.sim.machine(1).crash();
      } else {
        cluster.sim.network.isolate(cluster.sim.machine(1).node());
      }
      cluster.sim.simulator.run_for(elastic::kDefaultLease - 5s);
      EXPECT_EQ(cluster.sim.workers.past().size(), cluster.ended) << nodes;
      if (power) cluster.sim.machine(1).reboot();
      if (power) cluster.start_head();
      cluster.heal();
      cluster.sim.simulator.run_for(60s);
      ASSERT_TRUE(cluster.head_up());
      EXPECT_EQ(cluster.job(0)->generation, cluster.first) << nodes << cluster.story();
      EXPECT_EQ(cluster.sim.workers.past().size(), cluster.ended) << nodes;
    }
  }
}

TEST(ClusterFence, WithoutTheHeadsMachineTrainingEndsWithTheLeaseAndIsTakenUpAgain) {
  JobSpec spec = sim_job(3, 3);
  spec.lease = 30s;
  FenceSim cluster(1, 3, 0, spec);
  cluster.sim.network.isolate(cluster.sim.machine(1).node());
  cluster.sim.simulator.run_for(40s);
  EXPECT_EQ(cluster.sim.workers.live().size(), 0u);
  cluster.heal();
  EXPECT_TRUE(cluster.run_until([&] { return cluster.runs_anew() && cluster.all_train(); }, 60s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->restarts.used, 0) << "it was no fault of the workers";
  EXPECT_TRUE(cluster.sound());
}

// Only the agent stands still, its workers do not: the guard keeps its promise.
TEST(ClusterFence, AStoppedAgentsGuardEndsItsWorkers) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    FenceSim cluster(seed, 3, 0, sim_job(2, 3));
    const rubato::NodeId victim = cluster.seat(1);
    cluster.cut_off.insert(victim);
    cluster.machines.agent(victim).stop();
    ASSERT_TRUE(cluster.run_until([&] { return cluster.runs_anew(); }, 60s)) << cluster.story();
    EXPECT_EQ(cluster.live_on(victim), 0) << "seed " << seed;
    cluster.machines.agent(victim).resume();
    cluster.sim.simulator.run_for(20s);
    EXPECT_TRUE(cluster.sound()) << "seed " << seed;
  }
}

TEST(ClusterFence, AnAgentThatIsStoppedForLessThanAHeartbeatLosesNothing) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    FenceSim cluster(seed, 3, 0, sim_job(3, 3));
    SimProgram& agent = cluster.machines.agent(cluster.seat(seed % 3));
    for (int pause = 0; pause < 5; ++pause) {
      agent.stop();
      cluster.sim.simulator.run_for(2400ms);
      agent.resume();
      cluster.sim.simulator.run_for(1500ms);
    }
    EXPECT_EQ(cluster.job(0)->generation, cluster.first) << "seed " << seed << "\n" << cluster.story();
    EXPECT_EQ(cluster.sim.workers.past().size(), cluster.ended) << "seed " << seed;
  }
}

// It stands still before it reads that it is to start, and goes on when the next generation runs without it: the others
// do not vouch for a round that they have left. Nor is it leave that the head is dead by then.
TEST(ClusterFence, AnOrderThatIsReadTooLateStartsNothing) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const bool head_dies = seed % 2 == 0;
    FenceSim cluster(seed, 4, 0, sim_job(1, 4));
    cluster.cut(cluster.seat(3));
    ASSERT_TRUE(cluster.run_until([&] { return cluster.runs_anew(); }, 60s)) << cluster.story();
    const Generation unread = cluster.job(0)->generation;
    const rubato::NodeId victim = cluster.seat(1);
    cluster.cut_off.insert(victim);
    cluster.machines.agent(victim).stop();
    const auto next = [&] { return cluster.runs_anew() && cluster.job(0)->generation > unread; };
    ASSERT_TRUE(cluster.run_until(next, 60s)) << cluster.story();
    cluster.sim.simulator.run_for(1s);
    if (head_dies) cluster.kill_head();
    cluster.machines.agent(victim).resume();
    cluster.sim.simulator.run_for(30s);
    EXPECT_TRUE(cluster.sound()) << "seed " << seed;
  }
}

// What was ordered last is not what they were started by.
TEST(ClusterFence, WorkersThatTakeLongToStopEndWithTheLeaseOfTheirRound) {
  FenceSim cluster(1, 4, 0, sim_job(1, 4), [](const WorkerRecord& worker) {
    WorkerModel model = deaf_worker();
    if (worker.rank == 1) model.sigterm_delay = 60s;
    return model;
  });
  const rubato::NodeId victim = cluster.seat(1);
  cluster.cut(cluster.seat(3));
  cluster.sim.simulator.run_for(6s);
  ASSERT_EQ(cluster.live_on(victim), 1) << "it saves";
  cluster.cut(victim);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.runs_anew(); }, 60s)) << cluster.story();
  EXPECT_LE(cluster.sim.now() - cluster.cut_at, kHeartbeat + 1s + kRoundTrip) << cluster.story();
  EXPECT_EQ(cluster.live_on(victim), 0);
  cluster.sim.simulator.run_for(30s);
  EXPECT_TRUE(cluster.sound());
}

// On one machine nobody can be cut off: a stall of everything hurts nobody, however long.
TEST(ClusterFence, WhereTheHeadEndsAgentsItselfNobodyHoldsALease) {
  ClusterSim cluster(1, 2);
  cluster.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) { return deaf_worker(); };
  cluster.machines.made.kills_for_sure = true;
  cluster.start_head();
  cluster.submit(sim_job(1, 2));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 2; }, 60s));
  cluster.sim.simulator.run_for(5s);
  const Generation generation = cluster.job(0)->generation;
  const size_t ended = cluster.sim.workers.past().size();
  for (const rubato::NodeId& node : cluster.machines.list()) cluster.machines.agent(node).stop();
  cluster.head_program().stop();
  cluster.sim.simulator.run_for(60s);
  EXPECT_EQ(cluster.sim.workers.live().size(), 2u);
  for (const rubato::NodeId& node : cluster.machines.list()) cluster.machines.agent(node).resume();
  cluster.head_program().resume();
  cluster.sim.simulator.run_for(60s);
  EXPECT_EQ(cluster.job(0)->generation, generation) << cluster.story();
  EXPECT_EQ(cluster.sim.workers.past().size(), ended);

  // One that stands still alone is killed, and only then do the others go on.
  cluster.machines.agent(cluster.job(0)->seats.at(0).node).stop();
  EXPECT_TRUE(cluster.run_until([&] { return cluster.job(0)->generation > generation; }, 10s));
  cluster.sim.simulator.run_for(30s);
  EXPECT_TRUE(cluster.broken.empty()) << cluster.broken.front() << cluster.story();
}

// Cuts of any shape, one after the other, while jobs grow, shrink and fail.
TEST(ClusterFence, NoPartitionLetsTwoGenerationsLive) {
  const char* count = std::getenv("RUBATO_SEEDS");
  const char* one = std::getenv("RUBATO_SEED");
  const uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  const uint64_t last = one ? first : (count ? std::strtoull(count, nullptr, 10) : 60);
  for (uint64_t seed = first; seed <= last; ++seed) {
    Random random{seed};
    JobSpec spec = sim_job(1, 4);
    spec.lease = 20s;
    FenceSim cluster(seed, 4, 6, spec);
    for (int fault = 0; fault < 6; ++fault) {
      std::vector<NodeId> here, there;
      for (int number = 1; number <= cluster.sim.machines(); ++number)
        (random.chance(0.5) ? here : there).push_back(cluster.sim.machine(number).node());
      for (const rubato::NodeId& node : cluster.machines.list()) cluster.cut_off.insert(node);
      const bool one_way = random.chance(0.3);
      cluster.sim.network.cut(here, there, one_way ? SimNetwork::Direction::kOneWay : SimNetwork::Direction::kBoth);
      cluster.sim.simulator.run_for(std::chrono::milliseconds(random.below(40'000)));
      cluster.heal();
      cluster.sim.simulator.run_for(std::chrono::milliseconds(random.below(20'000)));
    }
    ASSERT_TRUE(cluster.sound()) << "RUBATO_SEED=" << seed;
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_train(); }, 600s)) << "RUBATO_SEED=" << seed << "\n"
                                                                              << cluster.story();
  }
}

}  // namespace
}  // namespace rubato::sim

// A real head that grows and shrinks its cluster on simulated machines: limits are kept, busy nodes stay, idle ones go,
// demand is served, nothing is launched twice and nothing leaks, whoever dies and whenever.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cluster/apply.h"
#include "sim/cluster_testing.h"

namespace rubato::sim {
namespace {

using cluster::JobPhase;
using cluster::NodePhase;
using cluster::State;

constexpr Duration kIdle = 20s;
constexpr int kMax = 4;

std::string elastic_text(int max = kMax) {
  return fmt::format(
      "cluster_name: sim\nprovider: {{type: local}}\nautoscaling: {{max_workers: {0}, idle_timeout: 20s}}\n"
      "node_types:\n  small:\n    resources: {{CPU: 1}}\n    min_workers: 0\n    max_workers: {0}\n"
      "    price_per_hour: 1\n",
      max);
}

WorkerBehaviour trains_for(Duration time) {
  return [time](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel model;
    model.start_delay = 300ms;
    model.runs = time;
    return model;
  };
}

// What must hold after every record of a life, by the journal that it left.
struct Story {
  int launches = 0;
  int idle_removals = 0;
  std::set<std::string> seen;
};

Story check_journal(const ClusterSim& cluster, const std::string& what) {
  Story story;
  State state;
  for (const auto& [offset, bytes] : cluster.journal.records()) {
    const cluster::Record record = cluster::decode(offset, bytes);
    story.seen.emplace(cluster::type_name(record.event));
    if (std::holds_alternative<cluster::NodeRequested>(record.event)) ++story.launches;
    if (const auto* removing = std::get_if<cluster::NodeRemoving>(&record.event)) {
      const cluster::Node& node = state.nodes.at(removing->node);
      if (removing->reason.starts_with("nothing to do")) {
        ++story.idle_removals;
        EXPECT_EQ(node.phase, NodePhase::kUp) << what;
        EXPECT_FALSE(state.jobs_on.contains(node.id)) << what << ": a busy node was removed, record " << offset;
        EXPECT_GE(record.time - node.idle_since, kIdle) << what << ": too early, record " << offset;
        EXPECT_FALSE(removing->reasons.wanted.empty()) << what;
      } else {
        EXPECT_NE(node.phase, NodePhase::kUp) << what << ": " << removing->reason << ", record " << offset;
      }
    }
    cluster::apply(state, record);
    EXPECT_LE(static_cast<int>(state.nodes.size()), state.spec ? state.spec->max_workers : 0)
        << what << ": the limit is not kept, record " << offset;
    if (testing::Test::HasFailure()) break;
  }
  return story;
}

// All jobs end well, then all nodes go, and no machine is left that anybody pays for.
void expect_served_and_gone(ClusterSim& cluster, const std::string& what) {
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 1200s)) << what << "\n" << cluster.story();
  for (size_t i = 0; i < cluster.wishes.size(); ++i) {
    ASSERT_EQ(cluster.job(i)->phase, JobPhase::kSucceeded) << what << ": job " << i << "\n" << cluster.story();
  }
  const auto empty = [&] {
    return cluster.head_up() && cluster.state().nodes.empty() && cluster.machines.made.nodes.empty();
  };
  ASSERT_TRUE(cluster.run_until(empty, 300s)) << what << "\n" << cluster.story();
}

TEST(Autoscale, GrowsForJobsAndShrinksWhenTheyAreDone) {
  ClusterSim cluster(1, kMax);
  cluster.text = elastic_text();
  cluster.behaviour = trains_for(60s);
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.head_up() && cluster.state().spec.has_value(); }, 10s));
  cluster.sim.simulator.run_for(60s);
  EXPECT_TRUE(cluster.state().nodes.empty()) << "nobody wants anything";
  cluster.submit(sim_job(1, 3));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 3; }, 60s))
      << cluster.story();
  EXPECT_EQ(cluster.state().nodes.size(), 3u);
  cluster.submit(sim_job(1, 1));
  expect_served_and_gone(cluster, "one by one");
  const Story story = check_journal(cluster, "one by one");
  EXPECT_EQ(story.launches, 4);
  EXPECT_EQ(story.idle_removals, 4);
  EXPECT_GT(cluster::cost_so_far(cluster.state(), cluster.state().time), 0);
}

TEST(Autoscale, AGangThatIsTooLargeLaunchesNothing) {
  ClusterSim cluster(1, kMax);
  cluster.text = elastic_text();
  cluster.start_head();
  cluster.submit(sim_job(kMax + 1, kMax + 1));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.head_up() && !cluster.state().held.against.empty(); }, 60s))
      << cluster.story();
  cluster.sim.simulator.run_for(300s);
  EXPECT_EQ(check_journal(cluster, "too large").launches, 0);
}

TEST(Autoscale, JobsThatComeAndGoDoNotMakeItFlap) {
  ClusterSim cluster(7, kMax);
  cluster.text = elastic_text();
  cluster.behaviour = trains_for(3s);
  cluster.start_head();
  // One small job every seven seconds: the node of the first serves all of them.
  for (int i = 0; i < 60; ++i) {
    cluster.submit(sim_job(1, 1));
    cluster.sim.simulator.run_for(7s);
  }
  expect_served_and_gone(cluster, "a stream");
  EXPECT_EQ(check_journal(cluster, "a stream").launches, 1) << cluster.story();
}

TEST(Autoscale, WhatCannotBeHadIsNotAskedForAllTheTime) {
  ClusterSim cluster(3, kMax);
  cluster.text = elastic_text();
  cluster.behaviour = trains_for(3s);
  for (int i = 0; i < 3; ++i) cluster.machines.made.create_errors.emplace_back(ErrorCode::kNoCapacity, "none left");
  cluster.start_head();
  cluster.submit(sim_job(1, 1));
  expect_served_and_gone(cluster, "no capacity");
  const Story story = check_journal(cluster, "no capacity");
  EXPECT_EQ(story.launches, 4) << "three in vain";
  const Duration waited = cluster.job(0)->started - cluster.job(0)->submitted;
  EXPECT_GE(waited, cluster::kShortageFirst * 7) << "1, 2, and 4 times the first back-off";
}

TEST(Autoscale, MachinesThatNobodyKnowsAreSweptAway) {
  ClusterSim cluster(3, kMax);
  cluster.text = elastic_text();
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.head_up() && cluster.state().spec.has_value(); }, 10s));
  provider::NodeOrder order;
  order.node = rubato::NodeId{"lost-1"};
  cluster.machines.made.nodes[order.node] = order;
  ASSERT_TRUE(cluster.run_until([&] { return cluster.machines.made.nodes.empty(); }, 120s));
  EXPECT_EQ(cluster.state().strays, 1u);
}

// Jobs one after the other, one that grows, and time in between for nodes to go.
void scenario(ClusterSim& cluster) {
  cluster.text = elastic_text();
  cluster.behaviour = trains_for(4s);
  cluster.start_head();
  cluster.submit(sim_job(2, 3));
  cluster.submit(sim_job(1, 1));
}

TEST(AutoscaleCrash, TheHeadDiesAtEachRecord) {
  uint64_t records = 0;
  {
    ClusterSim cluster(1, kMax, kMax + 2);
    scenario(cluster);
    expect_served_and_gone(cluster, "no crash");
    records = cluster.journal.end();
  }
  ASSERT_GT(records, 30u);
  for (uint64_t offset = 1; offset <= records && !HasFailure(); ++offset) {
    for (const Durable when : {Durable::kBefore, Durable::kAfter}) {
      ClusterSim cluster(1, kMax, kMax + 2);
      bool struck = false;
      cluster.journal.on_commit = [&](uint64_t at, Durable now) {
        if (struck || at != offset || now != when) return;
        struck = true;
        cluster.kill_head();
        cluster.sim.simulator.at(cluster.sim.now() + 700ms, [&cluster] { cluster.start_head(); });
      };
      scenario(cluster);
      const std::string what = fmt::format("{} record {}", when == Durable::kBefore ? "before" : "after", offset);
      expect_served_and_gone(cluster, what);
      check_journal(cluster, what);
      EXPECT_TRUE(struck) << what;
    }
  }
}

class ScalingChaos {
 public:
  explicit ScalingChaos(uint64_t seed) : cluster(seed, kMax, kMax + 4), random_{seed} {}

  void run() {
    cluster.text = elastic_text();
    cluster.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random& random) {
      WorkerModel model;
      model.start_delay = 300ms;
      model.runs = std::chrono::milliseconds(1000 + random.below(30'000));
      return model;
    };
    cluster.start_head();
    const int steps = 4 + static_cast<int>(random_.below(8));
    for (int i = 0; i < steps; ++i) {
      cluster.sim.simulator.run_for(std::chrono::milliseconds(random_.below(30'000)));
      strike();
    }
    cluster.sim.simulator.run_for(2s);
    if (!cluster.head_program().running()) cluster.start_head();
    cluster.machines.made.create_errors.clear();
    cluster.machines.made.remove_errors.clear();
    cluster.machines.made.create_delay = 200ms;
  }

  ClusterSim cluster;

 private:
  void strike() {
    const uint64_t kind = random_.below(10);
    if (kind <= 3) {
      const int least = 1 + static_cast<int>(random_.below(3));
      JobSpec spec = sim_job(least, least + static_cast<int>(random_.below(3)));
      spec.rescale_timeout = 10s;
      spec.checkpoint_timeout = 5s;
      spec.max_restarts = 50;
      cluster.submit(spec);
    } else if (kind == 4 && cluster.head_program().running()) {
      cluster.kill_head();
      cluster.sim.simulator.at(cluster.sim.now() + std::chrono::milliseconds(random_.below(6000)), [this] {
        if (!cluster.head_program().running()) cluster.start_head();
      });
    } else if (kind == 5) {
      const ErrorCode codes[] = {ErrorCode::kNoCapacity, ErrorCode::kQuota, ErrorCode::kAuth, ErrorCode::kUnavailable};
      for (uint64_t i = random_.below(3); i < 3; ++i)
        cluster.machines.made.create_errors.emplace_back(codes[random_.below(4)], "not now");
    } else if (kind == 6) {
      cluster.machines.made.remove_errors.emplace_back(ErrorCode::kUnavailable, "throttled");
    } else if (kind == 7) {
      cluster.machines.made.create_delay = std::chrono::milliseconds(200 + random_.below(90'000));
    } else {
      const std::vector<rubato::NodeId> nodes = cluster.machines.list();
      if (nodes.empty()) return;
      const rubato::NodeId node = nodes[random_.below(nodes.size())];
      SimMachine& machine = cluster.sim.machine(cluster.machines.machine_of(node));
      if (kind == 8 && machine.up()) machine.crash();
      if (kind == 9 && cluster.machines.agent(node).running()) cluster.machines.agent(node).kill();
    }
  }

  Random random_;
};

TEST(AutoscaleChaos, LimitsAreKeptDemandIsServedAndNothingIsLeft) {
  const char* one = std::getenv("RUBATO_SEED");
  const char* count = std::getenv("RUBATO_SEEDS");
  const uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  const uint64_t last = one ? first : (count ? std::strtoull(count, nullptr, 10) : 300);
  std::set<std::string> seen;
  int idle_removals = 0;
  for (uint64_t seed = first; seed <= last && !HasFailure(); ++seed) {
    const std::string replay =
        fmt::format("seed {}: RUBATO_SEED={} build/release/sim_test --gtest_filter='AutoscaleChaos*'", seed, seed);
    ScalingChaos chaos(seed);
    chaos.run();
    expect_served_and_gone(chaos.cluster, replay);
    const Story story = check_journal(chaos.cluster, replay);
    seen.insert(story.seen.begin(), story.seen.end());
    idle_removals += story.idle_removals;
  }
  if (one || HasFailure()) return;
  for (const char* type : {"node-failed", "node-lost", "scale-held", "node-gone", "job-held"}) {
    EXPECT_TRUE(seen.contains(type)) << type << " never happened";
  }
  EXPECT_GT(idle_removals, static_cast<int>(last));
}

}  // namespace
}  // namespace rubato::sim

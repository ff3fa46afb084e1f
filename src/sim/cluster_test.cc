#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "archive/package.h"
#include "core/text.h"
#include "sim/cluster_testing.h"

namespace rubato::sim {
namespace {

using cluster::JobPhase;
using cluster::NodePhase;

WorkerBehaviour trains_for(Duration span) {
  return [span](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel model;
    model.start_delay = 500ms;
    model.runs = span;
    return model;
  };
}

testing::AssertionResult sound(const ClusterSim& cluster) {
  if (cluster.broken.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << cluster.broken.front() << "\n" << cluster.story();
}

// A working folder in the head's store.
std::string packed(ClusterSim& cluster) {
  Files& files = cluster.head_program().world().files;
  files.make_folders("/src");
  files.make_folders("/cluster/packages");
  files.write_atomically("/src/train.py", "print('hello')\n");
  const archive::Package package = archive::pack(files, "/src", "/cluster/packages/new");
  files.rename("/cluster/packages/new", "/cluster/packages/" + package.hash + ".tar.zst");
  return package.hash;
}

TEST(Cluster, RunsAJobToItsEnd) {
  ClusterSim cluster(1, 2);
  cluster.behaviour = trains_for(10s);
  cluster.start_head();
  cluster.submit(sim_job(2, 2));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 60s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded);
  EXPECT_EQ(cluster.job(0)->generation, 1u);
  EXPECT_TRUE(sound(cluster));
}

// A provider's answer that comes while an earlier one is being committed is not yet in the state: the call must not be
// made again, or the agent that it started loses its network or its folder.
TEST(Cluster, MakesAndRemovesEachNodeOnce) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    ClusterSim cluster(seed, 4);
    cluster.start_head();
    const auto all_up = [&] {
      return cluster.head_up() && cluster.state().nodes.size() == 4 &&
             std::ranges::all_of(cluster.state().nodes, [](const auto& n) { return n.second.phase == NodePhase::kUp; });
    };
    ASSERT_TRUE(cluster.run_until(all_up, 60s)) << cluster.story();
    cluster.text = ClusterSim::cluster_text(1);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.state().nodes.size() == 1; }, 60s)) << cluster.story();
    std::map<std::pair<std::string, std::string>, int> times;
    for (const auto& [offset, bytes] : cluster.journal.records()) {
      const cluster::Record record = cluster::decode(offset, bytes);
      if (const auto node = cluster::node_of(record.event))
        ++times[{std::string(cluster::type_name(record.event)), node->value}];
    }
    for (const auto& [what, count] : times) {
      EXPECT_EQ(count, 1) << "seed " << seed << ": " << what.first << " " << what.second << "\n" << cluster.story();
    }
  }
}

TEST(Cluster, GrowsWhenNodesCome) {
  ClusterSim cluster(2, 2, 4);
  cluster.behaviour = trains_for(60s);
  cluster.start_head();
  cluster.submit(sim_job(1, 4));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 2; }, 60s))
      << cluster.story();
  cluster.text = ClusterSim::cluster_text(4);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.training(*cluster.wishes[0].job) == 4; }, 60s)) << cluster.story();
  // Both nodes were used by one rescale, and growing costs no restart.
  EXPECT_EQ(cluster.job(0)->restarts.used, 0);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 300s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded);
  EXPECT_TRUE(sound(cluster));
}

TEST(Cluster, ReplacesAKilledAgentAndTheJobGoesOn) {
  ClusterSim cluster(3, 3, 4);
  cluster.behaviour = trains_for(60s);
  cluster.start_head();
  cluster.submit(sim_job(1, 3));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 3; }, 60s))
      << cluster.story();
  cluster.machines.agent(rubato::NodeId{"small-2"}).kill();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.state().nodes.contains(rubato::NodeId{"small-4"}); }, 10s))
      << cluster.story();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.training(*cluster.wishes[0].job) == 3; }, 60s)) << cluster.story();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 300s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded);
  EXPECT_EQ(cluster.job(0)->restarts.used, 0) << "losing a node costs nothing";
  EXPECT_TRUE(sound(cluster));
}

TEST(Cluster, LeavesWorkersAloneWhileTheHeadIsAway) {
  ClusterSim cluster(4, 2);
  cluster.behaviour = trains_for(60s);
  cluster.start_head();
  cluster.submit(sim_job(2, 2));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 2; }, 60s))
      << cluster.story();
  cluster.kill_head();
  cluster.sim.simulator.run_for(30s);
  EXPECT_EQ(cluster.training(*cluster.wishes[0].job), 2);
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 300s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->generation, 1u) << cluster.story();
  EXPECT_EQ(cluster.sim.workers.past().size(), 2u) << "each worker was started once";
  EXPECT_TRUE(sound(cluster));
}

TEST(Cluster, HearsOfAnEndThatCameWhileTheHeadWasAway) {
  ClusterSim cluster(5, 2);
  cluster.behaviour = trains_for(20s);
  cluster.start_head();
  cluster.submit(sim_job(2, 2));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 2; }, 60s))
      << cluster.story();
  cluster.kill_head();
  cluster.sim.simulator.run_for(60s);
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 60s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded);
  EXPECT_EQ(cluster.sim.workers.past().size(), 2u);
}

TEST(Cluster, RestartsAFailedJobUntilItsBudgetIsUsed) {
  ClusterSim cluster(6, 2);
  cluster.behaviour = [](const SpawnSpec&, const WorkerRecord& record, Random&) {
    WorkerModel model;
    model.start_delay = 100ms;
    if (record.rank == 1) model.crash_after = 1s;
    return model;
  };
  cluster.start_head();
  JobSpec spec = sim_job(2, 2);
  spec.max_restarts = 2;
  cluster.submit(spec);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 120s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kFailed);
  EXPECT_EQ(cluster.job(0)->restarts.used, 2);
  EXPECT_EQ(cluster.job(0)->generation, 4u) << "the fourth gathered and did not start";
  EXPECT_NE(cluster.job(0)->reason.find("rank 1"), std::string::npos) << cluster.job(0)->reason;
  EXPECT_TRUE(sound(cluster));
}

TEST(Cluster, StopsAJobWithinItsGrace) {
  ClusterSim cluster(7, 2);
  cluster.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel model;
    model.sigterm_delay = std::nullopt;
    model.runs = std::nullopt;
    return model;
  };
  cluster.start_head();
  JobSpec spec = sim_job(2, 2);
  spec.grace = 5s;
  cluster.submit(spec);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 2; }, 60s))
      << cluster.story();
  cluster.record(cluster::JobStopping{*cluster.wishes[0].job, false, "test"});
  cluster.sim.simulator.run_for(4s);
  EXPECT_EQ(cluster.training(*cluster.wishes[0].job), 2) << "they have their grace";
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 10s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kStopped);
  EXPECT_TRUE(cluster.sim.workers.live().empty());
}

TEST(Cluster, GoesOnWithoutANodeThatDoesNotAnswer) {
  ClusterSim cluster(8, 3);
  cluster.behaviour = trains_for(60s);
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.head_up() && cluster.state().nodes.size() == 3; }, 10s));
  // Its agent is connected and beats, but has no room for the job's package.
  ASSERT_TRUE(cluster.run_until([&] { return cluster.machines.list().size() == 3; }, 10s));
  cluster.sim.machine(cluster.machines.machine_of(rubato::NodeId{"small-3"})).disk().set_free_bytes(0);
  cluster.sim.simulator.run_for(2s);
  JobSpec spec = sim_job(2, 3);
  spec.package = packed(cluster);
  spec.rescale_timeout = 20s;
  cluster.submit(spec);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 300s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded) << cluster.story();
  EXPECT_NE(cluster.story().find("not ready within 20.0s"), std::string::npos) << cluster.story();
}

TEST(Cluster, KillsWorkersThatDoNotSaveInTime) {
  ClusterSim cluster(9, 2, 3);
  cluster.behaviour = [](const SpawnSpec&, const WorkerRecord& record, Random&) {
    WorkerModel model;
    model.start_delay = 100ms;
    model.runs = 40s;
    if (record.generation == 1) model.sigterm_delay = std::nullopt;
    return model;
  };
  cluster.start_head();
  JobSpec spec = sim_job(1, 3);
  spec.checkpoint_timeout = 7s;
  cluster.submit(spec);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 2; }, 60s))
      << cluster.story();
  cluster.text = ClusterSim::cluster_text(3);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 300s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded);
  EXPECT_NE(cluster.story().find("saved nothing in time"), std::string::npos) << cluster.story();
  EXPECT_TRUE(sound(cluster));
}

TEST(Cluster, DeadlinesComeAlsoWhenTheWallClockIsSetBack) {
  ClusterSim cluster(8, 1);
  cluster.behaviour = trains_for(3600s);
  cluster.start_head();
  JobSpec spec = sim_job(1, 1);
  spec.timeout = 20s;
  cluster.submit(spec);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 1; }, 60s));
  cluster.sim.machine(1).clock().step_wall(-5h);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 120s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kFailed);
}

TEST(Cluster, ShutsDownJobsNodesAndItself) {
  ClusterSim cluster(10, 3);
  cluster.behaviour = trains_for(1000s);
  cluster.start_head();
  cluster.submit(sim_job(2, 2));
  cluster.submit(sim_job(2, 2));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 2; }, 60s))
      << cluster.story();
  cluster.record(cluster::ShutdownRequested{});
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.head_program().running(); }, 60s)) << cluster.story();
  EXPECT_EQ(cluster.head_program().exit_code(), 0);
  EXPECT_TRUE(cluster.sim.workers.live().empty());
  EXPECT_TRUE(cluster.machines.list().empty());
}

// The same seed gives the same journal.
TEST(Cluster, IsDeterministic) {
  std::vector<std::string> stories;
  for (int i = 0; i < 2; ++i) {
    ClusterSim cluster(11, 3, 4);
    cluster.behaviour = trains_for(30s);
    cluster.start_head();
    cluster.submit(sim_job(1, 3));
    cluster.submit(sim_job(2, 2));
    cluster.sim.simulator.run_for(20s);
    cluster.machines.agent(rubato::NodeId{"small-1"}).kill();
    cluster.run_until([&] { return cluster.all_ended(); }, 300s);
    stories.push_back(cluster.story() + fmt::format("{}", cluster.sim.simulator.hash()));
  }
  EXPECT_EQ(stories[0], stories[1]);
}

// ---- log lines ----

constexpr int kBurst = 50;

// Each worker prints its lines when it begins to train.
WorkerBehaviour prints_lines(Duration span) {
  return [span](const SpawnSpec&, const WorkerRecord& record, Random&) {
    WorkerModel model;
    model.start_delay = 500ms;
    model.runs = span;
    for (int i = 0; i < kBurst; ++i) model.output += fmt::format("{} {} {}\n", record.generation, record.rank, i);
    model.output += fmt::format("{} {} torn", record.generation, record.rank);
    return model;
  };
}

std::vector<std::string> logged(ClusterSim& cluster, const JobId& job) {
  std::vector<std::string> texts;
  const SimFile* log = cluster.sim.machine(1).disk().find(cluster.controller().logs().path(job));
  if (!log) return texts;
  for (const std::string_view line : split(trim(log->bytes), '\n')) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    if (entry.is_object()) texts.push_back(entry.at("text"));
  }
  return texts;
}

// Every line of every worker that came so far as to print, once.
void expect_all_logged(ClusterSim& cluster, const std::string& what) {
  std::vector<std::string> printed;
  for (const WorkerRecord& worker : cluster.sim.workers.past()) {
    if (!worker.trained_from) continue;
    for (int i = 0; i < kBurst; ++i) printed.push_back(fmt::format("{} {} {}", worker.generation, worker.rank, i));
    printed.push_back(fmt::format("{} {} torn", worker.generation, worker.rank));
  }
  std::vector<std::string> found = logged(cluster, *cluster.wishes[0].job);
  std::ranges::sort(printed);
  std::ranges::sort(found);
  EXPECT_EQ(found, printed) << what << "\n" << cluster.story();
}

TEST(ClusterLogs, LinesSurviveAnAgentThatIsKilledRightAfterThem) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    ClusterSim cluster(seed, 3, 5);
    cluster.behaviour = prints_lines(20s);
    cluster.start_head();
    cluster.submit(sim_job(1, 3));
    // At the very event with which they are printed, and at later ones.
    ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 3; }, 60s));
    if (seed > 5) cluster.sim.simulator.run_for(std::chrono::microseconds(100) * (1 << seed));
    cluster.machines.agent(cluster.machines.list().at(seed % 3)).kill();
    const bool head_too = seed % 2 == 0;
    if (head_too) {
      cluster.sim.simulator.run_for(10ms * seed);
      cluster.kill_head();
      cluster.sim.simulator.run_for(1s);
      cluster.start_head();
    }
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended() && cluster.state().nodes.size() == 3; }, 300s))
        << cluster.story();
    expect_all_logged(cluster, fmt::format("seed {}", seed));
  }
}

TEST(ClusterLogs, LinesSurviveAllAgentsAndTheHead) {
  ClusterSim cluster(21, 3, 6);
  cluster.behaviour = prints_lines(20s);
  cluster.start_head();
  cluster.submit(sim_job(3, 3));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 3; }, 60s));
  for (const rubato::NodeId& node : cluster.machines.list()) cluster.machines.agent(node).kill();
  cluster.kill_head();
  cluster.sim.simulator.run_for(1s);
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 300s)) << cluster.story();
  cluster.sim.simulator.run_for(60s);
  expect_all_logged(cluster, "all agents and the head");
}

}  // namespace
}  // namespace rubato::sim

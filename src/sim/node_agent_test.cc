// The agent of a cluster's node against a scripted head.
#include "node/node_agent.h"

#include <gtest/gtest.h>

#include <csignal>

#include "sim/scripted_head_testing.h"

namespace rubato::sim {
namespace {

using elastic::JobOrderState;
using elastic::Phase;
using Words = std::vector<std::string>;

const std::string kHash(64, 'b');

class NodeAgentTest : public testing::Test {
 protected:
  explicit NodeAgentTest(int nodes = 2) : cluster(7, nodes) {
    use(model);
    head.start(1);
    for (int i = 1; i <= nodes; ++i) cluster.start(i);
    sim.simulator.run_for(1s);
  }
  ~NodeAgentTest() override {
    if (HasFailure()) std::fputs(cluster.output().c_str(), stderr);
  }
  void use(const WorkerModel& worker) {
    sim.workers.behaviour = [worker](const SpawnSpec&, const WorkerRecord&, Random&) { return worker; };
  }
  SimDisk& disk(int node = 1) { return sim.machine(node + 1).disk(); }

  WorkerModel model;
  SimCluster cluster;
  Simulation& sim = cluster.sim;
  ScriptedHead& head = cluster.head;
};

TEST_F(NodeAgentTest, SaysWhoItIsAndBeats) {
  ASSERT_EQ(head.hellos.size(), 2u);
  EXPECT_EQ(head.hellos[0].version, "test");
  EXPECT_EQ(head.hellos[0].resources.of(kCpu), 4000);
  std::map<std::string, std::string> addresses;
  for (const elastic::Hello& hello : head.hellos) addresses[hello.node.value] = hello.info.address;
  EXPECT_EQ(addresses["n-1"], sim.machine(2).address());
  EXPECT_EQ(addresses["n-2"], sim.machine(3).address());
  EXPECT_NE(head.hellos[0].agent, head.hellos[1].agent);
  head.beats.clear();
  sim.simulator.run_for(6s);
  EXPECT_NEAR(static_cast<double>(head.beats["n-1"]), 12, 1);
  head.send_orders("n-1");
  sim.simulator.run_for(1s);
  EXPECT_EQ(head.acted_on["n-1"], head.revision);
}

TEST_F(NodeAgentTest, RunsAJobToItsEnd) {
  model.output = "one\ntwo\n";
  use(model);
  ASSERT_TRUE(cluster.run_generation(1, 2, 2));
  ASSERT_EQ(sim.workers.live().size(), 4u);
  const auto& env = sim.workers.live().begin()->second.env;
  EXPECT_EQ(env.at("WORLD_SIZE"), "4");
  EXPECT_EQ(env.at("LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(env.at("RUBATO_JOB_ID"), "j-1");
  EXPECT_EQ(env.at("RUBATO_NODE"), "n-1");
  EXPECT_EQ(env.at("ADAPTDL_REPLICA_RANK"), "0");
  ASSERT_TRUE(head.await("n-1", JobOrderState::kSucceeded, 1, 120s));
  ASSERT_TRUE(head.await("n-2", JobOrderState::kSucceeded, 1));
  EXPECT_EQ((head.states[{"n-1", "j-1"}]), (Words{"ready@1", "running@1", "succeeded@1"}));
  // All lines of its workers came before the word that they have ended.
  EXPECT_EQ((head.lines_at[{"n-1", "j-1"}]["succeeded@1"]), 4u);
  EXPECT_EQ((head.lines[{"n-2", "j-1"}][0].rank), 2);
  EXPECT_EQ((head.lines[{"n-2", "j-1"}][0].text), "one");

  head.order("n-1", cluster.job_order(Phase::kEnded, 1));
  ASSERT_TRUE(head.await("n-1", JobOrderState::kGone, 1));
  head.forget("n-1", "j-1");
  sim.simulator.run_for(1s);
  EXPECT_TRUE(head.reports.find({"n-1", "j-1"}) == head.reports.end());
  for (const auto& [path, file] : disk().files()) ADD_FAILURE() << path << " is left";
}

TEST_F(NodeAgentTest, TellsWhichWorkerFailedAndStopsTheOthers) {
  sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord& worker, Random&) {
    WorkerModel one;
    one.talks = false;
    if (worker.rank == 1) one.crash_after = 5s;
    if (worker.rank == 1) one.crash_status = ExitStatus{3, 0};
    return one;
  };
  ASSERT_TRUE(cluster.run_generation(1, 1, 3));
  ASSERT_TRUE(head.await("n-1", JobOrderState::kFailed, 1));
  ASSERT_EQ(head.report("n-1").failures.size(), 1u);
  EXPECT_EQ(head.report("n-1").failures[0].rank, 1);
  EXPECT_EQ(head.report("n-1").failures[0].exit_code, 3);
  EXPECT_EQ(head.report("n-1").failures[0].host, "n-1");
  EXPECT_TRUE(sim.workers.live().empty());
}

TEST_F(NodeAgentTest, ARescaleIsNoFailureAndANewRoundHasNewPlaces) {
  model.sigterm_status = ExitStatus{143, 0};  // AdaptDL's "I have saved and left"
  model.sigterm_delay = 1s;
  use(model);
  ASSERT_TRUE(cluster.run_generation(1, 1));
  sim.simulator.run_for(10s);
  ASSERT_TRUE(cluster.run_generation(2, 2, 2));
  EXPECT_EQ(sim.workers.live().size(), 4u);
  for (const auto& [id, worker] : sim.workers.live()) EXPECT_EQ(worker.generation, 2);
  EXPECT_EQ((head.states[{"n-1", "j-1"}]), (Words{"ready@1", "running@1", "preparing@2", "ready@2", "running@2"}));
  EXPECT_TRUE(head.report("n-1").forced.empty());
  ASSERT_TRUE(head.await("n-1", JobOrderState::kSucceeded, 2, 120s));
}

TEST_F(NodeAgentTest, NamesWorkersThatDidNotEndInTime) {
  model.sigterm_delay.reset();
  use(model);
  ASSERT_TRUE(cluster.run_generation(1, 1, 2));
  sim.simulator.run_for(10s);
  const Instant asked = sim.now();
  head.order("n-1", cluster.job_order(Phase::kGathering, 2));
  ASSERT_TRUE(head.await("n-1", JobOrderState::kReady, 2));
  EXPECT_GE(sim.now() - asked, 4900ms);
  EXPECT_EQ(head.report("n-1").forced, (Words{"rank 0", "rank 1"}));
}

TEST_F(NodeAgentTest, AnOrderTwiceChangesNothing) {
  ASSERT_TRUE(cluster.run_generation(1, 2));
  sim.simulator.run_for(5s);
  const auto before = sim.workers.live().begin()->first;
  for (int i = 0; i < 3; ++i) head.send_orders("n-1");
  sim.simulator.run_for(5s);
  EXPECT_EQ(sim.workers.live().size(), 2u);
  EXPECT_EQ(sim.workers.live().begin()->first, before);
  ASSERT_TRUE(head.await("n-1", JobOrderState::kSucceeded, 1, 120s));
  head.send_orders("n-1");
  sim.simulator.run_for(5s);
  EXPECT_TRUE(sim.workers.live().empty());
  EXPECT_TRUE(head.reported("n-1", JobOrderState::kSucceeded, 1));
}

TEST_F(NodeAgentTest, StopsAJobThatIsOverOrUnknown) {
  ASSERT_TRUE(cluster.run_generation(1, 2));
  sim.simulator.run_for(5s);
  head.order("n-1", cluster.job_order(Phase::kEnded, 1));
  ASSERT_TRUE(head.await("n-1", JobOrderState::kGone, 1));
  head.forget("n-2", "j-1");
  sim.simulator.run_for(3s);
  EXPECT_TRUE(sim.workers.live().empty());
}

TEST_F(NodeAgentTest, WorkersGoOnWithoutAHeadAndTheNextOneAdoptsThem) {
  model.output = "step\n";
  use(model);
  ASSERT_TRUE(cluster.run_generation(1, 2));
  sim.simulator.run_for(10s);
  const auto first = sim.workers.live().begin()->first;
  head.kill();
  sim.simulator.run_for(20s);
  EXPECT_EQ(sim.workers.live().size(), 2u);
  head.reports.clear();
  head.hellos.clear();
  head.start(2);
  sim.simulator.run_for(5s);
  ASSERT_EQ(head.hellos.size(), 2u);
  EXPECT_EQ(head.hellos[0].head_epoch, 1u);
  ASSERT_EQ(head.hellos[0].job_orders.size(), 1u);
  EXPECT_EQ(head.hellos[0].job_orders[0].state, JobOrderState::kRunning);
  EXPECT_EQ(sim.workers.live().begin()->first, first);
  ASSERT_TRUE(head.await("n-1", JobOrderState::kSucceeded, 1, 120s));
  EXPECT_EQ(sim.workers.past().size(), 2u);  // none was ever restarted
}

TEST_F(NodeAgentTest, WorkersThatEndWhileNoHeadIsThereAreToldOfLater) {
  model.output = "step\n";
  use(model);
  ASSERT_TRUE(cluster.run_generation(1, 1));
  head.kill();
  sim.simulator.run_for(120s);
  EXPECT_TRUE(sim.workers.live().empty());
  EXPECT_FALSE(head.reported("n-1", JobOrderState::kSucceeded, 1));
  head.start(2);
  ASSERT_TRUE(head.await("n-1", JobOrderState::kSucceeded, 1));
  EXPECT_EQ((head.lines_at[{"n-1", "j-1"}]["succeeded@1"]), 1u);
}

TEST_F(NodeAgentTest, AHeadThatWasReplacedIsNotObeyed) {
  ASSERT_TRUE(cluster.run_generation(1, 2));
  head.kill();
  head.start(5);
  sim.simulator.run_for(5s);
  head.kill();
  head.start(4);
  head.order("n-1", cluster.job_order(Phase::kEnded, 1));
  sim.simulator.run_for(20s);
  EXPECT_EQ(sim.workers.live().size(), 2u);
  head.kill();
  head.start(6);
  ASSERT_TRUE(head.await("n-1", JobOrderState::kGone, 1));
}

TEST_F(NodeAgentTest, FindsANewHeadElsewhere) {
  head.kill();
  node::NodeSettings settings = cluster.settings(1);
  cluster.agents[1]->kill();
  settings.find_head = [this] { return head.epoch == 2 ? std::optional(Endpoint{"node1", 9100}) : std::nullopt; };
  cluster.start(1, settings);
  head.hellos.clear();
  sim.simulator.run_for(10s);
  head.start(2, 9100);
  sim.simulator.run_for(5s);
  ASSERT_EQ(head.hellos.size(), 1u);
  EXPECT_EQ(head.hellos[0].node.value, "n-1");
}

std::string numbered(int lines) {
  std::string text;
  for (int i = 1; i <= lines; ++i) text += std::to_string(i) + "\n";
  return text;
}

TEST_F(NodeAgentTest, LinesAreSentAgainToTheNextHeadAndNoneIsLost) {
  model.output = numbered(50'000);
  use(model);
  head.acknowledges = false;
  ASSERT_TRUE(cluster.run_generation(1, 1));
  sim.simulator.run_for(2200ms);
  head.kill();
  sim.simulator.run_for(5s);
  auto& durable = head.durable[{"n-1", "j-1"}];
  ASSERT_GT(durable, 1000u);
  // The last of what it had heard was not durable.
  auto& lines = head.lines[{"n-1", "j-1"}];
  lines.resize(lines.size() / 2);
  durable = lines.back().sequence;
  head.acknowledges = true;
  head.start(2);
  ASSERT_TRUE(head.await("n-1", JobOrderState::kSucceeded, 1, 120s));
  ASSERT_EQ(lines.size(), 50'000u);
  for (size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i].text, std::to_string(i + 1));
  EXPECT_GT(head.duplicates, 0u);
}

TEST_F(NodeAgentTest, LinesOfAJobThatComesBackAreNotTakenForOldOnes) {
  model.output = numbered(10);
  use(model);
  ASSERT_TRUE(cluster.run_generation(1, 1));
  sim.simulator.run_for(10s);
  // It shrinks away from this node, all of it is forgotten here, and then it grows again.
  head.order("n-1", cluster.job_order(Phase::kEnded, 1));
  ASSERT_TRUE(head.await("n-1", JobOrderState::kGone, 1));
  head.forget("n-1", "j-1");
  sim.simulator.run_for(3s);
  ASSERT_EQ((head.lines[{"n-1", "j-1"}].size()), 10u);
  ASSERT_TRUE(cluster.run_generation(2, 1));
  sim.simulator.run_for(10s);
  EXPECT_EQ((head.lines[{"n-1", "j-1"}].size()), 20u);
  EXPECT_EQ(head.duplicates, 0u);
}

TEST_F(NodeAgentTest, SpooledLinesSurviveTheAgentAndItsWorkersDoNot) {
  model.output = numbered(10);
  use(model);
  ASSERT_TRUE(cluster.run_generation(1, 1));
  head.kill();
  sim.simulator.run_for(10s);  // training begins: the lines come while no head is there
  cluster.agents[1]->kill();
  EXPECT_TRUE(sim.workers.live().empty());
  cluster.start(1);
  head.job_orders.clear();
  head.start(2);
  sim.simulator.run_for(5s);
  EXPECT_EQ((head.lines[{"n-1", "j-1"}].size()), 10u);
  EXPECT_TRUE(sim.workers.live().empty());
}

TEST_F(NodeAgentTest, ASpawnThatFailsIsAReportAndNoEndOfTheAgent) {
  sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord& worker, Random&) -> WorkerModel {
    if (worker.rank == 1) throw Error(ErrorCode::kUsage, "cannot run 'pyton3': No such file or directory");
    return {};
  };
  head.order("n-1", cluster.job_order(Phase::kGathering, 1));
  ASSERT_TRUE(head.await("n-1", JobOrderState::kReady, 1));
  head.order("n-1", cluster.running(1, 1, 1, 2));
  ASSERT_TRUE(head.await("n-1", JobOrderState::kFailed, 1));
  ASSERT_EQ(head.report("n-1").failures.size(), 1u);
  EXPECT_NE(head.report("n-1").failures[0].message.find("pyton3"), std::string::npos);
  EXPECT_TRUE(sim.workers.live().empty());
  ASSERT_EQ((head.lines[{"n-1", "j-1"}].size()), 1u);
  use(model);
  EXPECT_TRUE(cluster.run_generation(2, 1));
}

TEST_F(NodeAgentTest, APackageIsFetchedOnceAndEachJobHasItsOwnCopy) {
  head.packages[kHash] = "print('" + std::string(5000, 'x') + "')";
  for (const char* job : {"j-1", "j-2"}) {
    elastic::JobOrder job_order = cluster.job_order(Phase::kGathering, 1);
    job_order.job.value = job;
    job_order.spec.package = kHash;
    head.order("n-1", job_order);
  }
  ASSERT_TRUE(head.await("n-1", JobOrderState::kReady, 1, 60s, "j-1"));
  ASSERT_TRUE(head.await("n-1", JobOrderState::kReady, 1, 60s, "j-2"));
  EXPECT_EQ(head.wanted.size(), 6u);  // parts of 1000 bytes
  EXPECT_NE(head.report("n-1", "j-1").port, head.report("n-1", "j-2").port);
  const SimFile* script = disk().find("/node/jobs/j-1/work/train.py");
  ASSERT_NE(script, nullptr);
  EXPECT_EQ(script->bytes, head.packages[kHash]);
  EXPECT_NE(disk().find("/node/jobs/j-2/work/data/run.sh"), nullptr);
  EXPECT_EQ(disk().find("/node/packages/" + kHash + ".part"), nullptr);

  std::string cwd;
  sim.workers.behaviour = [&cwd](const SpawnSpec& spec, const WorkerRecord&, Random&) {
    cwd = spec.cwd;
    return WorkerModel{};
  };
  elastic::JobOrder running = cluster.running(1, 1);
  running.spec.package = kHash;
  head.order("n-1", running);
  ASSERT_TRUE(head.await("n-1", JobOrderState::kRunning, 1));
  EXPECT_EQ(cwd, "/node/jobs/j-1/work");
}

Task<void> work_later(SimProgram*& program, std::function<void()> work) {
  co_await Sleep(program->loop(), program->loop().now() + 30s);
  work();
}

TEST_F(NodeAgentTest, BeatsGoOnWhileALargePackageIsUnpacked) {
  head.packages[kHash] = "print('hello')";
  cluster.agents[1]->kill();
  node::NodeSettings settings = cluster.settings(1);
  SimProgram* agent = nullptr;
  settings.offload = [&agent](std::function<void()> work) { return work_later(agent, std::move(work)); };
  agent = &cluster.start(1, settings);
  sim.simulator.run_for(1s);
  elastic::JobOrder job_order = cluster.job_order(Phase::kGathering, 1);
  job_order.spec.package = kHash;
  head.order("n-1", job_order);
  sim.simulator.run_for(2s);
  head.beats.clear();
  // A new head meanwhile does not make it ask for the package again.
  head.wanted.clear();
  head.kill();
  head.start(2);
  sim.simulator.run_for(20s);
  EXPECT_GT(head.beats["n-1"], 20u);
  EXPECT_TRUE(head.wanted.empty());
  EXPECT_TRUE(head.await("n-1", JobOrderState::kReady, 1));
}

TEST_F(NodeAgentTest, NothingIsLeftOfAJobWithManyFiles) {
  ASSERT_TRUE(cluster.run_generation(1, 1));
  Files& files = cluster.agents[1]->world().files;
  for (int i = 0; i < 500; ++i) {
    const std::string folder = "/node/jobs/j-1/work/" + std::to_string(i % 7);
    files.make_folders(folder);
    files.write_atomically(folder + "/" + std::to_string(i), "x");
  }
  head.order("n-1", cluster.job_order(Phase::kEnded, 1));
  ASSERT_TRUE(head.await("n-1", JobOrderState::kGone, 1));
  EXPECT_FALSE(files.exists("/node/jobs/j-1"));
  sim.simulator.run_for(1s);
  EXPECT_TRUE(files.list("/node/trash").empty());
}

TEST_F(NodeAgentTest, AFetchGoesOnWithTheNextHead) {
  head.packages[kHash] = std::string(200'000, 'x');
  elastic::JobOrder job_order = cluster.job_order(Phase::kGathering, 1);
  job_order.spec.package = kHash;
  head.order("n-1", job_order);
  ASSERT_TRUE(sim.simulator.run_until([&] { return head.wanted.size() > 20; }, sim.now() + 10s));
  head.kill();
  sim.simulator.run_for(1s);
  head.start(2);
  ASSERT_TRUE(head.await("n-1", JobOrderState::kReady, 1));
  EXPECT_LE(head.wanted.size(), 202u);
}

TEST_F(NodeAgentTest, APackageThatDoesNotUnpackIsToldOfAndTriedAgain) {
  head.packages[kHash] = "damaged";
  elastic::JobOrder job_order = cluster.job_order(Phase::kGathering, 1);
  job_order.spec.package = kHash;
  head.order("n-1", job_order);
  sim.simulator.run_for(2s);
  EXPECT_TRUE(head.reported("n-1", JobOrderState::kPreparing, 1));
  EXPECT_NE(head.report("n-1").problem.find("is damaged"), std::string::npos);
  head.packages[kHash] = "fine";
  ASSERT_TRUE(head.await("n-1", JobOrderState::kReady, 1));
  EXPECT_EQ(head.report("n-1").problem, "");
}

// It ended the agent, and with it whatever else ran there.
TEST_F(NodeAgentTest, AFullDiskIsToldOfTheJobThatComesThereAndOfNoOther) {
  ASSERT_TRUE(cluster.run_generation(1));
  const size_t hellos = head.hellos.size();
  disk().set_free_bytes(0);
  elastic::JobOrder other = cluster.job_order(Phase::kGathering, 1);
  other.job.value = "j-2";
  head.order("n-1", other);
  sim.simulator.run_for(20s);
  EXPECT_EQ(head.hellos.size(), hellos);
  EXPECT_TRUE(head.reported("n-1", JobOrderState::kPreparing, 1, "j-2"));
  EXPECT_NE(head.report("n-1", "j-2").problem.find("no space left"), std::string::npos);
  EXPECT_TRUE(head.reported("n-1", JobOrderState::kRunning, 1));
  disk().set_free_bytes(1 << 20);
  ASSERT_TRUE(head.await("n-1", JobOrderState::kReady, 1, 60s, "j-2"));
  EXPECT_EQ(head.report("n-1", "j-2").problem, "");
}

TEST_F(NodeAgentTest, SigtermIsToldToTheHeadAndWorkersGetTheirGrace) {
  model.sigterm_delay = 3s;
  model.sigterm_status = ExitStatus{143, 0};
  use(model);
  ASSERT_TRUE(cluster.run_generation(1, 2));
  sim.simulator.run_for(10s);
  cluster.signal(1, SIGTERM);
  sim.simulator.run_for(2s);
  ASSERT_EQ(head.leavings.size(), 1u);
  EXPECT_EQ(head.leavings[0].in, 5s);
  EXPECT_TRUE(cluster.agents[1]->running());
  head.send_orders("n-1");  // nothing is started on a node that goes
  sim.simulator.run_for(8s);
  EXPECT_EQ(cluster.agents[1]->exit_code(), 0);
  for (const auto& past : sim.workers.past()) {
    if (past.machine != 2) continue;
    EXPECT_EQ(past.status, (ExitStatus{143, 0}));
  }
}

TEST_F(NodeAgentTest, ASecondSigtermDoesNotWait) {
  model.sigterm_delay.reset();
  use(model);
  ASSERT_TRUE(cluster.run_generation(1, 1));
  cluster.signal(1, SIGTERM);
  sim.simulator.run_for(100ms);
  cluster.signal(1, SIGTERM);
  sim.simulator.run_for(1s);
  EXPECT_EQ(cluster.agents[1]->exit_code(), 0);
}

TEST_F(NodeAgentTest, GoodbyeEndsWorkersAndAgentAfterTheLastLine) {
  model.output = "step\n";
  use(model);
  ASSERT_TRUE(cluster.run_generation(1, 1));
  sim.simulator.run_for(5s);
  head.send("n-1", elastic::Goodbye{"the cluster goes down", false});
  sim.simulator.run_for(2s);
  EXPECT_EQ(cluster.agents[1]->exit_code(), 0);
  EXPECT_TRUE(sim.workers.live().empty());
  EXPECT_EQ((head.lines[{"n-1", "j-1"}].size()), 1u);
}

TEST_F(NodeAgentTest, ARefusedAgentEnds) {
  head.send("n-2", elastic::Goodbye{"no such node", true});
  sim.simulator.run_for(2s);
  EXPECT_EQ(cluster.agents[2]->exit_code(), 1);
}

TEST_F(NodeAgentTest, ACutNetworkCostsNoWorker) {
  model.runs = 600s;
  use(model);
  ASSERT_TRUE(cluster.run_generation(1, 2));
  sim.simulator.run_for(10s);
  for (int i = 0; i < 5; ++i) {
    sim.network.cut({1}, {2});
    sim.simulator.run_for(20s);
    sim.network.heal();
    sim.simulator.run_for(10s);
  }
  EXPECT_GT(head.hellos.size(), 4u);
  EXPECT_EQ(sim.workers.live().size(), 2u);
  EXPECT_TRUE(sim.workers.past().empty());
  EXPECT_TRUE(head.reported("n-1", JobOrderState::kRunning, 1));
}

// Heads die and come back, paths are cut and heal, lines are acknowledged or not, rounds change: what a node has said
// stays true, no worker runs that should not, and in the end all lines are there.
class NodeChaos : public testing::TestWithParam<uint64_t> {
 protected:
  static constexpr int kNodes = 3;
  NodeChaos() : cluster(GetParam(), kNodes), draw(GetParam() * 77) {
    cluster.sim.network.faults.loss = 0.01;
    cluster.sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random& luck) {
      WorkerModel model;
      model.talks = false;
      model.runs = 100s;
      model.sigterm_delay = seconds(3 * luck.unit());
      model.sigterm_status = ExitStatus{143, 0};
      model.output = numbered(500);
      return model;
    };
    cluster.sim.simulator.after_each_event([this] { check(); });
    cluster.head.start(++epoch);
    for (int i = 1; i <= kNodes; ++i) cluster.start(i);
  }

  void check() {
    if (cluster.sim.workers.version() == checked) return;
    checked = cluster.sim.workers.version();
    std::map<int, int64_t> by_machine;
    for (const auto& [id, worker] : cluster.sim.workers.live()) {
      const auto [at, fresh] = by_machine.emplace(worker.machine, worker.generation);
      if (!fresh && at->second != worker.generation) broken.push_back("two generations on one node");
      const auto& report = cluster.head.report(SimCluster::name(worker.machine - 1));
      const bool said_gone = report.state == JobOrderState::kReady || report.state == JobOrderState::kGone;
      if (said_gone && worker.generation < static_cast<int64_t>(report.generation)) {
        broken.push_back("a worker lives of which the node said that it is gone");
      }
    }
  }

  void one_fault() {
    switch (draw.below(5)) {
      case 0:
        cluster.head.kill();
        cluster.sim.simulator.run_for(seconds(10 * draw.unit()));
        cluster.head.start(++epoch);
        break;
      case 1:
        cluster.sim.network.cut({1}, {static_cast<int>(2 + draw.below(kNodes))});
        break;
      case 2:
        cluster.sim.network.heal();
        break;
      case 3:
        cluster.head.acknowledges = false;
        if (draw.chance(0.5)) cluster.head.acknowledge_all();
        break;
      default:
        break;
    }
    cluster.sim.simulator.run_for(seconds(4 * draw.unit()));
  }

  bool await_all(JobOrderState state, Generation generation) {
    cluster.sim.network.heal();
    for (int i = 1; i <= kNodes; ++i) {
      if (!cluster.head.await(SimCluster::name(i), state, generation, 200s)) return false;
    }
    return true;
  }

  SimCluster cluster;
  Random draw;
  uint64_t epoch = 0, checked = 0;
  std::vector<std::string> broken;
};

TEST_P(NodeChaos, KeepsWhatItSaysAndLosesNoLine) {
  Generation generation = 0;
  for (int round = 0; round < 4; ++round) {
    ++generation;
    for (int i = 1; i <= kNodes; ++i) {
      cluster.head.order(SimCluster::name(i), cluster.job_order(Phase::kGathering, generation));
      one_fault();
    }
    ASSERT_TRUE(await_all(JobOrderState::kReady, generation)) << cluster.output();
    for (int i = 1; i <= kNodes; ++i) {
      cluster.head.order(SimCluster::name(i), cluster.running(i, generation, kNodes));
      one_fault();
    }
    ASSERT_TRUE(await_all(JobOrderState::kRunning, generation)) << cluster.output();
    cluster.sim.simulator.run_for(5s);  // its lines come
    for (int i = 0; i < 3; ++i) one_fault();
  }
  cluster.head.acknowledge_all();
  ASSERT_TRUE(await_all(JobOrderState::kSucceeded, generation)) << cluster.output();
  EXPECT_EQ(broken, Words{});
  EXPECT_EQ(cluster.sim.workers.past().size(), 4u * kNodes);  // each generation ran once on each node
  for (int i = 1; i <= kNodes; ++i) {
    const auto& lines = cluster.head.lines[{SimCluster::name(i), "j-1"}];
    ASSERT_EQ(lines.size(), 2000u);
    for (size_t at = 0; at < lines.size(); ++at) ASSERT_EQ(lines[at].text, std::to_string(at % 500 + 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, NodeChaos, testing::Range<uint64_t>(1, 41));

}  // namespace
}  // namespace rubato::sim

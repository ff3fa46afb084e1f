// What the agents do in each event of the fault table, in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "sim/agents_testing.h"

namespace rubato::sim {
namespace {

WorkerModel endless() {
  WorkerModel model;
  model.start_delay = 100ms;
  model.runs = std::nullopt;
  return model;
}

void run_forever(AgentGroup& group) {
  group.sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) { return endless(); };
}

void run_for(AgentGroup& group, Duration time) {
  group.sim.workers.behaviour = [time](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel model = endless();
    model.runs = time;
    return model;
  };
}

TEST(Agents, FormOneGroupAndEndTogether) {
  AgentGroup group(1, 4, elastic_spec(4, 4));
  run_for(group, 10s);
  group.start_all();
  ASSERT_TRUE(group.run_until_training(4, 1, 5s)) << group.output();
  ASSERT_TRUE(group.sim.simulator.run_until([&] { return group.all_ended(); }, group.sim.now() + 20s))
      << group.output();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(group.agent(i).exit_code(), 0) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

TEST(Agents, AdmitALateJoinerAtOnce) {
  AgentGroup group(2, 3, elastic_spec(2, 3));
  run_forever(group);
  group.start(1);
  group.start(2);
  ASSERT_TRUE(group.run_until_training(2, 1, 5s)) << group.output();
  group.start(3);
  const Instant joined = group.sim.now();
  ASSERT_TRUE(group.run_until_training(3, 2, 1s)) << group.output();
  EXPECT_LT(group.sim.now() - joined, 500ms);
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

TEST(Agents, RestartAllAfterAWorkerFails) {
  LaunchSpec spec = elastic_spec(3, 3);
  spec.max_restarts = 1;
  AgentGroup group(3, 3, spec);
  group.sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord& worker, Random&) {
    WorkerModel model = endless();
    model.runs = 20s;
    if (worker.generation == 1 && worker.rank == 2) model.crash_after = 3s;
    return model;
  };
  group.start_all();
  ASSERT_TRUE(group.sim.simulator.run_until([&] { return group.all_ended(); }, Instant{} + 60s)) << group.output();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(group.agent(i).exit_code(), 0) << group.output();
  EXPECT_NE(group.output().find("generation 2"), std::string::npos);
}

TEST(Agents, EndWithTheCauseWhenTheBudgetIsUsedUp) {
  LaunchSpec spec = elastic_spec(2, 2);
  spec.max_restarts = 2;
  AgentGroup group(4, 2, spec);
  group.sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord& worker, Random&) {
    WorkerModel model = endless();
    if (worker.rank == 1) {
      model.crash_after = 1s;
      model.crash_status = ExitStatus{7, 0};
    }
    return model;
  };
  group.start_all();
  ASSERT_TRUE(group.sim.simulator.run_until([&] { return group.all_ended(); }, Instant{} + 90s)) << group.output();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(group.agent(i).exit_code(), 1);
    EXPECT_NE(group.agent(i).console().err_text().find("rank 1 (local rank 0"), std::string::npos) << group.output();
    EXPECT_NE(group.agent(i).console().err_text().find("exit code 7"), std::string::npos) << group.output();
    EXPECT_NE(group.agent(i).console().err_text().find("2 of 2 used"), std::string::npos) << group.output();
  }
}

TEST(Agents, ALostAgentCostsNoRestartEvenIfItsPeersCrash) {
  AgentGroup group(5, 3, elastic_spec(1, 3));  // max_restarts is 0
  run_forever(group);
  group.start_all();
  ASSERT_TRUE(group.run_until_training(3, 1, 5s)) << group.output();
  group.agent(2).kill();
  const Instant killed = group.sim.now();
  ASSERT_TRUE(group.run_until_training(2, 2, 3s)) << group.output();
  EXPECT_LT(group.sim.now() - killed, 1s) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

TEST(Agents, TheOldestSurvivorHostsWhenTheHostIsKilled) {
  AgentGroup group(6, 3, elastic_spec(1, 3));
  run_forever(group);
  group.start_all();
  ASSERT_TRUE(group.run_until_training(3, 1, 5s)) << group.output();
  group.agent(0).kill();
  const Instant killed = group.sim.now();
  ASSERT_TRUE(group.run_until_training(2, 2, 3s)) << group.output();
  EXPECT_LT(group.sim.now() - killed, 1s);
  // And once more, with one left.
  group.agent(1).kill();
  ASSERT_TRUE(group.run_until_training(1, 3, 3s)) << group.output();
  // The first machine comes back at the endpoint and must find the group, not start its own.
  group.start(1);
  ASSERT_TRUE(group.run_until_training(2, 4, 5s)) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

// As pods of a headless service: the name tells nobody who hosts, and every machine is found by it.
TEST(AgentsAtANameOfAll, AnyOfThemMayBeLostAndNobodyBeginsASecondGroup) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    LaunchSpec spec = elastic_spec(1, 3);
    spec.endpoint = "*every-node:29400";
    AgentGroup group(seed, 3, spec);
    run_forever(group);
    group.spec.is_host = false;
    group.start(2);
    group.start(3);
    group.spec.is_host = true;
    group.start(1);
    ASSERT_TRUE(group.run_until_training(3, 1, 10s)) << group.output();
    group.spec.is_host = false;  // whoever takes a lost one's place joins
    group.agent(2).kill();       // the host
    ASSERT_TRUE(group.run_until_training(2, 2, 5s)) << group.output();
    group.start(1);
    ASSERT_TRUE(group.run_until_training(3, 3, 10s)) << group.output();
    group.agent(0).kill();
    group.agent(1).kill();
    ASSERT_TRUE(group.run_until_training(1, 4, 10s)) << group.output();
    group.start(2);
    ASSERT_TRUE(group.run_until_training(2, 5, 10s)) << group.output();
    EXPECT_TRUE(group.broken.empty()) << "seed " << seed << ": " << group.broken.front();
  }
}

// A pod's address vanishes with it: nobody's kernel says that it is dead.
AgentGroup two_pods(uint64_t seed) {
  LaunchSpec spec = elastic_spec(1, 2);
  spec.endpoint = "*every-node:29400";
  return AgentGroup(seed, 4, spec);
}

void start_pod(AgentGroup& group, int machine, const std::string& identity, bool is_host) {
  group.spec.identity = identity;
  group.spec.is_host = is_host;
  group.start(machine);
}

TEST(AgentsWithIdentities, AHostThatLeavesWithItsMachineIsSucceededAtOnce) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    AgentGroup group = two_pods(seed);
    run_forever(group);
    start_pod(group, 1, "", true);
    start_pod(group, 2, "", false);
    ASSERT_TRUE(group.run_until_training(2, 1, 10s)) << group.output();
    group.signal(0, SIGTERM);
    ASSERT_TRUE(group.sim.simulator.run_until([&] { return !group.running(0); }, group.sim.now() + 5s));
    group.crash(1);
    const Instant gone = group.sim.now();
    ASSERT_TRUE(group.run_until_training(1, 2, 10s)) << group.output();
    EXPECT_LT(group.sim.now() - gone, 1s) << group.output();
    EXPECT_TRUE(group.broken.empty()) << group.broken.front();
  }
}

TEST(AgentsWithIdentities, WhoTakesThePlaceOfALostOneProvesItsDeath) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    AgentGroup group = two_pods(seed);
    run_forever(group);
    start_pod(group, 1, "worker-0", true);
    start_pod(group, 2, "worker-1", false);
    ASSERT_TRUE(group.run_until_training(2, 1, 10s)) << group.output();
    group.crash(1);
    group.sim.simulator.run_for(20s);
    EXPECT_EQ(group.training(), 0) << "it may live behind a broken network\n" << group.output();
    start_pod(group, 3, "worker-0", false);
    ASSERT_TRUE(group.run_until_training(2, 2, 15s)) << group.output();
    EXPECT_TRUE(group.broken.empty()) << group.broken.front();
  }
}

TEST(AgentsWithIdentities, WhoWasReplacedIsNotLetIn) {
  AgentGroup group = two_pods(3);
  run_forever(group);
  start_pod(group, 1, "worker-0", true);
  start_pod(group, 2, "worker-1", false);
  ASSERT_TRUE(group.run_until_training(2, 1, 10s)) << group.output();
  group.sim.network.isolate(2);  // its pod was deleted by force, and lives
  ASSERT_TRUE(group.run_until_training(1, 2, 10s)) << group.output();
  start_pod(group, 3, "worker-1", false);
  ASSERT_TRUE(group.run_until_training(2, 3, 10s)) << group.output();
  group.sim.network.heal();
  ASSERT_TRUE(group.sim.simulator.run_until([&] { return !group.running(1); }, group.sim.now() + 30s))
      << group.output();
  EXPECT_NE(group.agent(1).console().err_text().find("another agent has taken its place"), std::string::npos)
      << group.output();
  EXPECT_EQ(group.training(), 2) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

TEST(Agents, ACutMachineIsDroppedWithinTheHeartbeatAndComesBack) {
  AgentGroup group(7, 4, elastic_spec(1, 4));
  run_forever(group);
  group.start_all();
  ASSERT_TRUE(group.run_until_training(4, 1, 5s)) << group.output();
  group.sim.network.isolate(3);
  const Instant cut = group.sim.now();
  ASSERT_TRUE(group.run_until_training(3, 2, 10s)) << group.output();
  EXPECT_LT(group.sim.now() - cut, group.spec.heartbeat + 500ms) << group.output();
  group.sim.network.heal();
  ASSERT_TRUE(group.run_until_training(4, 3, 15s)) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

TEST(Agents, OfTwoThatAreCutApartOnlyTheHostGoesOn) {
  AgentGroup group(8, 2, elastic_spec(1, 2));
  run_forever(group);
  group.start_all();
  ASSERT_TRUE(group.run_until_training(2, 1, 5s)) << group.output();
  group.sim.network.isolate(2);
  ASSERT_TRUE(group.run_until_training(1, 2, 10s)) << group.output();
  EXPECT_EQ(group.sim.workers.live().begin()->second.machine, 1);
  group.sim.simulator.run_for(60s);
  EXPECT_EQ(group.training(), 1) << group.output();
  group.sim.network.heal();
  ASSERT_TRUE(group.run_until_training(2, 3, 15s)) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

TEST(Agents, TheMajorityGoesOnWithoutAHostThatIsCutOff) {
  AgentGroup group(9, 5, elastic_spec(1, 5));
  run_forever(group);
  group.start_all();
  ASSERT_TRUE(group.run_until_training(5, 1, 5s)) << group.output();
  group.sim.network.cut({1, 2}, {3, 4, 5});
  ASSERT_TRUE(group.run_until_training(3, 2, 15s)) << group.output();
  for (const auto& [id, worker] : group.sim.workers.live()) EXPECT_GE(worker.machine, 3);
  group.sim.simulator.run_for(30s);
  EXPECT_EQ(group.training(), 3) << group.output();
  group.sim.network.heal();
  ASSERT_TRUE(group.run_until_training(5, 3, 20s)) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

TEST(Agents, ASignalledAgentLeavesAndTheOthersGoOn) {
  AgentGroup group(10, 3, elastic_spec(1, 3));
  run_forever(group);
  group.start_all();
  ASSERT_TRUE(group.run_until_training(3, 1, 5s)) << group.output();
  group.signal(1, SIGTERM);
  ASSERT_TRUE(group.run_until_training(2, 2, 5s)) << group.output();
  EXPECT_EQ(group.agent(1).exit_code(), 128 + SIGTERM);
  group.signal(0, SIGTERM);  // the host
  ASSERT_TRUE(group.run_until_training(1, 3, 5s)) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

// Many scripts save at SIGTERM and exit with 0: that they were told to stop does not mean that they are done.
TEST(Agents, WorkersThatEndWellWhenToldToStopAreNotDone) {
  AgentGroup group(12, 3, elastic_spec(1, 3));
  group.sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel model = endless();
    model.sigterm_status = ExitStatus{0, 0};
    return model;
  };
  group.start(1);
  group.start(2);
  ASSERT_TRUE(group.run_until_training(2, 1, 5s)) << group.output();
  group.start(3);
  ASSERT_TRUE(group.run_until_training(3, 2, 5s)) << group.output();
  group.signal(0, SIGTERM);
  ASSERT_TRUE(group.run_until_training(2, 3, 5s)) << group.output();
  EXPECT_TRUE(group.running(1) && group.running(2)) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

TEST(Agents, AWorkerThatIgnoresTheSignalIsKilledAfterTheGrace) {
  LaunchSpec spec = elastic_spec(1, 1);
  spec.standalone = true;
  spec.grace = 5s;
  AgentGroup group(11, 1, spec);
  group.sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel model = endless();
    model.sigterm_delay = std::nullopt;
    return model;
  };
  group.start(1);
  ASSERT_TRUE(group.run_until_training(1, 1, 5s)) << group.output();
  group.signal(0, SIGTERM);
  const Instant signalled = group.sim.now();
  ASSERT_TRUE(group.sim.simulator.run_until([&] { return group.all_ended(); }, group.sim.now() + 20s));
  EXPECT_GE(group.sim.now() - signalled, 5s - 1ms);
  EXPECT_LT(group.sim.now() - signalled, 6s);
}

// Three that train; the workers on node2 to `last` take `saving` from SIGTERM to their end (nullopt: they never end).
struct NoticeGroup : AgentGroup {
  NoticeGroup(uint64_t seed, std::optional<Duration> saving, NodeId last = 2) : AgentGroup(seed, 3, noticing_spec()) {
    sim.workers.behaviour = [saving, last](const SpawnSpec&, const WorkerRecord& worker, Random&) {
      WorkerModel model = endless();
      model.talks = false;  // one that saves needs no peers
      if (worker.machine >= 2 && worker.machine <= last) model.sigterm_delay = saving;
      return model;
    };
    start_all();
    EXPECT_TRUE(run_until_training(3, 1, 5s)) << output();
  }
  static LaunchSpec noticing_spec() {
    LaunchSpec spec = elastic_spec(1, 3);
    spec.notice_file = "/run/notice";
    spec.grace = 5s;
    return spec;
  }
  void write_notice(std::string_view text) {
    noticed = sim.now();
    sim.machine(2).disk().write("/run/notice", text);
  }
  bool lives() const {
    return std::ranges::any_of(sim.workers.live(), [](const auto& entry) { return entry.second.machine == 2; });
  }
  // How long its worker lived on after the notice; the others must go on without it.
  Duration lived_on() {
    EXPECT_TRUE(run_until_training(2, 2, 90s)) << output();
    EXPECT_EQ(agent(1).exit_code(), 128 + SIGTERM) << output();
    EXPECT_TRUE(broken.empty()) << broken.front();
    Instant last{};
    for (const WorkerRecord& worker : sim.workers.past()) {
      if (worker.machine == 2) last = std::max(last, worker.stopped.value_or(Instant{}));
    }
    return last - noticed;
  }
  Instant noticed{};
};

TEST(Notice, WorkersHaveUntilTheDeadlineToSaveAndTheOthersGoOn) {
  NoticeGroup group(17, 40s);  // longer than the grace
  group.write_notice(R"({"in": "60s"})");
  group.sim.simulator.run_for(2s);
  EXPECT_EQ(group.training(), 1) << "the others wait for the one that saves" << group.output();
  const Duration time = group.lived_on();
  EXPECT_GE(time, 40s);
  EXPECT_LT(time, 42s);
  EXPECT_NE(group.output().find("notice in /run/notice: this machine goes away at "), std::string::npos);
}

TEST(Notice, WorkersThatStayAreKilledShortlyBeforeTheDeadline) {
  NoticeGroup group(18, std::nullopt);
  const WallTime deadline = group.sim.machine(2).clock().wall() + 60s;
  group.write_notice(format_time(deadline));
  const Duration time = group.lived_on();
  EXPECT_GT(time, 57s);
  EXPECT_LT(time, 59s);
}

TEST(Notice, ThatCannotBeMadeOutGivesTheGrace) {
  NoticeGroup group(19, std::nullopt);
  group.write_notice("soon");
  const Duration time = group.lived_on();
  EXPECT_GE(time, 5s);
  EXPECT_LT(time, 8s);
  EXPECT_NE(group.output().find("it cannot be made out when"), std::string::npos) << group.output();
}

TEST(Notice, ThatIsBeingWrittenIsReadAMomentLater) {
  NoticeGroup group(20, 40s);
  group.write_notice("");
  group.sim.simulator.run_for(1s);
  group.write_notice("60s");
  EXPECT_GE(group.lived_on(), 39s) << group.output();
}

TEST(Notice, ASignalAfterItTakesNoTimeAway) {
  NoticeGroup group(21, std::nullopt);
  group.write_notice("60s");
  group.sim.simulator.run_for(2s);
  group.signal(1, SIGTERM);
  group.sim.simulator.run_for(20s);
  EXPECT_TRUE(group.lives()) << group.output();
  group.signal(1, SIGTERM);  // but a second one does
  group.sim.simulator.run_for(1s);
  EXPECT_FALSE(group.lives()) << group.output();
  group.lived_on();
}

TEST(Notice, IsReadWithTheSignalThatComesWithIt) {
  NoticeGroup group(22, 40s);
  group.write_notice("60s");
  group.signal(1, SIGTERM);
  EXPECT_GE(group.lived_on(), 40s) << group.output();
}

// The first one's leaving stops the other's workers, with the grace only; then the other gets its notice.
TEST(Notice, ToTwoMachinesAtOnceGivesBothTheirTime) {
  NoticeGroup group(25, 40s, 3);
  group.write_notice("60s");
  group.sim.machine(3).disk().write("/run/notice", "60s");
  ASSERT_TRUE(group.run_until_training(1, 2, 90s)) << group.output();
  for (const WorkerRecord& worker : group.sim.workers.past()) {
    EXPECT_GE(*worker.stopped - group.noticed, worker.machine == 1 ? 0s : 40s) << group.output();
  }
  EXPECT_EQ(group.sim.workers.past().size(), 3u) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

TEST(Notice, OfAnAgentIsKnownToTheHostThatTakesOver) {
  NoticeGroup group(24, 40s);
  group.write_notice("60s");
  group.sim.simulator.run_for(5s);
  group.agent(0).kill();  // the host
  ASSERT_TRUE(group.run_until_training(1, 2, 60s)) << group.output();
  group.sim.simulator.run_for(10s);
  EXPECT_EQ(group.training(), 1) << group.output();
  EXPECT_EQ(group.output().find("generation 3: 2 agents"), std::string::npos) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

TEST(Notice, BeforeTheStartKeepsTheAgentFromJoining) {
  AgentGroup group(23, 1, NoticeGroup::noticing_spec());
  group.sim.machine(1).disk().write("/run/notice", "");
  group.start(1);
  group.sim.simulator.run_for(1s);
  EXPECT_EQ(group.agent(0).exit_code(), 128 + SIGTERM) << group.output();
  EXPECT_TRUE(group.sim.workers.past().empty());
  EXPECT_NE(group.output().find("this machine goes away; not starting"), std::string::npos) << group.output();
}

TEST(Agents, AnAgentTooManyWaitsAsASpareAndTakesAFreePlace) {
  AgentGroup group(12, 3, elastic_spec(2, 2));
  run_forever(group);
  group.start(1);
  group.start(2);
  ASSERT_TRUE(group.run_until_training(2, 1, 5s)) << group.output();
  group.start(3);
  group.sim.simulator.run_for(5s);
  EXPECT_EQ(group.training(), 2);
  EXPECT_EQ(group.generation(), 1);
  group.crash(2);
  ASSERT_TRUE(group.run_until_training(2, 2, 10s)) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

TEST(Agents, AGroupThatStaysTooSmallEndsWithTheReason) {
  LaunchSpec spec = elastic_spec(3, 3);
  spec.join_timeout = 20s;
  AgentGroup group(13, 2, spec);
  group.start_all();
  ASSERT_TRUE(group.sim.simulator.run_until([&] { return group.all_ended(); }, Instant{} + 60s)) << group.output();
  EXPECT_EQ(group.agent(0).exit_code(), 1);
  EXPECT_NE(group.output().find("waiting for 1 more agent"), std::string::npos) << group.output();
}

TEST(Agents, ASecondAgentWithTheSameNodeRankIsRefused) {
  LaunchSpec spec = elastic_spec(2, 2);
  spec.backend = Backend::kStatic;
  spec.endpoint = "node1:29501";
  spec.master_addr = "node1";
  spec.master_port = 29500;
  spec.node_rank = 0;
  AgentGroup group(14, 2, spec);
  group.start(1);
  group.sim.simulator.run_for(1s);
  group.start(2);
  group.sim.simulator.run_for(5s);
  EXPECT_EQ(group.agent(1).exit_code(), 1) << group.output();
}

TEST(AgentsOnEtcd, SurviveTheLossOfTheHostAndOfHalfTheMachines) {
  LaunchSpec spec = elastic_spec(1, 4);
  spec.backend = Backend::kEtcd;
  AgentGroup group(15, 4, spec);
  run_forever(group);
  group.start_all();
  ASSERT_TRUE(group.run_until_training(4, 1, 10s)) << group.output();
  group.agent(0).kill();
  ASSERT_TRUE(group.run_until_training(3, 2, 5s)) << group.output();
  // Three of four machines go silent at once: with etcd the rest may go on.
  group.crash(2);
  group.crash(3);
  ASSERT_TRUE(group.run_until_training(1, 3, 20s)) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

TEST(AgentsOnEtcd, GoOnTrainingWhileEtcdIsAway) {
  LaunchSpec spec = elastic_spec(2, 3);
  spec.backend = Backend::kEtcd;
  AgentGroup group(16, 3, spec);
  run_forever(group);
  group.start(1);
  group.start(2);
  ASSERT_TRUE(group.run_until_training(2, 1, 10s)) << group.output();
  group.sim.store.set_up(false);
  group.sim.simulator.run_for(30s);
  EXPECT_EQ(group.training(), 2) << group.output();
  EXPECT_EQ(group.generation(), 1);
  group.sim.store.set_up(true);
  group.sim.simulator.run_for(5s);
  group.start(3);
  ASSERT_TRUE(group.run_until_training(3, 2, 15s)) << group.output();
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

// ---- agents that stand still (SIGSTOP, a swapped or paused machine) where nobody else can have taken over

std::set<uint64_t> live_workers(const AgentGroup& group) {
  std::set<uint64_t> ids;
  for (const auto& [id, worker] : group.sim.workers.live()) ids.insert(id);
  return ids;
}

void stop_all(AgentGroup& group, Duration time, Duration apart = 0s) {
  for (size_t i = 0; i < group.started(); ++i) group.agent(i).stop();
  group.sim.simulator.run_for(time);
  for (size_t i = 0; i < group.started(); ++i) {
    group.agent(i).resume();
    group.sim.simulator.run_for(apart);
  }
}

TEST(StandingStill, ALoneAgentKeepsItsWorkers) {
  LaunchSpec spec = elastic_spec(1, 1);
  spec.standalone = true;
  AgentGroup group(31, 1, spec);
  run_forever(group);
  group.start(1);
  ASSERT_TRUE(group.run_until_training(1, 1, 5s)) << group.output();
  const auto before = live_workers(group);
  for (const Duration time : {2s, 5s, 60s, 3600s}) {
    stop_all(group, time);
    group.sim.simulator.run_for(10s);
    EXPECT_EQ(live_workers(group), before) << format_duration(time) << "\n" << group.output();
  }
}

TEST(StandingStill, TheOnlyAgentOfAnElasticGroupKeepsItsWorkers) {
  AgentGroup group(32, 1, elastic_spec(1, 4));
  run_forever(group);
  group.start(1);
  ASSERT_TRUE(group.run_until_training(1, 1, 5s)) << group.output();
  const auto before = live_workers(group);
  stop_all(group, 5s);
  group.sim.simulator.run_for(10s);
  EXPECT_EQ(live_workers(group), before) << group.output();
}

TEST(StandingStill, AllAgentsOfOneMachineKeepTheirWorkers) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    AgentGroup group(seed, 1, elastic_spec(3, 3));
    run_forever(group);
    for (int i = 0; i < 3; ++i) group.start(1);
    ASSERT_TRUE(group.run_until_training(3, 1, 5s)) << group.output();
    const auto before = live_workers(group);
    stop_all(group, 5s, 50ms);
    group.sim.simulator.run_for(10s);
    EXPECT_EQ(live_workers(group), before) << "seed " << seed << "\n" << group.output();
    EXPECT_TRUE(group.broken.empty()) << group.broken.front();
  }
}

// More than a view names.
TEST(StandingStill, TenAgentsOfOneMachineKeepTheirWorkers) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    AgentGroup group(seed, 1, elastic_spec(10, 10));
    run_forever(group);
    for (int i = 0; i < 10; ++i) group.start(1);
    ASSERT_TRUE(group.run_until_training(10, 1, 10s)) << group.output();
    const auto before = live_workers(group);
    stop_all(group, 5s, 50ms);
    group.sim.simulator.run_for(10s);
    EXPECT_EQ(live_workers(group), before) << "seed " << seed << "\n" << group.output();
    EXPECT_TRUE(group.broken.empty()) << group.broken.front();
  }
}

TEST(StandingStill, APausedMachineWithAllAgentsKeepsTheirWorkers) {
  AgentGroup group(33, 1, elastic_spec(2, 2));
  run_forever(group);
  for (int i = 0; i < 2; ++i) group.start(1);
  ASSERT_TRUE(group.run_until_training(2, 1, 5s)) << group.output();
  const auto before = live_workers(group);
  group.sim.machine(1).freeze();
  group.sim.simulator.run_for(60s);
  group.sim.machine(1).thaw();
  group.sim.simulator.run_for(10s);
  EXPECT_EQ(live_workers(group), before) << group.output();
}

// The others, on other machines, go on without it: its workers must not.
TEST(StandingStill, AnAgentAmongOthersElsewhereIsFencedWhenItGoesOn) {
  AgentGroup group(34, 3, elastic_spec(1, 3));
  run_forever(group);
  group.start_all();
  ASSERT_TRUE(group.run_until_training(3, 1, 5s)) << group.output();
  group.sim.machine(2).freeze();
  ASSERT_TRUE(group.sim.simulator.run_until([&] { return group.generation() >= 2; }, group.sim.now() + 20s));
  group.sim.machine(2).thaw();
  ASSERT_TRUE(group.run_until_training(3, 3, 20s)) << group.output();
}

}  // namespace
}  // namespace rubato::sim

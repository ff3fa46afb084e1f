#include "sim/processes.h"

#include <gtest/gtest.h>

#include <csignal>

#include "sim/simulation.h"

namespace rubato::sim {
namespace {

SpawnSpec worker_spec(int rank, int world_size, int generation = 0, int port = 29500) {
  SpawnSpec spec;
  spec.argv = {"python3", "train.py"};
  spec.env = {"RANK=" + std::to_string(rank),
              "WORLD_SIZE=" + std::to_string(world_size),
              "RUBATO_GENERATION=" + std::to_string(generation),
              "MASTER_ADDR=10.0.0.1",
              "MASTER_PORT=" + std::to_string(port),
              "TORCHELASTIC_RUN_ID=run"};
  spec.out.kind = OutputTarget::Kind::kPipe;
  return spec;
}

struct Watched {
  Process* process = nullptr;
  std::optional<ExitStatus> status;
  std::string output;
};

Task<int> keep_worker(SimProgram& program, Watched& watched, SpawnSpec spec) {
  std::unique_ptr<Process> process = program.world().processes.spawn(spec);
  watched.process = process.get();
  watched.status = co_await process->wait();
  while (std::optional<OutputChunk> chunk = co_await process->output().pop()) watched.output += chunk->bytes;
  co_return watched.status->returncode();
}

// Starts one worker and keeps it until it has ended.
SimProgram::Main agent(Watched& watched, SpawnSpec spec) {
  return [&watched, spec](SimProgram& program) { return keep_worker(program, watched, spec); };
}

// One agent with one worker on each of three machines, all of one world.
class World3 : public testing::Test {
 protected:
  void start(int generation = 0) {
    for (int rank = 0; rank < 3; ++rank) {
      agents.push_back(&sim.machine(rank + 1).start("agent", agent(watched[rank], worker_spec(rank, 3, generation))));
    }
  }
  void use(const WorkerModel& model) {
    sim.workers.behaviour = [model](const SpawnSpec&, const WorkerRecord&, Random&) { return model; };
  }
  Watched watched[3];  // outlives the simulation below, whose frames use it
  Simulation sim{3, 3};
  std::vector<SimProgram*> agents;
};

TEST_F(World3, TrainsTogetherAndExitsWithZero) {
  WorkerModel model;
  model.output = "step 1\n";
  use(model);
  start();
  EXPECT_EQ(sim.workers.live().size(), 3u);
  EXPECT_EQ(sim.workers.live().begin()->second.env.at("MASTER_PORT"), "29500");
  sim.simulator.run_for(30s);
  EXPECT_TRUE(sim.workers.live().begin()->second.trained_from);
  EXPECT_EQ(sim.workers.broken_rule(), std::nullopt);
  sim.simulator.run_for(40s);
  for (const Watched& each : watched) {
    EXPECT_EQ(each.status, (ExitStatus{0, 0}));
    EXPECT_EQ(each.output, "step 1\n");
  }
  ASSERT_EQ(sim.workers.past().size(), 3u);
  EXPECT_NEAR(to_seconds(sim.workers.past()[0].trained), 60.0, 0.1);
  EXPECT_EQ(sim.machine(1).programs()[0]->exit_code(), 0);
}

TEST_F(World3, WaitsForAMissingRankAndGivesUp) {
  start();
  agents[2]->kill();
  sim.simulator.run_for(61s);
  EXPECT_EQ(watched[0].status, std::nullopt);
  sim.simulator.run_for(2s);
  EXPECT_EQ(watched[0].status, (ExitStatus{1, 0}));
}

TEST_F(World3, AKilledAgentTakesItsWorkerAndThePeersFail) {
  start();
  sim.simulator.run_for(10s);
  agents[1]->kill();
  EXPECT_EQ(sim.workers.live().size(), 2u);
  sim.simulator.run_for(1100ms);
  EXPECT_EQ(watched[0].status, (ExitStatus{1, 0}));
  EXPECT_EQ(watched[2].status, (ExitStatus{1, 0}));
  EXPECT_EQ(sim.simulator.marked("worker.peer_lost"), 2u);
}

TEST_F(World3, APeerOnACrashedMachineIsMissedAfterALongSilence) {
  start();
  sim.simulator.run_for(10s);
  sim.machine(2).crash();
  sim.simulator.run_for(29s);
  EXPECT_EQ(watched[0].status, std::nullopt);
  sim.simulator.run_for(10s);
  EXPECT_EQ(watched[0].status, (ExitStatus{1, 0}));
}

TEST_F(World3, ACutThatHealsOnlyStallsTraining) {
  start();
  sim.simulator.run_for(10s);
  sim.network.isolate(3);
  sim.simulator.run_for(20s);
  EXPECT_EQ(sim.simulator.marked("worker.stalled"), 3u);
  sim.network.heal();
  sim.simulator.run_for(50s);
  EXPECT_EQ(watched[0].status, std::nullopt);
  sim.simulator.run_for(10s);
  EXPECT_EQ(watched[0].status, (ExitStatus{0, 0}));
}

TEST_F(World3, AWorkerCrashesByItself) {
  sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord& record, Random&) {
    WorkerModel model;
    if (record.rank == 1) {
      model.crash_after = 5s;
      model.crash_status = ExitStatus{0, SIGSEGV};
    }
    return model;
  };
  start();
  sim.simulator.run_for(20s);
  EXPECT_EQ(watched[1].status, (ExitStatus{0, SIGSEGV}));
  EXPECT_EQ(watched[0].status, (ExitStatus{1, 0}));
}

TEST_F(World3, SilentWorkersDoNotNotice) {
  WorkerModel model;
  model.talks = false;
  use(model);
  start();
  sim.simulator.run_for(10s);
  watched[0].process->signal_group(SIGKILL);
  sim.simulator.run_for(30s);
  EXPECT_EQ(watched[0].status, (ExitStatus{0, SIGKILL}));
  EXPECT_EQ(watched[1].status, std::nullopt);
}

TEST_F(World3, SigtermIsObeyedLateOrIgnored) {
  sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord& record, Random&) {
    WorkerModel model;
    model.talks = false;
    model.sigterm_delay = 3s;
    if (record.rank == 1) model.sigterm_delay = std::nullopt;
    return model;
  };
  start();
  sim.simulator.run_for(10s);
  watched[0].process->signal_group(SIGTERM);
  watched[1].process->signal_group(SIGTERM);
  sim.simulator.run_for(2s);
  EXPECT_EQ(watched[0].status, std::nullopt);
  sim.simulator.run_for(2s);
  EXPECT_EQ(watched[0].status, (ExitStatus{0, SIGTERM}));
  EXPECT_EQ(watched[1].status, std::nullopt);
  watched[1].process->signal_group(SIGKILL);
  sim.simulator.run_for(10ms);
  EXPECT_EQ(watched[1].status, (ExitStatus{0, SIGKILL}));
}

TEST_F(World3, TwoWorkersWithOneRankBreakTheRuleWhenTheyReachEachOther) {
  start();
  Watched newer;
  sim.network.isolate(1);
  SimProgram& second = sim.machine(2).start("newer", agent(newer, worker_spec(0, 3, 1, 29600)));
  sim.simulator.run_for(1s);
  EXPECT_EQ(sim.workers.broken_rule(), std::nullopt);
  sim.network.heal();
  EXPECT_EQ(sim.workers.broken_rule(1s), std::nullopt);
  EXPECT_EQ(sim.workers.broken_rule(),
            "rank 0 of generation 0 on machine 1 and rank 0 of generation 1 on machine 2 are alive at once");
  sim.simulator.run_for(1s);
  EXPECT_TRUE(sim.workers.broken_rule(1s));
  second.kill();
  EXPECT_EQ(sim.workers.broken_rule(), std::nullopt);
}

Task<int> spawn_while_leased(SimProgram& program, Watched& watched) {
  std::unique_ptr<PortLease> lease = program.world().network.lease_port(29500);
  const SpawnSpec spec = worker_spec(0, 2);
  std::unique_ptr<Process> process = program.world().processes.spawn(spec);
  watched.status = co_await process->wait();
  co_return 0;
}

TEST(Workers, RankZeroNeedsItsPort) {
  Simulation sim(1, 1);
  Watched watched;
  sim.machine(1).start("agent", [&](SimProgram& program) { return spawn_while_leased(program, watched); });
  sim.simulator.run_for(5s);
  EXPECT_EQ(watched.status, (ExitStatus{1, 0}));
  EXPECT_EQ(sim.simulator.marked("worker.address_in_use"), 1u);
}

Task<int> spawn_prewarmed(SimProgram& program, bool works, std::string& reason) {
  const PrewarmSpec prewarm;
  std::function<void(std::string)> fallback = [&reason](std::string why) { reason = why; };
  program.world().processes.prewarm(prewarm, fallback);
  co_await Sleep(program.loop(), program.loop().now() + 5s);
  SpawnSpec spec = worker_spec(0, 1);
  spec.warm.emplace();
  std::unique_ptr<Process> process = program.world().processes.spawn(spec);
  EXPECT_EQ(process->warm(), works);
  co_await process->wait();
  co_return 0;
}

TEST(Workers, PrewarmedOnesStartFasterOrFallBack) {
  for (const bool works : {true, false}) {
    Simulation sim(1, 1);
    if (!works) sim.workers.prewarm_fails = "fork in a thread";
    std::string reason;
    sim.machine(1).start("agent", [&](SimProgram& program) { return spawn_prewarmed(program, works, reason); });
    sim.simulator.run_for(2min);
    ASSERT_EQ(sim.workers.past().size(), 1u);
    const WorkerRecord& past = sim.workers.past()[0];
    EXPECT_NEAR(to_seconds(*past.trained_from - past.started), works ? 0.1 : 2.0, 0.001);
    EXPECT_EQ(reason, works ? "" : "fork in a thread");
  }
}

TEST(Workers, ABehaviourMayRefuseToStart) {
  Simulation sim(1, 1);
  sim.workers.behaviour = [](const SpawnSpec& spec, const WorkerRecord&, Random&) -> WorkerModel {
    throw Error(ErrorCode::kUsage, spec.argv[0] + " is not there");
  };
  Watched watched;
  SimProgram& program = sim.machine(1).start("agent", agent(watched, worker_spec(0, 1)));
  EXPECT_EQ(program.exit_code(), 2);
  EXPECT_EQ(program.console().err_text(), "error: python3 is not there\n");
  EXPECT_TRUE(sim.workers.live().empty());
}

TEST(Workers, MixedGenerationsAreReported) {
  Simulation sim(1, 2);
  Watched old, newer;
  sim.machine(1).start("old", agent(old, worker_spec(0, 2, 0)));
  sim.machine(2).start("new", agent(newer, worker_spec(1, 2, 1)));
  sim.simulator.run_for(3s);
  EXPECT_EQ(sim.workers.mix_ups().size(), 1u);
}

}  // namespace
}  // namespace rubato::sim

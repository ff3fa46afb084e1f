// A head that stands still does not give up a healthy command because of its own stall.
#include <gtest/gtest.h>

#include "core/error.h"
#include "provider/local_runner.h"
#include "sim/simulation.h"

namespace rubato::sim {
namespace {

Task<int> run_command(SimProgram& self, std::string& outcome) {
  provider::RunnerSettings settings;
  settings.scratch = "/scratch";
  provider::LocalRunner runner(self.world(), settings);
  provider::Command command;
  command.script = "sleep 5";
  command.timeout = 10s;
  try {
    const provider::CommandResult result = co_await runner.run(std::move(command));
    outcome = result.ok() ? "ok" : "failed";
  } catch (const Error& error) {
    outcome = error.message;
  }
  co_return 0;
}

std::string outcome_of(Duration runs, Duration frozen) {
  Simulation sim(1, 1);
  sim.workers.behaviour = [runs](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel model;
    model.start_delay = 10ms;
    model.runs = runs;
    model.talks = false;
    return model;
  };
  std::string outcome;
  sim.machine(1).start("head", [&](SimProgram& self) { return run_command(self, outcome); });
  sim.simulator.run_for(1s);
  if (frozen > 0s) {
    sim.machine(1).freeze();
    sim.simulator.run_for(frozen);
    sim.machine(1).thaw();
  }
  sim.simulator.run_for(60s);
  return outcome;
}

TEST(RunnerPatience, AHeadThatStoodStillDoesNotGiveUpItsCommand) {
  EXPECT_EQ(outcome_of(5s, 0s), "ok");
  EXPECT_EQ(outcome_of(25s, 20s), "ok") << "it was listened to for five seconds";
  EXPECT_NE(outcome_of(30s, 0s), "ok") << "one that takes too long is given up";
}

}  // namespace
}  // namespace rubato::sim

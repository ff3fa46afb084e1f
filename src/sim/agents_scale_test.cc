// A thousand agents: one forms, loses and re-forms in the same number of steps as ten.
#include <gtest/gtest.h>

#include "sim/agents_testing.h"

namespace rubato::sim {
namespace {

TEST(AgentsAtScale, AThousandFormLoseTheirHostAndGoOn) {
  AgentGroup group(1, 1000, elastic_spec(900, 1000));
  group.sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel model;
    model.start_delay = 200ms;
    model.runs = std::nullopt;
    model.talks = false;  // a thousand sockets each is not what this is about
    return model;
  };
  group.start_all();
  ASSERT_TRUE(group.run_until_training(1000, 1, 10s));
  const Instant formed = group.sim.now();
  EXPECT_LT(formed - Instant{}, 3s);

  group.agent(0).kill();
  ASSERT_TRUE(group.run_until_training(999, 2, 10s));
  EXPECT_LT(group.sim.now() - formed, 2s);

  group.start(1);
  ASSERT_TRUE(group.run_until_training(1000, 3, 10s));
  for (int machine = 2; machine <= 40; ++machine) group.crash(machine);
  ASSERT_TRUE(group.run_until_training(961, 4, 30s));
  EXPECT_TRUE(group.broken.empty()) << group.broken.front();
}

}  // namespace
}  // namespace rubato::sim

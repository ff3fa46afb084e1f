// The agent of a node whose machine will be taken away, against a scripted head.
#include <gtest/gtest.h>

#include <csignal>

#include "node/node_agent.h"
#include "sim/scripted_head_testing.h"

namespace rubato::sim {
namespace {

using elastic::JobOrderState;

Task<int> noticed_main(SimProgram& self, node::NodeSettings settings,
                       std::shared_ptr<Channel<node::MachineNotice>>& notices) {
  notices = std::make_shared<Channel<node::MachineNotice>>(self.loop());
  const std::shared_ptr<Channel<node::MachineNotice>> mine = notices;
  node::NodeAgent agent(self.world(), std::move(settings), nullptr, mine.get());
  co_return co_await agent.run();
}

class NodeNotice : public testing::Test {
 protected:
  NodeNotice() {
    head.start(1);
    agent = &sim.machine(2).start(
        "agent", [this](SimProgram& self) { return noticed_main(self, cluster.settings(1), notices); });
    sim.simulator.run_for(1s);
  }
  // Workers that run until they are told to end, which takes them so long; nullopt: they never do.
  void run_workers(std::optional<Duration> ends_after) {
    WorkerModel model;
    model.runs.reset();
    model.sigterm_delay = ends_after;
    sim.workers.behaviour = [model](const SpawnSpec&, const WorkerRecord&, Random&) { return model; };
    ASSERT_TRUE(cluster.run_generation(1, 1));
    sim.simulator.run_for(2s);
    ASSERT_EQ(sim.workers.live().size(), 1u);
  }
  void tell(std::optional<Duration> in) {
    node::MachineNotice notice;
    notice.what = "spot notice";
    if (in)
      notice.notice.deadline = agent->world().clock.wall() + std::chrono::duration_cast<std::chrono::microseconds>(*in);
    notices->push(std::move(notice));
    sim.simulator.run_for(100ms);
  }
  bool ends_within(Duration most) {
    return sim.simulator.run_until([this] { return sim.workers.live().empty(); }, sim.now() + most);
  }

  SimCluster cluster{7, 1};
  Simulation& sim = cluster.sim;
  ScriptedHead& head = cluster.head;
  SimProgram* agent = nullptr;
  std::shared_ptr<Channel<node::MachineNotice>> notices;
};

TEST_F(NodeNotice, TheHeadHearsWhenTheMachineGoes) {
  run_workers(1s);
  tell(120s);
  ASSERT_FALSE(head.leavings.empty());
  EXPECT_EQ(head.leavings.back().reason, "spot notice");
  EXPECT_TRUE(head.leavings.back().ends);
  EXPECT_GT(head.leavings.back().in, 118s);
  EXPECT_LE(head.leavings.back().in, 120s);
  EXPECT_EQ(sim.workers.live().size(), 1u) << "the head decides when they are told to save";
}

TEST_F(NodeNotice, TheNextHeadHearsItToo) {
  tell(120s);
  head.leavings.clear();
  head.kill();
  head.start(2);
  sim.simulator.run_for(10s);
  ASSERT_FALSE(head.leavings.empty());
  EXPECT_TRUE(head.leavings.back().ends);
}

TEST_F(NodeNotice, WorkersThatNobodyStopsAreToldToSaveBeforeTheDeadline) {
  run_workers(3s);
  head.kill();
  tell(120s);
  sim.simulator.run_for(80s);
  EXPECT_EQ(sim.workers.live().size(), 1u);
  EXPECT_TRUE(ends_within(25s));
  const WorkerRecord& worker = sim.workers.past().back();
  EXPECT_EQ(worker.status->signal, SIGTERM) << "it had time to save";
}

TEST_F(NodeNotice, NoWorkerOutlivesTheDeadline) {
  run_workers(std::nullopt);
  head.kill();
  tell(20s);
  EXPECT_TRUE(ends_within(19s));
}

TEST_F(NodeNotice, ADrainOfTheHeadEndsThemToo) {
  run_workers(std::nullopt);
  elastic::Orders orders;
  orders.revision = 100;
  orders.drain = true;
  orders.drain_in = 20s;
  orders.job_orders = {head.job_orders["n-1"]["j-1"]};
  head.send("n-1", orders);
  EXPECT_TRUE(ends_within(19s));
}

TEST_F(NodeNotice, ADrainThatIsUndoneEndsNobody) {
  run_workers(std::nullopt);
  elastic::Orders orders;
  orders.revision = 100;
  orders.drain = true;
  orders.drain_in = 60s;
  orders.job_orders = {head.job_orders["n-1"]["j-1"]};
  head.send("n-1", orders);
  sim.simulator.run_for(5s);
  orders.revision = 101;
  orders.drain = false;
  orders.drain_in.reset();
  head.send("n-1", orders);
  EXPECT_FALSE(ends_within(5min));
}

TEST_F(NodeNotice, AHeadThatDoesNotDrainItIsToldAgain) {
  tell(120s);
  head.leavings.clear();
  head.send_orders("n-1");
  sim.simulator.run_for(1s);
  EXPECT_FALSE(head.leavings.empty());
}

}  // namespace
}  // namespace rubato::sim

// What a head makes of agents that do not behave: hand-made ones on simulated machines.
#include <gtest/gtest.h>

#include "sim/cluster_testing.h"

namespace rubato::sim {
namespace {

using cluster::NodePhase;
using elastic::Hello;
using elastic::ToAgent;
using elastic::ToHead;

// Speaks as the agent of a node, but says only what a test wants.
struct HandAgent {
  rubato::NodeId node;
  Hello hello;
  std::vector<ToHead> then;    // said right after the greeting
  std::string garbage;         // said after that
  std::vector<ToAgent> heard;  // in order
  std::function<void(const ToAgent&)> on_message;
  bool ended = false;
  std::optional<ToHead> later;  // said when it is set, once
};

Task<int> hand_main(SimProgram& self, HandAgent& agent) {
  ChannelKey key;
  key.identity.use_tls = true;
  key.identity.ca = "cluster";
  key.identity.certificate = "node/" + agent.node.value;
  Endpoint head{"node1", kHeadPort};
  ConnectResult result = co_await self.world().network.connect(head, key, self.loop().now() + 5s, 3s);
  if (!result.connection) co_return 1;
  agent.hello.node = agent.node;
  const ToHead greeting = agent.hello;
  result.connection->send(encode(greeting, self.world().clock.now()));
  for (const ToHead& message : agent.then) result.connection->send(encode(message, self.world().clock.now()));
  if (!agent.garbage.empty()) result.connection->send(agent.garbage);
  while (true) {
    const Instant beat_at = self.loop().now() + 200ms;
    const auto received = co_await with_deadline(self.loop(), beat_at, result.connection->receive());
    if (!received) {
      const ToHead beat = elastic::NodeBeat{0};
      result.connection->send(encode(beat, self.world().clock.now()));
      if (agent.later) result.connection->send(encode(*std::exchange(agent.later, std::nullopt), self.loop().now()));
      continue;
    }
    if (!*received) break;
    agent.heard.push_back(elastic::decode_to_agent(**received));
    if (agent.on_message) agent.on_message(agent.heard.back());
  }
  agent.ended = true;
  co_return 0;
}

void start(ClusterSim& cluster, int machine, HandAgent& agent) {
  cluster.sim.machine(machine).start("hand", [&agent](SimProgram& self) { return hand_main(self, agent); });
}

WorkerBehaviour trains_for(Duration span) {
  return [span](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel model;
    model.runs = span;
    return model;
  };
}

const rubato::NodeId kFirst{"small-1"};

bool node_is_up(const ClusterSim& cluster, const rubato::NodeId& node) {
  if (!cluster.head_up()) return false;
  const auto it = cluster.state().nodes.find(node);
  return it != cluster.state().nodes.end() && it->second.phase == NodePhase::kUp;
}

template <class T>
bool has_heard(const HandAgent& agent) {
  return std::ranges::any_of(agent.heard, [](const ToAgent& one) { return std::holds_alternative<T>(one); });
}

// The offset of the first JobPlaced on the disk; zero when there is none.
uint64_t placed_at(const ClusterSim& cluster) {
  for (const auto& [offset, bytes] : cluster.journal.records()) {
    if (std::holds_alternative<cluster::JobPlaced>(cluster::decode(offset, bytes).event)) return offset;
  }
  return 0;
}

TEST(HeadSessions, OrdersWaitForTheCommitAlsoForAnAgentThatConnectsMeanwhile) {
  ClusterSim cluster(1, 1, 2);
  cluster.behaviour = trains_for(30s);
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return node_is_up(cluster, kFirst); }, 60s)) << cluster.story();
  cluster.sim.simulator.run_for(1s);
  cluster.journal.latency_min = cluster.journal.latency_max = 2s;
  cluster.submit(sim_job(1, 1));
  const auto placed_in_mind = [&] { return !cluster.state().active.empty(); };
  ASSERT_TRUE(cluster.run_until(placed_in_mind, 10s));
  ASSERT_EQ(placed_at(cluster), 0u);

  HandAgent again;  // the same agent on a new connection
  again.node = kFirst;
  again.hello.agent = cluster.state().nodes.at(kFirst).agent;
  again.hello.head_epoch = cluster.state().epoch;
  bool ordered = false;
  uint64_t durable_then = 0;
  again.on_message = [&](const ToAgent& message) {
    const auto* orders = std::get_if<elastic::Orders>(&message);
    if (!orders || orders->job_orders.empty() || std::exchange(ordered, true)) return;
    durable_then = placed_at(cluster);
  };
  cluster.machines.agent(kFirst).kill();
  start(cluster, 3, again);
  ASSERT_TRUE(cluster.run_until([&] { return ordered; }, 20s)) << cluster.story();
  EXPECT_GT(durable_then, 0u);
}

TEST(HeadSessions, LateWordsOfAReplacedConnectionDoNotCount) {
  ClusterSim cluster(1, 1, 3);
  cluster.behaviour = trains_for(30s);
  cluster.start_head();
  cluster.submit(sim_job(1, 1));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 1; }, 60s));
  const rubato::NodeId node = cluster.job(0)->seats.front().node;
  HandAgent first, second;
  first.node = second.node = node;
  first.hello.agent = second.hello.agent = cluster.state().nodes.at(node).agent;
  first.hello.head_epoch = second.hello.head_epoch = cluster.state().epoch;
  // Not killed: that would be known at once.
  cluster.sim.network.isolate(cluster.sim.machine(cluster.machines.machine_of(node)).node());
  start(cluster, 3, first);
  cluster.sim.simulator.run_for(500ms);
  start(cluster, 4, second);
  cluster.sim.simulator.run_for(500ms);
  ASSERT_TRUE(has_heard<elastic::Welcome>(second));
  elastic::JobOrderReport done;
  done.job = cluster.job(0)->id;
  done.generation = cluster.job(0)->generation;
  done.state = elastic::JobOrderState::kSucceeded;
  first.later = elastic::Reports{{done}};
  cluster.sim.simulator.run_for(3s);
  EXPECT_TRUE(first.ended);
  EXPECT_FALSE(second.ended);
  EXPECT_FALSE(cluster::ended(cluster.job(0)->phase)) << cluster.story();
}

TEST(HeadSessions, AReplacedHeadSendsNoAgentAway) {
  ClusterSim cluster(1, 1, 2);
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return node_is_up(cluster, kFirst); }, 60s));
  HandAgent agent;
  agent.node = kFirst;
  agent.hello.agent = AgentId{"somebody"};
  agent.hello.head_epoch = cluster.state().epoch + 1;
  start(cluster, 3, agent);
  ASSERT_TRUE(cluster.run_until([&] { return agent.ended; }, 20s));
  EXPECT_TRUE(agent.heard.empty());
}

TEST(HeadSessions, AnAgentThatIsGoneBeforeItsJoinIsDurableIsMissed) {
  ClusterSim cluster(1, 1, 2);
  cluster.journal.latency_min = cluster.journal.latency_max = 1s;
  cluster.start_head();
  const auto requested_in_mind = [&] { return cluster.head_up() && cluster.state().nodes.contains(kFirst); };
  ASSERT_TRUE(cluster.run_until(requested_in_mind, 60s));
  cluster.machines.made.create_delay = 5s;
  HandAgent agent;
  agent.node = kFirst;
  agent.hello.agent = AgentId{"short-lived"};
  agent.garbage = "no message";
  start(cluster, 3, agent);
  ASSERT_TRUE(cluster.run_until([&] { return agent.ended; }, 10s));
  ASSERT_TRUE(cluster.run_until([&] { return node_is_up(cluster, kFirst); }, 10s)) << cluster.story();
  EXPECT_TRUE(cluster.run_until([&] { return !node_is_up(cluster, kFirst); }, 10s)) << cluster.story();
}

// A call that started an agent was made again; the first agent's greeting was on its way for longer.
TEST(HeadSessions, TheNewerOfTwoAgentsIsTheNodesThoughTheOlderOneIsHeardLast) {
  for (const auto& [older_last, apart] : {std::pair(true, 2s), std::pair(false, 2s), std::pair(true, 0s)}) {
    ClusterSim cluster(1, 1, 3);
    cluster.start_head();
    const auto requested = [&] { return cluster.head_up() && cluster.state().nodes.contains(kFirst); };
    ASSERT_TRUE(cluster.run_until(requested, 60s));
    cluster.machines.made.create_delay = 60s;
    HandAgent older, newer;
    older.node = newer.node = kFirst;
    older.hello.agent = AgentId{"older"};
    older.hello.started = WallTime(1s);
    newer.hello.agent = AgentId{"newer"};
    newer.hello.started = WallTime(2s);
    start(cluster, 3, older_last ? newer : older);
    cluster.sim.simulator.run_for(apart);
    start(cluster, 4, older_last ? older : newer);
    ASSERT_TRUE(cluster.run_until([&] { return older.ended; }, 20s)) << cluster.story();
    ASSERT_TRUE(node_is_up(cluster, kFirst)) << cluster.story();
    EXPECT_EQ(cluster.state().nodes.at(kFirst).agent, newer.hello.agent);
    cluster.sim.simulator.run_for(10s);
    EXPECT_TRUE(node_is_up(cluster, kFirst)) << cluster.story();
    EXPECT_FALSE(newer.ended);
  }
}

}  // namespace
}  // namespace rubato::sim

// Machines of several nodes are asked for in one call, and each node is told of its own.
#include <gtest/gtest.h>

#include "sim/cluster_testing.h"

namespace rubato::sim {
namespace {

using cluster::NodePhase;

int64_t nodes_up(const ClusterSim& cluster) {
  if (!cluster.head_up()) return 0;
  return std::ranges::count_if(cluster.state().nodes,
                               [](const auto& entry) { return entry.second.phase == NodePhase::kUp; });
}

bool journal_says(const ClusterSim& cluster, const std::string& text) {
  return cluster.story().find(text) != std::string::npos;
}

TEST(Launch, ManyNodesAreOneCall) {
  ClusterSim cluster(1, 4);
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return nodes_up(cluster) == 4; }, 60s)) << cluster.story();
  EXPECT_EQ(cluster.machines.made.launched, std::vector<size_t>{4});
  EXPECT_EQ(cluster.machines.made.creates, 4) << "each then finds its own";
}

TEST(Launch, ALoneNodeNeedsNoSuchCall) {
  ClusterSim cluster(1, 1);
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return nodes_up(cluster) == 1; }, 60s)) << cluster.story();
  EXPECT_TRUE(cluster.machines.made.launched.empty());
}

TEST(Launch, OneThatCannotBeHadDoesNotHoldUpTheOthers) {
  ClusterSim cluster(1, 3);
  cluster.machines.made.launch_errors.emplace(rubato::NodeId{"small-2"}, Error(ErrorCode::kNoCapacity, "sold out"));
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return nodes_up(cluster) == 2 && journal_says(cluster, "sold out"); }, 60s))
      << cluster.story();
  EXPECT_FALSE(cluster.machines.made.nodes.contains(rubato::NodeId{"small-2"}));
  // What there is none of is asked for again later, under another name.
  ASSERT_TRUE(cluster.run_until([&] { return nodes_up(cluster) == 3; }, 1800s)) << cluster.story();
}

TEST(Launch, ACallThatFailsAsAWholeFailsEachOfItsNodes) {
  ClusterSim cluster(1, 3);
  cluster.machines.made.launch_throws.emplace_back(ErrorCode::kUnavailable, "the cloud is down");
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return journal_says(cluster, "the cloud is down"); }, 60s)) << cluster.story();
  EXPECT_EQ(cluster.machines.made.creates, 0);
  ASSERT_TRUE(cluster.run_until([&] { return nodes_up(cluster) == 3; }, 1800s)) << cluster.story();
}

TEST(Launch, ANodeThatIsNotWantedAnyMoreIsRemovedWhenTheCallHasEnded) {
  ClusterSim cluster(1, 3);
  cluster.machines.made.launch_delay = 20s;
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.machines.made.launched.empty(); }, 60s));
  cluster.record(cluster::NodeRemoving{rubato::NodeId{"small-1"}, "a person has changed their mind"});
  ASSERT_TRUE(cluster.run_until(
      [&] { return !cluster.state().nodes.contains(rubato::NodeId{"small-1"}) && nodes_up(cluster) == 3; }, 120s))
      << cluster.story();
  EXPECT_FALSE(cluster.machines.made.nodes.contains(rubato::NodeId{"small-1"}));
}

// The next head finds what was asked for: nothing is made twice.
TEST(Launch, AHeadThatDiesInTheMiddleIsFollowedByOneThatAsksAgain) {
  ClusterSim cluster(1, 3);
  cluster.machines.made.launch_delay = 5s;
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.machines.made.launched.empty(); }, 60s));
  cluster.kill_head();
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return nodes_up(cluster) == 3; }, 120s)) << cluster.story();
  EXPECT_EQ(cluster.machines.made.nodes.size(), 3u);
  EXPECT_EQ(cluster.machines.made.launched, (std::vector<size_t>{3, 3}));
}

}  // namespace
}  // namespace rubato::sim

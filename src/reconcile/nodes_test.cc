#include "reconcile/nodes.h"

#include <gtest/gtest.h>

#include "reconcile/autoscale.h"
#include "reconcile/cluster_testing.h"

namespace rubato::reconcile {
namespace {

std::vector<std::string> advance(History& history, Wake* wake = nullptr, const Observed& observed = {}) {
  Wake own;
  std::vector<std::string> texts;
  const auto take = [&](const std::vector<Event>& events) {
    for (const Event& event : events) {
      texts.push_back(describe(event));
      history.add(event);
    }
  };
  take(advance_nodes(history.state, observed, history.now, wake ? *wake : own));
  take(advance_scale(history.state, history.now, wake ? *wake : own));
  std::erase_if(
      texts, [](const std::string& text) { return text.find("not launching: ") == 0 || text.find("all demand") == 0; });
  return texts;
}
using Texts = std::vector<std::string>;

History up(int count) {
  History history;
  history.configure({node_type("n", cpus(4), count, 10)});
  for (int i = 0; i < count; ++i) {
    history.node_up("n");
    history.pass(1s);
  }
  history.pass(1min);
  return history;
}

TEST(Nodes, AskForWhatIsMissingOnce) {
  History history;
  history.configure({node_type("a", cpus(1), 1, 1), node_type("b", cpus(2), 2, 2), node_type("c", cpus(1), 0, 5)});
  EXPECT_EQ(advance(history),
            (Texts{"node a-1 requested: min_workers of 'a' is 1", "node b-1 requested: min_workers of 'b' is 2",
                   "node b-2 requested: min_workers of 'b' is 2"}));
  EXPECT_EQ(advance(history), Texts{});
}

TEST(Nodes, ALostNodeIsRemovedAndReplacedByOneWithANewId) {
  History history = up(2);
  history.add(NodeLost{NodeId{"n-1"}, "silent"});
  EXPECT_EQ(advance(history), (Texts{"node n-1 is removed: silent", "node n-3 requested: min_workers of 'n' is 2"}));
  history.add(NodeGone{NodeId{"n-1"}});
  EXPECT_EQ(advance(history), Texts{});
}

TEST(Nodes, OfMoreThanTheMaximumTheIdleAndYoungestGo) {
  History history = up(4);
  history.running(job_of(1, 1), {{"n-4", 1}});
  history.configure({node_type("n", cpus(4), 2, 2)});
  EXPECT_EQ(advance(history), (Texts{"node n-3 is removed: max_workers of 'n' is 2 now",
                                     "node n-2 is removed: max_workers of 'n' is 2 now"}));
  history.configure({node_type("n", cpus(4), 0, 0)});
  EXPECT_EQ(advance(history), (Texts{"node n-1 is removed: max_workers of 'n' is 0 now",
                                     "node n-4 drains: max_workers of 'n' is 0 now"}));
}

TEST(Nodes, TheClustersMaximumCountsAllTypes) {
  History history;
  history.configure({node_type("a", cpus(4), 1, 3), node_type("b", cpus(4), 1, 3)});
  history.nodes_up("a", 2);
  history.pass(1s);
  history.nodes_up("b", 1);
  ClusterSpec spec = *history.state.spec;
  spec.max_workers = 2;
  history.add(ClusterConfigured{spec, "text"});
  EXPECT_EQ(advance(history), Texts{"node b-1 is removed: max_workers is 2 now"});
}

TEST(Nodes, AChangedTypeIsReplaced) {
  History history = up(2);
  const JobId job = history.running(job_of(1, 1), {{"n-1", 1}});
  history.configure({node_type("n", cpus(8), 2, 10)});
  EXPECT_EQ(advance(history),
            (Texts{"node n-1 drains: type 'n' has changed", "node n-2 is removed: type 'n' has changed",
                   "node n-3 requested: min_workers of 'n' is 2", "node n-4 requested: min_workers of 'n' is 2"}));
  EXPECT_EQ(advance(history), Texts{}) << "it has workers";
  history.add(JobEnded{job, JobResult::kSucceeded, ""});
  EXPECT_EQ(advance(history), Texts{"node n-1 is removed: type 'n' has changed"});
}

TEST(Nodes, ATypeThatIsGoneTakesItsNodesAlong) {
  History history = up(1);
  history.add(NodeRequested{NodeId{"n-9"}, "n", "", ""});
  history.configure({node_type("m", cpus(4), 0, 10)});
  EXPECT_EQ(advance(history), (Texts{"node n-1 is removed: the cluster has no type 'n' any more",
                                     "node n-9 is removed: the cluster has no type 'n' any more"}));
}

TEST(Nodes, TypesWhoseNodesDieYoungWait) {
  History history = up(1);
  const NodeId young = NodeId{"n-1"};
  history.add(History::joined(young, "other", cpus(4)));
  history.add(NodeLost{young, "crash"});
  Wake wake;
  EXPECT_EQ(advance(history, &wake), Texts{"node n-1 is removed: crash"});
  EXPECT_EQ(wake.at, later(history.now, 500ms));
  history.pass(500ms);
  EXPECT_EQ(advance(history), Texts{"node n-2 requested: min_workers of 'n' is 1"});
}

TEST(Nodes, AnAgentThatDoesNotJoinInTimeIsLost) {
  History history;
  history.configure({node_type("n", cpus(4), 1, 1)});
  advance(history);
  history.add(NodeCreated{NodeId{"n-1"}});
  Wake wake;
  EXPECT_EQ(advance(history, &wake), Texts{});
  EXPECT_EQ(wake.at, later(history.now, kJoinMax));
  history.pass(kJoinMax);
  EXPECT_EQ(advance(history), Texts{"node n-1 lost: its agent did not join within 1m00s"});
}

TEST(Nodes, AShutdownRemovesIdleNodesAndOthersWhenTheirJobsHaveEnded) {
  History history = up(2);
  const JobId job = history.running(job_of(1, 1), {{"n-1", 1}});
  history.add(ShutdownRequested{});
  EXPECT_EQ(advance(history), Texts{"node n-2 is removed: the cluster is shutting down"});
  EXPECT_EQ(advance(history), Texts{});
  history.add(JobStopping{job, false, ""});
  history.add(SeatVacated{job, NodeId{"n-1"}});
  EXPECT_EQ(advance(history), Texts{"node n-1 is removed: the cluster is shutting down"});
}

ClusterSpec machines(const std::string& head_runtime, const std::string& runtime, int workers) {
  NodeType type = node_type("n", cpus(4), workers, 10);
  type.runtime = runtime;
  ClusterSpec spec = cluster_of({type});
  spec.head_type = "n";
  spec.head_runtime = head_runtime;
  return spec;
}

// All nodes of `spec` up.
History machines_up(const ClusterSpec& spec) {
  History history;
  history.add(ClusterConfigured{spec, "text"});
  advance(history);
  for (const auto& [id, node] : std::map(history.state.nodes)) {
    history.add(NodeCreated{id, node.runtime});
    history.add(History::joined(id, "agent-" + id.value, cpus(4)));
  }
  return history;
}

TEST(Nodes, TheHeadsMachineIsANodeBesidesTheWorkers) {
  History history;
  history.add(ClusterConfigured{machines("h", "r", 1), "text"});
  EXPECT_EQ(advance(history), (Texts{"node head requested: the head's machine is a node too",
                                     "node n-1 requested: min_workers of 'n' is 1"}));
  EXPECT_EQ(advance(history), Texts{});
  EXPECT_EQ(history.state.nodes.at(NodeId{"head"}).runtime, "h");
}

TEST(Nodes, OtherFilesUpdateANodeWhenItsWorkHasLeft) {
  History history = machines_up(machines("h", "r", 2));
  const JobId job = history.running(job_of(1, 1), {{"n-1", 1}});
  history.add(ClusterConfigured{machines("h", "s", 2), "text"});
  EXPECT_EQ(advance(history), (Texts{"node n-1 drains: its files or commands have changed",
                                     "node n-2 is updated: its files or commands have changed"}));
  EXPECT_EQ(advance(history), Texts{}) << "the head's node is as it should be, n-1 has workers";
  history.add(JobEnded{job, JobResult::kSucceeded, ""});
  EXPECT_EQ(advance(history), Texts{"node n-1 is updated: its files or commands have changed"});
  const Node& node = history.state.nodes.at(NodeId{"n-1"});
  EXPECT_EQ(node.phase, NodePhase::kRequested);
  EXPECT_EQ(node.runtime, "s");
  EXPECT_EQ(node.retired.value, "agent-n-1") << "the agent from before may not join as the new one";

  history.add(NodeCreated{NodeId{"n-1"}, "r"});
  EXPECT_EQ(node.phase, NodePhase::kRequested) << "what was put there is not what is wanted now";
  history.add(NodeCreated{NodeId{"n-1"}, "s"});
  EXPECT_EQ(node.phase, NodePhase::kStarting);
}

TEST(Nodes, WithoutRestartsTheyAreUpdatedBesideTheirWork) {
  History history = machines_up(machines("h", "r", 1));
  history.running(job_of(1, 1), {{"n-1", 1}});
  history.add(ClusterConfigured{machines("h", "s", 1), "text", true, false});
  EXPECT_EQ(advance(history), Texts{"node n-1 is updated beside its work"});
  EXPECT_EQ(advance(history), Texts{});
  EXPECT_TRUE(history.state.nodes.at(NodeId{"n-1"}).usable());
  history.add(NodeRefreshed{NodeId{"n-1"}, "s", ""});
  EXPECT_EQ(advance(history), Texts{});
  EXPECT_EQ(history.state.nodes.at(NodeId{"n-1"}).runtime, "s");
}

TEST(Nodes, ARestartThatIsAskedForStartsEachAgentAnewOnce) {
  History history = machines_up(machines("h", "r", 1));
  history.add(ClusterConfigured{machines("h", "r", 1), "text", false, true});
  EXPECT_EQ(advance(history),
            (Texts{"node head is updated: a restart was asked for", "node n-1 is updated: a restart was asked for"}));
  for (const char* id : {"head", "n-1"}) {
    const NodeId node{id};
    history.add(NodeCreated{node, history.state.nodes.at(node).runtime});
    history.add(History::joined(node, "second", cpus(4)));
  }
  EXPECT_EQ(advance(history), Texts{});
}

TEST(Nodes, AnAgentThatJoinsBeforeItsStartIsToldIsNotRestartedAgain) {
  History history = machines_up(machines("h", "r", 1));
  history.add(ClusterConfigured{machines("h", "r", 1), "text", false, true});
  advance(history);
  for (const char* id : {"head", "n-1"}) {
    const NodeId node{id};
    history.add(History::joined(node, "second", cpus(4)));
    EXPECT_EQ(advance(history), Texts{}) << id;
    history.add(NodeCreated{node, history.state.nodes.at(node).runtime});
    EXPECT_EQ(history.state.nodes.at(node).phase, NodePhase::kUp);
  }
  EXPECT_EQ(advance(history), Texts{});
}

Texts plan(const State& state, const std::vector<NodeType>& types) {
  Texts texts;
  for (const PlannedChange& change : plan_changes(state, cluster_of(types)))
    texts.push_back(fmt::format("{} {} {}: {}", change.action, change.count, change.type, change.why));
  return texts;
}

TEST(PlanChanges, SaysWhatAFileWouldDo) {
  const History history = up(3);
  EXPECT_EQ(plan(history.state, {node_type("n", cpus(4), 3, 10)}), Texts{});
  EXPECT_EQ(plan(history.state, {node_type("n", cpus(4), 5, 10)}), Texts{"add 2 n: min_workers is 5"});
  EXPECT_EQ(plan(history.state, {node_type("n", cpus(4), 1, 10)}), Texts{"limits 0 n: min_workers: 3 → 1"});
  EXPECT_EQ(plan(history.state, {node_type("n", cpus(4), 1, 2)}),
            (Texts{"remove 1 n: max_workers is 2", "limits 0 n: max_workers: 10 → 2", "limits 0 n: min_workers: 3 → 1",
                   "setting 0 max_workers of the cluster: 10 → 2"}));
  EXPECT_EQ(plan(history.state, {node_type("n", cpus(4), 3, 7)}),
            (Texts{"limits 0 n: max_workers: 10 → 7", "setting 0 max_workers of the cluster: 10 → 7"}));
  EXPECT_EQ(plan(history.state, {node_type("m", cpus(4), 1, 1)}),
            (Texts{"remove 3 n: the type is not in the file any more", "add 1 m: min_workers is 1",
                   "setting 0 max_workers of the cluster: 10 → 1", "setting 0 node type n: no longer in the file"}));
}

TEST(PlanChanges, AChangedTypeIsReplacedGrownOrShrunk) {
  const History history = up(3);
  EXPECT_EQ(plan(history.state, {node_type("n", cpus(8), 3, 10)}), Texts{"replace 3 n: the type has changed"});
  EXPECT_EQ(plan(history.state, {node_type("n", cpus(8), 4, 10)}),
            (Texts{"replace 3 n: the type has changed", "add 1 n: min_workers is 4"}));
  EXPECT_EQ(plan(history.state, {node_type("n", cpus(8), 1, 10)}),
            (Texts{"replace 1 n: the type has changed", "remove 2 n: the type has changed"}));
}

TEST(PlanChanges, OfAFirstFileIsAllNew) {
  EXPECT_EQ(plan(State{}, {node_type("n", cpus(8), 2, 10)}), Texts{"add 2 n: min_workers is 2"});
}

}  // namespace
}  // namespace rubato::reconcile

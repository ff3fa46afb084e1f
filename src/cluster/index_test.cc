#include "cluster/index.h"

#include <gtest/gtest.h>

#include "cluster/state_testing.h"
#include "core/random.h"

namespace rubato::cluster {
namespace {

NodeId n(int number) { return NodeId{fmt::format("n-{}", number)}; }

class IndexTest : public ::testing::Test {
 protected:
  IndexTest() {
    history.configure({node_type("n", cpus(4), 0, 10)});
    history.nodes_up("n", 3);
  }
  ~IndexTest() override { EXPECT_TRUE(index() == index_of(history.state)); }
  const Index& index() const { return history.state.index; }

  History history;
};

TEST_F(IndexTest, AJobThatRunsOnAllItsSeatsIsAtRest) {
  const JobId job = history.submit(2, 2);
  EXPECT_EQ(index().pending_jobs(), std::set<JobId>{}) << "it waits";
  history.place(job, {{"n-1", 1}, {"n-2", 1}});
  EXPECT_EQ(index().pending_jobs(), std::set{job}) << "its round gathers";
  history.start(job);
  EXPECT_EQ(index().pending_jobs(), std::set<JobId>{});
  history.add(SeatDone{job, 1, n(1)});
  EXPECT_EQ(index().pending_jobs(), std::set<JobId>{});
  history.add(NodeLost{n(1), "gone"});
  EXPECT_EQ(index().pending_jobs(), std::set<JobId>{}) << "what was done there is done";
  history.add(NodeLost{n(2), "gone"});
  EXPECT_EQ(index().pending_jobs(), std::set{job});
}

TEST_F(IndexTest, AFailureATimeoutAndTheLastSeatThatIsDoneDisturbIt) {
  const JobId failed = history.running(job_of(1, 1), {{"n-1", 1}});
  const JobId done = history.running(job_of(1, 1), {{"n-1", 1}});
  JobSpec spec = job_of(1, 1);
  spec.timeout = 1h;
  const JobId timed = history.running(spec, {{"n-1", 1}});
  EXPECT_EQ(index().pending_jobs(), std::set{timed});
  history.fail(failed, "n-1");
  history.add(SeatDone{done, 1, n(1)});
  EXPECT_EQ(index().pending_jobs(), (std::set{failed, done, timed}));
  for (const JobId& job : {failed, done, timed}) history.add(JobEnded{job, JobResult::kStopped, ""});
  EXPECT_EQ(index().pending_jobs(), std::set<JobId>{});
}

TEST_F(IndexTest, ANodeIsPendingUntilItIsAsTheFileWantsIt) {
  EXPECT_EQ(index().pending_nodes(), std::set<NodeId>{});
  history.add(NodeDraining{n(1), "asked"});
  history.add(NodeLost{n(2), "gone"});
  EXPECT_EQ(index().pending_nodes(), (std::set{n(1), n(2)}));
  history.add(NodeRemoving{n(1), "empty"});
  history.add(NodeRemoving{n(2), "gone"});
  EXPECT_EQ(index().pending_nodes(), std::set<NodeId>{}) << "whoever removes them says when they are gone";
  history.configure({node_type("n", cpus(5), 0, 10)});
  EXPECT_EQ(index().pending_nodes(), std::set{n(3)}) << "it has the wrong size";
  EXPECT_EQ(index().count("n").all, 3);
  EXPECT_EQ(index().count("n").limited, 1);
  history.add(NodeGone{n(1)});
  EXPECT_EQ(index().count("n").all, 2);
}

TEST_F(IndexTest, NodesAreKnownByTheirRoom) {
  const JobId job = history.running(job_of(1, 8), {{"n-1", 4}, {"n-2", 1}});
  EXPECT_EQ(index().rooms().size(), 2u);
  EXPECT_EQ(index().rooms().at(n(2)).now, cpus(3));
  const Lot full{"n", "", Market::kOnDemand, {}}, nearly_free{"n", "", Market::kOnDemand, cpus(3)};
  EXPECT_EQ(index().busy(), (std::map<Lot, std::set<NodeId>>{{full, {n(1)}}, {nearly_free, {n(2)}}}));
  EXPECT_EQ(index().unassigned(), std::set{n(3)});
  EXPECT_EQ(index().sizes(), (std::map<Resources, int>{{cpus(4), 3}}));
  EXPECT_EQ(index().elastic_jobs(), std::set{job});
  EXPECT_EQ(index().used_by().at("ann").cpus, 5000u);
  // It shrinks: old workers still fill the node for a while.
  history.place(job, {{"n-1", 1}});
  EXPECT_EQ(index().busy().at(nearly_free), std::set{n(1)});
  EXPECT_EQ(index().rooms().at(n(1)).now, cpus(0));
  EXPECT_EQ(index().rooms().at(n(1)).soon, cpus(3));
  history.add(JobEnded{job, JobResult::kStopped, ""});
  EXPECT_EQ(index().rooms().at(n(1)).now, cpus(4));
  EXPECT_TRUE(index().used_by().empty());
}

TEST_F(IndexTest, ASnapshotsStateHasTheSame) {
  history.running(job_of(2, 4), {{"n-1", 2}, {"n-3", 1}});
  history.fail(history.running(job_of(1, 1), {{"n-2", 1}}), "n-2");
  history.add(NodeLost{n(3), "gone"});
  EXPECT_TRUE(decode_snapshot(encode_snapshot(history.state)).index == index());
}

}  // namespace
}  // namespace rubato::cluster

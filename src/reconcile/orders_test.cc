#include "reconcile/orders.h"

#include <gtest/gtest.h>

#include "reconcile/cluster_testing.h"
#include "reconcile/jobs.h"

namespace rubato::reconcile {
namespace {

using elastic::Phase;

History two_nodes() {
  History history;
  history.configure({node_type("n", cpus(4), 2, 4)});
  history.nodes_up("n", 2);
  return history;
}

elastic::JobOrder job_order(const History& history, const std::string& node) {
  const elastic::Orders orders = orders_for(history.state, NodeId{node}, "/jobs");
  EXPECT_EQ(orders.job_orders.size(), 1u);
  return orders.job_orders.empty() ? elastic::JobOrder{} : orders.job_orders.front();
}

TEST(Orders, FollowTheRoundsOfAJob) {
  History history = two_nodes();
  const JobId job = history.submit(2, 4);
  EXPECT_TRUE(orders_for(history.state, NodeId{"n-1"}, "/jobs").job_orders.empty());
  history.place(job, {{"n-2", 1}, {"n-1", 3}});
  EXPECT_EQ(job_order(history, "n-1").phase, Phase::kGathering);
  EXPECT_EQ(job_order(history, "n-1").workers, 3);
  EXPECT_EQ(job_order(history, "n-1").output, "/jobs/" + job.value + "/output");
  history.start(job);
  const elastic::JobOrder running = job_order(history, "n-1");
  EXPECT_EQ(running.phase, Phase::kRunning);
  EXPECT_EQ(running.generation, 1u);
  EXPECT_EQ(running.master_addr, "127.0.1.1");
  EXPECT_EQ(running.master_port, 5000);
  history.place(job, {{"n-2", 2}});
  EXPECT_EQ(job_order(history, "n-1").phase, Phase::kEnded);
  EXPECT_EQ(job_order(history, "n-1").grace, history.job(job).spec.checkpoint_timeout) << "it may save";
  history.add(JobStopping{job, false, ""});
  EXPECT_EQ(job_order(history, "n-2").phase, Phase::kEnded);
  EXPECT_EQ(job_order(history, "n-2").grace, history.job(job).spec.grace);
}

TEST(Orders, GiveTheRanksThatTheRoundHas) {
  History history = two_nodes();
  const JobId job = history.running(job_of(2, 4), {{"n-2", 1}, {"n-1", 3}});
  const std::vector<elastic::Assignment> places = elastic::assign_ranks(round_of(history.state, history.job(job)));
  EXPECT_EQ(job_order(history, "n-2").place, places.at(0));
  EXPECT_EQ(job_order(history, "n-1").place, places.at(1));
  EXPECT_EQ(places.at(1).first_rank, 1);
}

TEST(Orders, AfterAFailureNobodySaves) {
  History history = two_nodes();
  const JobId job = history.running(job_of(2, 4), {{"n-1", 2}, {"n-2", 2}});
  history.fail(job, "n-1");
  history.place(job, {{"n-1", 2}, {"n-2", 2}});
  EXPECT_EQ(job_order(history, "n-2").grace, history.job(job).spec.grace);
}

// It would have run the workers of a seat that is done a second time.
TEST(Orders, AReplacedAgentRunsNothingOfTheOldOnes) {
  History history = two_nodes();
  const JobId job = history.running(job_of(2, 4), {{"n-1", 2}, {"n-2", 2}});
  history.add(SeatDone{job, 1, NodeId{"n-1"}});
  history.add(History::joined(NodeId{"n-1"}, "other", cpus(4)));
  EXPECT_EQ(job_order(history, "n-1").phase, Phase::kEnded);
}

TEST(Orders, AnOutputIsWantedWhenNobodyWritesIt) {
  History history = two_nodes();
  NodeJoined joined = History::joined(NodeId{"n-1"}, "agent-n-1", cpus(4));
  joined.own_disk = true;
  history.add(joined);
  const auto outputs = [&] { return orders_for(history.state, NodeId{"n-1"}, "/jobs").outputs; };
  using Outputs = std::vector<elastic::OutputOrder>;
  const JobId job = history.running(job_of(1, 4), {{"n-1", 1}});
  EXPECT_EQ(outputs(), Outputs{});
  history.place(job, {{"n-2", 1}});
  EXPECT_EQ(outputs(), Outputs{}) << "they are still being stopped";
  history.add(SeatVacated{job, NodeId{"n-1"}});
  EXPECT_EQ(outputs(), (Outputs{{job, true}}));
  history.add(cluster::OutputKept{job, NodeId{"n-1"}, 1, 1, 1});
  EXPECT_EQ(outputs(), (Outputs{{job, false}})) << "the job may come back";
  history.add(JobEnded{job, JobResult::kStopped, ""});
  EXPECT_EQ(outputs(), Outputs{});
}

TEST(Orders, ADrainingNodeIsToldSo) {
  History history = two_nodes();
  EXPECT_FALSE(orders_for(history.state, NodeId{"n-1"}, "/jobs").drain);
  history.add(NodeDraining{NodeId{"n-1"}, "asked"});
  EXPECT_TRUE(orders_for(history.state, NodeId{"n-1"}, "/jobs").drain);
  EXPECT_TRUE(orders_for(history.state, NodeId{"nowhere"}, "/jobs").job_orders.empty());
}

}  // namespace
}  // namespace rubato::reconcile

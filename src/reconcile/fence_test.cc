// When a silent node is given up, and when the next generation may start without it.
#include "reconcile/fence.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cluster/state_testing.h"
#include "elastic/lease.h"
#include "reconcile/admit.h"
#include "reconcile/decide.h"
#include "reconcile/orders.h"

namespace rubato::reconcile {
namespace {

using namespace cluster;  // NOLINT: a test of the same subject

const NodeId kFirst{"n-1"}, kSecond{"n-2"}, kThird{"n-3"}, kFourth{"n-4"};
AgentId agent(const NodeId& node) { return AgentId{"agent-" + node.value}; }

// A job of four nodes that runs.
struct Silence : testing::Test {
  History history;
  PlanMemory memory;
  Observed observed;
  JobId job;

  Silence() {
    history.configure({node_type("n", cpus(1), 4, 4)});
    history.nodes_up("n", 4);
    job = history.running(job_of(2, 4), {{"n-1", 1}, {"n-2", 1}, {"n-3", 1}, {"n-4", 1}});
    history.pass(1min);
  }

  Duration allowed(const NodeId& node, std::set<NodeId> heard) const {
    return silence_allowed(history.state, node, [&](const NodeId& one) { return heard.contains(one); });
  }
  // The node is given up; then the others are ready.
  void lose(const NodeId& node, bool silent = true) {
    decide(history.state, memory, observed, {NodeLost{node, "test", silent}}, history.now);
    for (const Seat& seat : history.job(job).seats) {
      Observed::Ready ready;
      ready.generation = history.job(job).generation;
      ready.port = 5000;
      observed.ready[job][seat.node] = ready;
    }
  }
  void silent_for(const NodeId& node, Duration time) { observed.silence[node] = time; }
  void disown(const NodeId& by, const NodeId& node) { observed.fenced[agent(node)].insert(agent(by)); }
  bool starts() {
    decide(history.state, memory, observed, {}, history.now);
    return history.job(job).phase == JobPhase::kRunning;
  }
};

constexpr Duration kTakeover = elastic::takeover_after(3s);

TEST_F(Silence, IsNotBorneWhereTheRestIsHalfOrMore) {
  EXPECT_EQ(allowed(kFirst, {kSecond, kThird, kFourth}), 0s);
  EXPECT_EQ(allowed(kFirst, {kSecond, kThird}), 0s);
}

TEST_F(Silence, IsBorneForTheLeaseWhereMoreThanHalfAreSilent) {
  EXPECT_EQ(allowed(kFirst, {kSecond}), elastic::kDefaultLease);
  EXPECT_EQ(allowed(kFirst, {}), elastic::kDefaultLease);
}

TEST_F(Silence, IsBorneForTheLeaseOfAJobOnOneNode) {
  history.add(JobEnded{job, JobResult::kStopped, ""});
  JobSpec spec = job_of(1, 1);
  spec.lease = 30s;
  history.running(spec, {{"n-1", 1}});
  EXPECT_EQ(allowed(kFirst, {kSecond, kThird, kFourth}), 30s);
  EXPECT_EQ(allowed(kSecond, {}), 0s) << "nothing is there";
}

TEST_F(Silence, NothingStartsBeforeTheSilentNodeMustHaveEndedItsWorkers) {
  lose(kFourth);
  ASSERT_TRUE(history.job(job).cut_off.contains(kFourth));
  for (const NodeId& node : {kFirst, kSecond, kThird}) disown(node, kFourth);
  silent_for(kFourth, kTakeover - 1ms);
  EXPECT_FALSE(starts());
  silent_for(kFourth, kTakeover);
  EXPECT_TRUE(starts());
  EXPECT_TRUE(history.job(job).cut_off.empty());
}

TEST_F(Silence, NorBeforeHalfOfTheOthersVouchForItNoMore) {
  lose(kFourth);
  silent_for(kFourth, kTakeover);
  disown(kFirst, kFourth);
  EXPECT_FALSE(starts());
  EXPECT_NE(fence_reason(history.state, observed, history.job(job)).find("n-4"), std::string::npos);
  disown(kSecond, kFourth);
  EXPECT_TRUE(starts());
}

TEST_F(Silence, TheLeaseNeedsNobodysWord) {
  lose(kFourth);
  silent_for(kFourth, elastic::lease_over_after(elastic::kDefaultLease) - 1ms);
  EXPECT_FALSE(starts());
  silent_for(kFourth, elastic::lease_over_after(elastic::kDefaultLease));
  EXPECT_TRUE(starts());
}

TEST_F(Silence, IsCountedByTheLeaseThatTheNodeWasTold) {
  ClusterConfigured shorter{*history.state.spec, "text"};
  shorter.spec.lease = 30s;
  history.add(std::move(shorter));
  EXPECT_EQ(orders_for(history.state, kFourth, "").job_orders.front().lease, elastic::kDefaultLease);
  EXPECT_EQ(allowed(kFirst, {}), elastic::kDefaultLease);
  lose(kFourth);
  silent_for(kFourth, elastic::lease_over_after(30s));
  EXPECT_FALSE(starts()) << "it goes on for two minutes";
  silent_for(kFourth, elastic::lease_over_after(elastic::kDefaultLease));
  ASSERT_TRUE(starts());
  EXPECT_EQ(orders_for(history.state, kFirst, "").job_orders.front().lease, 30s);
}

TEST_F(Silence, ADeadNodeIsNotWaitedFor) {
  lose(kFourth, false);
  EXPECT_TRUE(history.job(job).cut_off.empty());
  EXPECT_TRUE(starts());
}

TEST_F(Silence, ProofOfDeathEndsTheWait) {
  for (const int proof : {0, 1, 2}) {
    struct Case : Silence {
      void TestBody() override {}
    } other;
    other.lose(kFourth);
    other.silent_for(kFourth, 0s);
    EXPECT_FALSE(other.starts());
    if (proof == 0) other.history.add(NodeLost{kFourth, "its kernel refuses"});
    if (proof == 1) other.history.add(NodeGone{kFourth});
    if (proof == 2) {
      DeclareNodeLost lost;
      lost.node = kFourth;
      lost.by = "ann";
      for (Event& event : admit_or_throw(other.history.state, lost, other.history.now).events)
        other.history.add(std::move(event));
    }
    EXPECT_TRUE(other.starts()) << proof;
  }
}

TEST_F(Silence, AMachineThatDoesNotAnswerIsNoProof) {
  lose(kFourth);
  history.add(NodeGone{kFourth, true});
  silent_for(kFourth, kTakeover);
  EXPECT_FALSE(starts());
}

TEST_F(Silence, WithoutLeasesOnlyProofHelps) {
  observed.leases = false;
  lose(kFourth);
  for (const NodeId& node : {kFirst, kSecond, kThird}) disown(node, kFourth);
  silent_for(kFourth, 1h);
  EXPECT_FALSE(starts());
  history.add(NodeLost{kFourth, "it was killed"});
  EXPECT_TRUE(starts());
}

TEST_F(Silence, TheOthersAreToldWhomTheyMayNotVouchFor) {
  EXPECT_TRUE(orders_for(history.state, kFirst, "/out").fence.empty());
  const elastic::Orders before = orders_for(history.state, kFirst, "/out");
  ASSERT_EQ(before.job_orders.size(), 1u);
  EXPECT_EQ(before.job_orders[0].witnesses.size(), 4u);
  EXPECT_EQ(before.job_orders[0].lease, elastic::kDefaultLease);
  lose(kFourth);
  EXPECT_EQ(orders_for(history.state, kFirst, "/out").fence, std::vector<AgentId>{agent(kFourth)});
}

TEST_F(Silence, NothingIsDecidedAboutJobsOfNodesThatAreSilent) {
  JobSpec timed = job_of(1, 1);
  timed.timeout = 10s;
  history.add(JobEnded{job, JobResult::kStopped, ""});
  job = history.running(timed, {{"n-1", 1}});
  history.pass(1min);
  observed.silent = {kFirst};
  EXPECT_TRUE(decide(history.state, memory, observed, {}, history.now).records.empty()) << "no time-out";
  const JobId second = history.submit(4, 4);
  decide(history.state, memory, observed, {}, history.now);
  EXPECT_EQ(history.job(second).phase, JobPhase::kQueued) << "it is not placed on a silent node";
}

TEST_F(Silence, WhoIsHeardIsNotDeclaredLost) {
  DeclareNodeLost lost;
  lost.node = kFourth;
  lost.is_heard = true;
  const Admission refused = admit(history.state, lost, history.now);
  ASSERT_TRUE(std::holds_alternative<Refused>(refused));
  EXPECT_EQ(std::get<Refused>(refused).reason, Refusal::kNodeLives);
  lost.node = NodeId{"nobody"};
  EXPECT_EQ(std::get<Refused>(admit(history.state, lost, history.now)).reason, Refusal::kNoSuchNode);
}

TEST_F(Silence, WorkersThatTheirNodeEndedCostNoRestart) {
  history.add(SeatFailed{job, 1, kFourth, {}, true});
  decide(history.state, memory, observed, {}, history.now);
  EXPECT_EQ(history.job(job).phase, JobPhase::kRestarting);
  for (const Seat& seat : history.job(job).seats) {
    Observed::Ready ready;
    ready.generation = 2;
    ready.port = 5000;
    observed.ready[job][seat.node] = ready;
  }
  EXPECT_TRUE(starts());
  EXPECT_EQ(history.job(job).restarts.used, 0);
}

TEST_F(Silence, OutlivesASnapshot) {
  lose(kFourth);
  const State read = decode_snapshot(encode_snapshot(history.state));
  EXPECT_EQ(read.beside_cut_off, history.state.beside_cut_off);
  EXPECT_EQ(read.jobs.at(job).cut_off, history.job(job).cut_off);
  EXPECT_EQ(read.jobs.at(job).round, history.job(job).round);
}

}  // namespace
}  // namespace rubato::reconcile

// A head acts on what it has heard, not on what it has not heard yet; and what ended well stays so.
#include <gtest/gtest.h>

#include "reconcile/autoscale.h"
#include "reconcile/cluster_testing.h"
#include "reconcile/nodes.h"

namespace rubato::reconcile {
namespace {

using elastic::JobOrderReport;
using elastic::JobOrderState;

// An elastic job on the first of two nodes, with room to grow; a second has passed since it began.
struct NewHead {
  History history;
  PlanMemory memory;
  Observed observed;
  JobId job;

  explicit NewHead(Duration timeout = 0s) {
    history.configure({node_type("n", cpus(1), 2, 2)});
    history.nodes_up("n", 2);
    JobSpec spec = job_of(1, 2);
    spec.timeout = timeout;
    job = history.running(spec, {{"n-1", 1}});
    history.pass(1min);
    observed.unheard = {NodeId{"n-1"}, NodeId{"n-2"}};
  }
  std::vector<std::string> decide_types(std::vector<Event> happened = {}) {
    std::vector<std::string> types;
    for (const Record& record : decide(history.state, memory, observed, std::move(happened), history.now).records)
      types.emplace_back(type_name(record.event));
    return types;
  }
  JobOrderReport report(JobOrderState state, Generation succeeded = 0) const {
    JobOrderReport report;
    report.job = job;
    report.generation = history.job(job).generation;
    report.state = state;
    report.succeeded = succeeded;
    return report;
  }
  std::vector<std::string> hear(const std::string& node, const JobOrderReport& report) {
    observed.unheard.erase(NodeId{node});
    return decide_types(observe(history.state, observed, NodeId{node}, {report}));
  }
};
using Types = std::vector<std::string>;

TEST(NewHead, DecidesNothingBeforeItHasHeardAll) {
  NewHead head(10s);
  EXPECT_EQ(head.decide_types(), Types{}) << "neither growth nor timeout";
  EXPECT_EQ(head.hear("n-1", head.report(JobOrderState::kSucceeded)), (Types{"seat-done", "job-ended"}));
  EXPECT_EQ(head.history.job(head.job).phase, JobPhase::kSucceeded);
}

TEST(NewHead, EndsWhatIsStillThereAfterItsTimeout) {
  NewHead head(10s);
  EXPECT_EQ(head.hear("n-1", head.report(JobOrderState::kRunning)), Types{"job-stopping"});
}

TEST(NewHead, LetsJobsGrowWhenAllAreHeard) {
  NewHead head;
  EXPECT_EQ(head.hear("n-1", head.report(JobOrderState::kRunning)), Types{});
  head.observed.unheard.clear();
  EXPECT_EQ(head.decide_types(), Types{"job-placed"});
}

TEST(NewHead, DoesNotWaitForWhoeverWasGivenUp) {
  NewHead head;
  EXPECT_EQ(head.hear("n-1", head.report(JobOrderState::kRunning)), Types{});
  EXPECT_EQ(head.decide_types({NodeLost{NodeId{"n-2"}, "gone"}}).front(), "node-lost");
  EXPECT_FALSE(any_unheard(head.history.state, head.observed));
}

TEST(NewHead, WaitsForTheLastLinesOfAJobThatIsDone) {
  NewHead head(10s);
  head.observed.unheard.clear();
  EXPECT_EQ(head.hear("n-1", head.report(JobOrderState::kRunning, 1)), Types{}) << "no growth, no timeout";
  EXPECT_EQ(head.hear("n-1", head.report(JobOrderState::kSucceeded, 1)), (Types{"seat-done", "job-ended"}));
}

TEST(NewHead, GivesAgentsThatStartedMeanwhileTimeToJoin) {
  History history;
  history.configure({node_type("n", cpus(1), 1, 1)});
  const ClusterSpec& spec = *history.state.spec;
  history.add(NodeRequested{NodeId{"n-1"}, "n", launch_hash(spec, spec.types.at("n")), ""});
  history.add(NodeCreated{NodeId{"n-1"}});
  history.pass(1h);
  Observed observed;
  observed.listening_since = history.now;
  Wake wake;
  EXPECT_TRUE(advance_nodes(history.state, observed, history.now, wake).empty());
  EXPECT_EQ(wake.at, later(history.now, kRejoinMax));
  history.pass(kRejoinMax);
  EXPECT_FALSE(advance_nodes(history.state, observed, history.now, wake).empty());
}

TEST(Success, IsHeardHoweverLate) {
  for (const bool stopped : {false, true}) {
    NewHead head;
    head.observed.unheard.clear();
    if (stopped) {
      head.decide_types({JobStopping{head.job, true, "timeout"}});
    } else {
      EXPECT_EQ(head.decide_types(), Types{"job-placed"});
    }
    // It was done when it was told.
    const JobOrderReport late = head.report(stopped ? JobOrderState::kGone : JobOrderState::kReady, 1);
    EXPECT_EQ(head.hear("n-1", late).front(), "seat-done");
    EXPECT_EQ(head.history.job(head.job).phase, JobPhase::kSucceeded);
  }
}

TEST(Success, OfSomeNodesIsNoSuccess) {
  History history;
  history.configure({node_type("n", cpus(1), 2, 2)});
  history.nodes_up("n", 2);
  const JobId job = history.running(job_of(1, 2), {{"n-1", 1}, {"n-2", 1}});
  history.add(SeatDone{job, 1, NodeId{"n-1"}});
  history.add(NodeLost{NodeId{"n-2"}, "gone"});
  history.place(job, {{"n-1", 1}});
  EXPECT_FALSE(history.job(job).finished());
  history.add(SeatDone{job, 1, NodeId{"n-2"}});  // its agent had said so after all
  EXPECT_TRUE(history.job(job).finished());
}

// What the autoscaler was asked changes when a failure is settled: the job wants its workers back.
TEST(Demand, OfAJobThatGathersAfterAFailureIsSeenAgain) {
  History history;
  history.configure({node_type("n", cpus(1), 0, 3)});
  history.nodes_up("n", 3);
  const JobId job = history.running(job_of(1, 3), {{"n-1", 1}, {"n-2", 1}, {"n-3", 1}});
  history.pass(1min);
  history.fail(job, "n-1");
  history.place(job, {{"n-1", 1}, {"n-2", 1}, {"n-3", 1}});
  history.add(NodeLost{NodeId{"n-3"}, "gone"});
  history.add(NodeRemoving{NodeId{"n-3"}, "gone"});
  history.add(NodeGone{NodeId{"n-3"}});
  history.place(job, {{"n-1", 1}, {"n-2", 1}});
  Wake wake;
  PlanMemory memory;
  for (const Event& event : advance_scale_when_due(history.state, memory, history.now, wake))
    EXPECT_FALSE(std::holds_alternative<NodeRequested>(event)) << "it may still fail for good";
  history.pass(2s);
  history.start(job);
  bool requested = false;
  for (const Event& event : advance_scale_when_due(history.state, memory, history.now, wake))
    requested |= std::holds_alternative<NodeRequested>(event);
  EXPECT_TRUE(requested);
}

}  // namespace
}  // namespace rubato::reconcile

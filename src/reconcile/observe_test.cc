#include "reconcile/observe.h"

#include <gtest/gtest.h>

#include "reconcile/cluster_testing.h"

namespace rubato::reconcile {
namespace {

using elastic::ErrandReport;
using elastic::ErrandState;

struct Watch {
  History history;
  Observed observed;
  NodeId node{"n-1"};

  Watch() {
    history.configure({node_type("n", cpus(4), 2, 4)});
    history.nodes_up("n", 2);
  }
  ErrandReport report(const JobId& job, ErrandState state) const {
    ErrandReport report;
    report.job = job;
    report.generation = history.job(job).generation;
    report.state = state;
    return report;
  }
  // What is new in these reports, written down.
  std::vector<std::string> see(const std::vector<ErrandReport>& reports) {
    std::vector<std::string> types;
    for (const Event& event : observe(history.state, observed, node, reports)) {
      types.emplace_back(type_name(event));
      history.add(event);
    }
    return types;
  }
};
using Types = std::vector<std::string>;

TEST(Observe, OnlyWhatIsNewCounts) {
  Watch watch;
  const JobId job = watch.history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  EXPECT_EQ(watch.see({watch.report(job, ErrandState::kRunning)}), Types{});
  EXPECT_EQ(watch.see({watch.report(job, ErrandState::kSucceeded)}), Types{"seat-done"});
  EXPECT_EQ(watch.see({watch.report(job, ErrandState::kSucceeded)}), Types{});
  watch.node = NodeId{"n-2"};
  EXPECT_EQ(watch.see({watch.report(job, ErrandState::kFailed)}), Types{"seat-failed"});
  EXPECT_EQ(watch.see({watch.report(job, ErrandState::kFailed)}), Types{});
}

TEST(Observe, OtherGenerationsAndUnknownJobsSayNothing) {
  Watch watch;
  const JobId job = watch.history.running(job_of(1, 4), {{"n-1", 2}});
  ErrandReport old = watch.report(job, ErrandState::kFailed);
  old.generation = 0;
  ErrandReport unknown = old;
  unknown.job = JobId{"j-other"};
  EXPECT_EQ(watch.see({old, unknown}), Types{});
  watch.history.add(JobEnded{job, JobResult::kStopped, ""});
  EXPECT_EQ(watch.see({watch.report(job, ErrandState::kFailed)}), Types{});
}

TEST(Observe, LateFailuresOfTheLastRoundAreKept) {
  Watch watch;
  const JobId job = watch.history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  const ErrandReport failed = watch.report(job, ErrandState::kFailed);
  watch.history.fail(job, "n-2");
  watch.history.place(job, {{"n-1", 2}, {"n-2", 2}});
  EXPECT_EQ(watch.see({failed}), Types{"seat-failed"});
  EXPECT_EQ(watch.see({failed}), Types{});
}

TEST(Observe, ReadySeatsAreKnownUntilTheAgentSaysOtherwise) {
  Watch watch;
  const JobId job = watch.history.submit(2, 2);
  watch.history.place(job, {{"n-1", 2}});
  ErrandReport ready = watch.report(job, ErrandState::kReady);
  ready.port = 4711;
  watch.see({ready});
  ASSERT_TRUE(watch.observed.of(job, watch.node, 1));
  EXPECT_EQ(watch.observed.of(job, watch.node, 1)->port, 4711);
  EXPECT_FALSE(watch.observed.of(job, watch.node, 2));
  watch.see({watch.report(job, ErrandState::kPreparing)});
  EXPECT_FALSE(watch.observed.of(job, watch.node, 1));
  watch.see({ready});
  forget(watch.observed, watch.node);
  EXPECT_TRUE(watch.observed.ready.empty());
}

TEST(Observe, WorkersAreGoneWhenTheAgentSaysSoOrKnowsNothing) {
  Watch watch;
  const JobId job = watch.history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  watch.history.place(job, {{"n-2", 2}});
  EXPECT_EQ(watch.see({watch.report(job, ErrandState::kPreparing)}), Types{});
  EXPECT_EQ(watch.see({watch.report(job, ErrandState::kGone)}), Types{"seat-vacated"});
  EXPECT_EQ(watch.see({watch.report(job, ErrandState::kGone)}), Types{});
  watch.node = NodeId{"n-2"};
  watch.history.add(JobStopping{job, false, ""});
  EXPECT_EQ(watch.see({}), Types{"seat-vacated"});
}

TEST(Observe, AMissedCheckpointIsToldOnce) {
  Watch watch;
  const JobId job = watch.history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  watch.history.place(job, {{"n-1", 2}, {"n-2", 1}});
  ErrandReport ready = watch.report(job, ErrandState::kReady);
  ready.forced = {"rank 0"};
  EXPECT_EQ(watch.see({ready}), Types{"checkpoint-missed"});
  EXPECT_EQ(watch.see({ready}), Types{}) << "agents repeat all that they have with every change";
  watch.history.place(job, {{"n-1", 1}});
  ready.generation = 3;
  EXPECT_EQ(watch.see({ready}), Types{"checkpoint-missed"});
}

}  // namespace
}  // namespace rubato::reconcile

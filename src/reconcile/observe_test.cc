#include "reconcile/observe.h"

#include <gtest/gtest.h>

#include <limits>

#include "model/limits.h"
#include "reconcile/cluster_testing.h"

namespace rubato::reconcile {
namespace {

using elastic::JobOrderReport;
using elastic::JobOrderState;

struct Watch {
  History history;
  Observed observed;
  NodeId node{"n-1"};

  Watch() {
    history.configure({node_type("n", cpus(4), 2, 4)});
    history.nodes_up("n", 2);
  }
  JobOrderReport report(const JobId& job, JobOrderState state) const {
    JobOrderReport report;
    report.job = job;
    report.generation = history.job(job).generation;
    report.state = state;
    return report;
  }
  // What is new in these reports, written down.
  std::vector<std::string> see(const std::vector<JobOrderReport>& reports) {
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
  EXPECT_EQ(watch.see({watch.report(job, JobOrderState::kRunning)}), Types{});
  EXPECT_EQ(watch.see({watch.report(job, JobOrderState::kSucceeded)}), Types{"seat-done"});
  EXPECT_EQ(watch.see({watch.report(job, JobOrderState::kSucceeded)}), Types{});
  watch.node = NodeId{"n-2"};
  EXPECT_EQ(watch.see({watch.report(job, JobOrderState::kFailed)}), Types{"seat-failed"});
  EXPECT_EQ(watch.see({watch.report(job, JobOrderState::kFailed)}), Types{});
}

// etcd takes a mebibyte at once: what does not fit would end this head, and the next one.
TEST(Observe, WhatANodeReportsFitsIntoARecord) {
  Watch watch;
  const JobId job = watch.history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  JobOrderReport report = watch.report(job, JobOrderState::kFailed);
  report.failures.resize(kFailuresReportedMax);
  for (size_t i = 0; i < report.failures.size(); ++i) {
    report.failures[i].rank = static_cast<int>(i);
    report.failures[i].pid = std::numeric_limits<int>::max();
    report.failures[i].at = Instant(1h) - std::chrono::seconds(i);
    report.failures[i].message = std::string(kFailureTextsMax / kFailuresReportedMax, 'x');
  }
  const std::vector<Event> events = observe(watch.history.state, watch.observed, watch.node, {report});
  ASSERT_EQ(events.size(), 1u);
  EXPECT_LT(encode(WallTime{}, events[0]).size(), size_t{1} << 19);
  const auto& failed = std::get<SeatFailed>(events[0]);
  ASSERT_EQ(failed.failures.size(), 64u);
  EXPECT_EQ(failed.failures[0].rank, static_cast<int>(kFailuresReportedMax) - 1) << "the first one is the cause";
}

TEST(Observe, OtherGenerationsAndUnknownJobsSayNothing) {
  Watch watch;
  const JobId job = watch.history.running(job_of(1, 4), {{"n-1", 2}});
  JobOrderReport old = watch.report(job, JobOrderState::kFailed);
  old.generation = 0;
  JobOrderReport unknown = old;
  unknown.job = JobId{"j-other"};
  EXPECT_EQ(watch.see({old, unknown}), Types{});
  watch.history.add(JobEnded{job, JobResult::kStopped, ""});
  EXPECT_EQ(watch.see({watch.report(job, JobOrderState::kFailed)}), Types{});
}

TEST(Observe, LateFailuresOfTheLastRoundAreKept) {
  Watch watch;
  const JobId job = watch.history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  const JobOrderReport failed = watch.report(job, JobOrderState::kFailed);
  watch.history.fail(job, "n-2");
  watch.history.place(job, {{"n-1", 2}, {"n-2", 2}});
  EXPECT_EQ(watch.see({failed}), Types{"seat-failed"});
  EXPECT_EQ(watch.see({failed}), Types{});
}

TEST(Observe, ReadySeatsAreKnownUntilTheAgentSaysOtherwise) {
  Watch watch;
  const JobId job = watch.history.submit(2, 2);
  watch.history.place(job, {{"n-1", 2}});
  JobOrderReport ready = watch.report(job, JobOrderState::kReady);
  ready.port = 4711;
  watch.see({ready});
  ASSERT_TRUE(watch.observed.of(job, watch.node, 1));
  EXPECT_EQ(watch.observed.of(job, watch.node, 1)->port, 4711);
  EXPECT_FALSE(watch.observed.of(job, watch.node, 2));
  watch.see({watch.report(job, JobOrderState::kPreparing)});
  EXPECT_FALSE(watch.observed.of(job, watch.node, 1));
  watch.see({ready});
  forget(watch.observed, watch.node);
  EXPECT_TRUE(watch.observed.ready.empty());
}

TEST(Observe, WorkersAreGoneWhenTheAgentSaysSoOrKnowsNothing) {
  Watch watch;
  const JobId job = watch.history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  watch.history.place(job, {{"n-2", 2}});
  EXPECT_EQ(watch.see({watch.report(job, JobOrderState::kPreparing)}), Types{});
  EXPECT_EQ(watch.see({watch.report(job, JobOrderState::kGone)}), Types{"seat-vacated"});
  EXPECT_EQ(watch.see({watch.report(job, JobOrderState::kGone)}), Types{});
  watch.node = NodeId{"n-2"};
  watch.history.add(JobStopping{job, false, ""});
  EXPECT_EQ(watch.see({}), Types{"seat-vacated"});
}

TEST(Observe, AMissedCheckpointIsToldOnce) {
  Watch watch;
  const JobId job = watch.history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  watch.history.place(job, {{"n-1", 2}, {"n-2", 1}});
  JobOrderReport ready = watch.report(job, JobOrderState::kReady);
  ready.forced = {"rank 0"};
  EXPECT_EQ(watch.see({ready}), Types{"checkpoint-missed"});
  EXPECT_EQ(watch.see({ready}), Types{}) << "agents repeat all that they have with every change";
  watch.history.place(job, {{"n-1", 1}});
  ready.generation = 3;
  EXPECT_EQ(watch.see({ready}), Types{"checkpoint-missed"});
}

TEST(Observe, ACheckpointMissedOnANodeThatIsLeftIsToldToo) {
  Watch watch;
  const JobId job = watch.history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  watch.history.place(job, {{"n-2", 2}});
  JobOrderReport gone = watch.report(job, JobOrderState::kGone);
  gone.forced = {"rank 1"};
  EXPECT_EQ(watch.see({gone}), (Types{"checkpoint-missed", "seat-vacated"}));
  EXPECT_EQ(watch.see({gone}), Types{});
}

}  // namespace
}  // namespace rubato::reconcile

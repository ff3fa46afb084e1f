#include "agent/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace rubato::agent {
namespace {

elastic::Failure failure(int rank, Duration at) {
  elastic::Failure f;
  f.host = "node7";
  f.rank = rank;
  f.local_rank = rank % 2;
  f.pid = 100 + rank;
  f.exit_code = 1;
  f.at = Instant{} + at;
  return f;
}

elastic::View ended(std::vector<elastic::Failure> failures) {
  elastic::View view;
  view.phase = elastic::Phase::kEnded;
  view.reason = "all 2 restarts are used up";
  view.legacy.restarts_used = 2;
  view.legacy.terms.max_restarts = 2;
  view.failures = std::move(failures);
  return view;
}

ReportContext context(const std::string& logs = "") {
  ReportContext it;
  it.program = "train.py";
  it.logs = logs;
  it.now = Instant{} + 20s;
  it.wall = WallTime{} + 20s;
  return it;
}

TEST(FailureReport, IsTorchrunsSummaryAndThenOurs) {
  elastic::Failure root = failure(3, 10s);
  root.message = "RuntimeError: CUDA out of memory";
  root.traceback = "Traceback (most recent call last):\n  File \"train.py\", line 3\n";
  root.error_file = "/tmp/logs/error.json";
  elastic::Failure consequence = failure(0, 12500ms);
  consequence.signal = 6;
  elastic::View view = ended({consequence, root});
  view.legacy.causes = {"rank 1 on node2: exit code 1", "rank 2 on node3: exit code 7"};
  EXPECT_EQ(failure_report(view, context("/tmp/logs")), R"(rubato: the job failed: all 2 restarts are used up
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
====================================================
train.py FAILED
----------------------------------------------------
Failures:
[1]:
  time      : 1970-01-01_00:00:12Z
  host      : node7
  rank      : 0 (local_rank: 0)
  exitcode  : -6 (pid: 100)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 100
----------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 1970-01-01_00:00:10Z
  host      : node7
  rank      : 3 (local_rank: 1)
  exitcode  : 1 (pid: 103)
  error_file: /tmp/logs/error.json
  traceback : Traceback (most recent call last):
    File "train.py", line 3
====================================================
  restarts     2 of 2 used
    spent on   rank 1 on node2: exit code 1
    spent on   rank 2 on node3: exit code 7
  logs         /tmp/logs
)");
}

TEST(FailureReport, SaysHowToSeeAnExceptionThatWasNotRecorded) {
  EXPECT_EQ(failure_report(ended({failure(0, 1s)}), context()), R"(rubato: the job failed: all 2 restarts are used up
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 1970-01-01_00:00:01Z
  host      : node7
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 100)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
  restarts     2 of 2 used
)");
}

TEST(FailureReport, WithoutAFailureTellsTheReasonOnly) {
  EXPECT_EQ(failure_report(ended({}), context("/tmp/logs")), "rubato: the job failed: all 2 restarts are used up\n");
}

TEST(FailureReport, ShowsTheFirstFewOfManyInTheOrderOfTime) {
  std::vector<elastic::Failure> failures;
  for (int rank = 0; rank < 12; ++rank) failures.push_back(failure(rank, std::chrono::seconds(100 - rank)));
  ReportContext later = context();
  later.now = Instant{} + 200s;
  later.wall = WallTime{} + 200s;
  const std::string report = failure_report(ended(failures), later);
  const auto at = [&](int rank) { return report.find(fmt::format("rank      : {} ", rank)); };
  EXPECT_GT(at(11), report.find("Root Cause")) << report;
  EXPECT_LT(at(10), at(9)) << report;
  EXPECT_NE(at(3), std::string::npos) << report;
  EXPECT_EQ(at(2), std::string::npos) << report;
  EXPECT_NE(report.find("  and 3 more\n"), std::string::npos) << report;
}

}  // namespace
}  // namespace rubato::agent

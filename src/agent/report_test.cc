#include "agent/report.h"

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

TEST(FailureReport, NamesTheRootCauseFirstAndThenTheOthers) {
  elastic::Failure root = failure(3, 10s);
  root.message = "RuntimeError: CUDA out of memory";
  root.traceback = "Traceback (most recent call last):\n  File \"train.py\", line 3\n";
  root.error_file = "/tmp/logs/error.json";
  elastic::Failure consequence = failure(0, 12500ms);
  consequence.signal = 6;
  elastic::View view = ended({consequence, root});
  view.legacy.causes = {"rank 1 on node2: exit code 1", "rank 2 on node3: exit code 7"};
  EXPECT_EQ(failure_report(view, "/tmp/logs"), R"(rubato: the job failed: all 2 restarts are used up
  root cause   rank 3 (local rank 1, pid 103) on node7: exit code 1
  error        RuntimeError: CUDA out of memory
    | Traceback (most recent call last):
    |   File "train.py", line 3
  error file   node7:/tmp/logs/error.json
  also         rank 0 (local rank 0, pid 100) on node7: killed by SIGABRT (signal 6) (2.5s later)
  restarts     2 of 2 used
    spent on   rank 1 on node2: exit code 1
    spent on   rank 2 on node3: exit code 7
  logs         /tmp/logs
)");
}

TEST(FailureReport, SaysHowToSeeAnExceptionThatWasNotRecorded) {
  EXPECT_EQ(failure_report(ended({failure(0, 1s)}), ""), R"(rubato: the job failed: all 2 restarts are used up
  root cause   rank 0 (local rank 0, pid 100) on node7: exit code 1
  error        none recorded; decorate your main with torch.distributed.elastic.multiprocessing.errors.record
               to see the exception here
  restarts     2 of 2 used
)");
}

TEST(FailureReport, WithoutAFailureTellsTheReasonOnly) {
  EXPECT_EQ(failure_report(ended({}), "/tmp/logs"), "rubato: the job failed: all 2 restarts are used up\n");
}

TEST(FailureReport, ShowsTheFirstFewOfManyInTheOrderOfTime) {
  std::vector<elastic::Failure> failures;
  for (int rank = 0; rank < 12; ++rank) failures.push_back(failure(rank, std::chrono::seconds(100 - rank)));
  const std::string report = failure_report(ended(failures), "");
  EXPECT_NE(report.find("root cause   rank 11 "), std::string::npos) << report;
  EXPECT_LT(report.find("also         rank 10 "), report.find("also         rank 9 ")) << report;
  EXPECT_NE(report.find("also         rank 3 "), std::string::npos) << report;
  EXPECT_EQ(report.find("also         rank 2 "), std::string::npos) << report;
  EXPECT_NE(report.find("also         3 more\n"), std::string::npos) << report;
}

}  // namespace
}  // namespace rubato::agent

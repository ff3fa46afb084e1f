#include "elastic/restart.h"

#include <gtest/gtest.h>

namespace rubato::elastic {
namespace {

Failure failure(int rank, Duration at) {
  Failure f;
  f.host = "node7";
  f.rank = rank;
  f.local_rank = rank % 2;
  f.pid = 100 + rank;
  f.at = Instant{} + at;
  return f;
}

TEST(RestartBudget, CountsUpToItsMostAndThenRefuses) {
  RestartBudget budget(2);
  EXPECT_EQ(budget.left(), 2);
  EXPECT_TRUE(budget.charge(1h));
  EXPECT_TRUE(budget.charge(1h));
  EXPECT_EQ(budget.left(), 0);
  EXPECT_FALSE(budget.charge(1h));
  EXPECT_EQ(budget.used(), 2);
}

TEST(RestartBudget, OfNoneRefusesTheFirst) { EXPECT_FALSE(RestartBudget(0).charge(1h)); }

TEST(RestartBudget, GoesOnWhereAnEarlierHostStopped) {
  RestartBudget budget(3, 2);
  EXPECT_EQ(budget.left(), 1);
  EXPECT_TRUE(budget.charge(1s));
  EXPECT_FALSE(budget.charge(1s));
  EXPECT_EQ(budget.used(), 3);
}

TEST(RestartBudget, UsedBeyondItsMostIsUsedUp) { EXPECT_FALSE(RestartBudget(1, 5).charge(1h)); }

TEST(RestartBudget, TheFirstCrashStartsAgainAtOnceAndACrashLoopWaitsTwiceAsLongEachTime) {
  RestartBudget budget(100);
  EXPECT_EQ(budget.charge(1ms), 0s);
  EXPECT_EQ(budget.charge(1ms), kBackoffFirst);
  EXPECT_EQ(budget.charge(1ms), 2 * kBackoffFirst);
  EXPECT_EQ(budget.charge(1ms), 4 * kBackoffFirst);
}

TEST(RestartBudget, TheWaitHasABound) {
  RestartBudget budget(1000);
  Duration last{};
  for (int crash = 0; crash < 1000; ++crash) {
    const Duration wait = *budget.charge(1ms);
    EXPECT_GE(wait, last);
    EXPECT_LE(wait, kBackoffMax);
    last = wait;
  }
  EXPECT_EQ(last, kBackoffMax);
}

TEST(RestartBudget, AGenerationThatLivedLongEndsACrashLoop) {
  RestartBudget budget(100);
  for (int crash = 0; crash < 5; ++crash) budget.charge(1ms);
  EXPECT_EQ(budget.charge(kQuickCrash), 0s);
  EXPECT_EQ(budget.charge(kQuickCrash - 1ns), kBackoffFirst);
}

TEST(RootCause, IsTheFailureThatCameFirst) {
  const std::vector<Failure> failures{failure(0, 5s), failure(3, 4s), failure(1, 6s)};
  EXPECT_EQ(root_cause(failures)->rank, 3);
}

TEST(RootCause, OfFailuresAtTheSameInstantIsTheLowestRank) {
  const std::vector<Failure> failures{failure(4, 5s), failure(2, 5s)};
  EXPECT_EQ(root_cause(failures)->rank, 2);
}

TEST(RootCause, OfNothingIsNothing) { EXPECT_EQ(root_cause({}), nullptr); }

TEST(FailureWords, SayWhoWhereAndTheExitCode) {
  Failure f = failure(3, 0s);
  f.exit_code = 17;
  EXPECT_EQ(describe(f), "rank 3 (local rank 1, pid 103) on node7: exit code 17");
}

TEST(FailureWords, NameTheSignal) {
  Failure f = failure(3, 0s);
  f.signal = 9;
  EXPECT_EQ(describe(f), "rank 3 (local rank 1, pid 103) on node7: killed by SIGKILL (signal 9)");
}

// Real-time signals have no short name, and the number comes from another machine.
TEST(FailureWords, TellASignalThatHasNoNameByItsNumber) {
  for (const int signal : {35, 64, 999, -3}) {
    Failure f = failure(3, 0s);
    f.signal = signal;
    std::string words;
    EXPECT_NO_THROW(words = describe(f)) << signal;
    EXPECT_NE(words.find(std::to_string(signal)), std::string::npos) << words;
  }
}

}  // namespace
}  // namespace rubato::elastic

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

TEST(Restarts, AreCountedUpToTheMostAndThenRefused) {
  Restarts restarts;
  EXPECT_TRUE(restarts.charge(2, 1h));
  EXPECT_TRUE(restarts.charge(2, 1h));
  EXPECT_FALSE(restarts.charge(2, 1h));
  EXPECT_EQ(restarts.used, 2);
  EXPECT_FALSE(Restarts{}.charge(0, 1h));
}

TEST(Restarts, ThatAnEarlierHostHasUsedCount) {
  Restarts restarts{.used = 2};
  EXPECT_TRUE(restarts.charge(3, 1s));
  EXPECT_FALSE(restarts.charge(3, 1s));
  EXPECT_EQ(restarts.used, 3);
  EXPECT_FALSE(Restarts{.used = 5}.charge(1, 1h));
}

TEST(Restarts, BeginAtOnceAfterAFirstCrashAndACrashLoopWaitsTwiceAsLongEachTime) {
  Restarts restarts;
  EXPECT_EQ(restarts.charge(100, 1ms), 0s);
  EXPECT_EQ(restarts.charge(100, 1ms), kBackoffFirst);
  EXPECT_EQ(restarts.charge(100, 1ms), 2 * kBackoffFirst);
  EXPECT_EQ(restarts.charge(100, 1ms), 4 * kBackoffFirst);
}

TEST(Restarts, WaitNoLongerThanABound) {
  Restarts restarts;
  Duration last{};
  for (int crash = 0; crash < 1000; ++crash) {
    const Duration wait = *restarts.charge(1000, 1ms);
    EXPECT_GE(wait, last);
    EXPECT_LE(wait, kBackoffMax);
    last = wait;
  }
  EXPECT_EQ(last, kBackoffMax);
}

TEST(Restarts, AGenerationThatLivedLongEndsACrashLoop) {
  Restarts restarts;
  for (int crash = 0; crash < 5; ++crash) restarts.charge(100, 1ms);
  EXPECT_EQ(restarts.charge(100, kQuickCrash), 0s);
  EXPECT_EQ(restarts.charge(100, kQuickCrash - 1ns), kBackoffFirst);
}

TEST(Restarts, WhoAsksForOneUsesNoneAndWaitsLikeTheOthers) {
  Restarts restarts;
  EXPECT_EQ(restarts.back_off(1s), 0s);
  EXPECT_EQ(restarts.back_off(1s), kBackoffFirst);
  EXPECT_EQ(restarts.used, 0);
}

TEST(Restarts, ALossIsTheCauseOfTheFailureBesideItAndIsForgottenWithTheNextStart) {
  Restarts restarts;
  EXPECT_FALSE(restarts.owes());
  restarts.failure_pending = true;
  EXPECT_TRUE(restarts.owes());
  restarts.lost = true;
  EXPECT_FALSE(restarts.owes());
  restarts.start();
  restarts.failure_pending = true;
  EXPECT_TRUE(restarts.owes());
}

TEST(Restarts, KeepTheFirstFailures) {
  Restarts restarts;
  for (int rank = 0; rank < 1000; ++rank) restarts.add(failure(rank, 1s));
  ASSERT_EQ(restarts.failures.size(), kFailuresMax);
  EXPECT_EQ(restarts.failures.back().rank, static_cast<int>(kFailuresMax) - 1);
}

TEST(Restarts, AGroupThatBreaksInARowPausesLongerEachTime) {
  Restarts restarts;
  restarts.stop(1s);
  EXPECT_EQ(restarts.note_break(), 0s);
  EXPECT_EQ(restarts.note_break(), kBreakPauseFirst);
  EXPECT_EQ(restarts.note_break(), 2 * kBreakPauseFirst);
  for (int i = 0; i < 100; ++i) EXPECT_LE(restarts.note_break(), kBreakPauseMax);
  restarts.stop(kQuickCrash);
  EXPECT_EQ(restarts.note_break(), 0s) << "it had lived";
}

TEST(Restarts, AGroupThatBreaksForGoodOwesARestartThatNoWorkerIsToBlameFor) {
  Restarts restarts;
  restarts.add(failure(3, 1s));
  restarts.note_break();
  restarts.break_for_good();
  EXPECT_TRUE(restarts.owes());
  EXPECT_EQ(restarts.breaks, 0);
  EXPECT_EQ(describe_cause(restarts.failures), "a worker failed");
}

TEST(RootCause, IsTheFailureThatCameFirst) {
  const std::vector<Failure> failures{failure(0, 5s), failure(3, 4s), failure(1, 6s)};
  EXPECT_EQ(root_cause(failures)->rank, 3);
}

TEST(RootCause, OfFailuresAtTheSameInstantIsTheLowestRank) {
  const std::vector<Failure> failures{failure(4, 5s), failure(2, 5s)};
  EXPECT_EQ(root_cause(failures)->rank, 2);
}

TEST(RootCause, IsWhatTheyAreDescribedBy) {
  const std::vector<Failure> failures{failure(0, 5s), failure(3, 4s)};
  EXPECT_EQ(describe_cause(failures), describe(failures[1]));
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
    std::string text;
    EXPECT_NO_THROW(text = describe(f)) << signal;
    EXPECT_NE(text.find(std::to_string(signal)), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace rubato::elastic

#include "elastic/rendezvous.h"

#include <gtest/gtest.h>

#include "elastic/rendezvous_testing.h"

namespace rubato::elastic {
namespace {

// ---- (1) gathering -> running

TEST(Forming, HappensAtOnceWhenTheMostAreInAndReady) {
  Group g(terms(1, 2));
  g.join_all({"1", "2"});
  g.ready({"1"});
  EXPECT_EQ(g.phase(), Phase::kGathering);
  g.ready({"2"});
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.generation(), 1u);
}

TEST(Forming, OfFewerWaitsForTheLastCall) {
  Group g(terms(2, 4));
  g.join_all({"1", "2"});
  g.ready_all();
  g.pass(1s - 1ns);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_TRUE(has(g.reason(), "last call")) << g.reason();
  g.pass(1ns);
  EXPECT_EQ(g.phase(), Phase::kRunning);
}

TEST(Forming, TheLastCallBeginsAnewWithEachJoiner) {
  Group g(terms(2, 4));
  g.join_all({"1", "2"});
  g.ready_all();
  g.pass(700ms);
  g.join_all({"3"});
  g.ready_all();
  g.pass(999ms);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  g.pass(1ms);
  EXPECT_EQ(g.phase(), Phase::kRunning);
}

TEST(Forming, WaitsForTheLeastNumberOfAgentsAndSaysSo) {
  Group g(terms(3, 4));
  g.join_all({"1", "2"});
  g.ready_all();
  g.pass(10s);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_TRUE(has(g.reason(), "waiting for 1 more agent")) << g.reason();
}

TEST(Forming, CountsOnlyReadyForThisGeneration) {
  Group g(terms(1, 1, 3));
  g.run({"1"});
  g.fail("1");
  g.machine.ready(id("1"), 1, 1, g.now);
  g.machine.ready(id("1"), 3, 1, g.now);
  g.pass(1s);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  g.ready({"1"});
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.generation(), 2u);
}

TEST(Forming, RanksFollowTheOrderOfJoiningAndTheFirstIsTheMaster) {
  Group g(terms(3, 3));
  g.run({"3", "1", "2"});
  EXPECT_EQ(g.view("3").assignment->group_rank, 0);
  EXPECT_EQ(g.view("1").assignment->group_rank, 1);
  EXPECT_EQ(g.view("2").assignment->group_rank, 2);
  EXPECT_EQ(g.view("1").master_addr, "10.0.0.3");
  EXPECT_EQ(g.view("1").master_port, '3');
}

TEST(Forming, RanksFollowTheNodeRankWhereOneIsGiven) {
  Group g(terms(2, 2));
  for (const int rank : {1, 0}) {
    MemberInfo member = info(std::to_string(8 - rank));
    member.node_rank = rank;
    EXPECT_EQ(g.machine.join(member, {}, g.now), std::nullopt);
  }
  g.ready_all();
  EXPECT_EQ(g.view("8").assignment->group_rank, 0);
  EXPECT_EQ(g.view("7").assignment->group_rank, 1);
}

TEST(Joining, WithANodeRankThatIsTakenIsRefused) {
  Group g(terms(2, 2));
  MemberInfo first = info("1"), second = info("2");
  first.node_rank = second.node_rank = 1;
  EXPECT_EQ(g.machine.join(first, {}, g.now), std::nullopt);
  const auto refusal = g.machine.join(second, {}, g.now);
  ASSERT_TRUE(refusal);
  EXPECT_TRUE(has(*refusal, "node rank 1 is taken")) << *refusal;
  EXPECT_FALSE(g.machine.has(id("2")));
}

TEST(Joining, WithoutWorkersIsRefused) {
  Group g(terms(1, 2));
  MemberInfo idle = info("1");
  idle.nproc = 0;
  EXPECT_TRUE(g.machine.join(idle, {}, g.now));
}

TEST(JoinTimeout, EndsAGroupThatStaysTooSmall) {
  Group g(terms(2, 2));
  g.join_all({"1"});
  g.ready_all();
  g.pass(600s - 1ns);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  g.pass(1ns);
  EXPECT_EQ(g.phase(), Phase::kEnded);
  EXPECT_FALSE(g.view("1").succeeded);
  EXPECT_TRUE(has(g.reason(), "waiting for 1 more agent")) << g.reason();
}

TEST(JoinTimeout, TellsNoFailureThatWasOvercomeLongAgo) {
  Group g(terms(2, 2, 3));
  g.run({"1", "2"});
  g.fail("1");
  g.ready_all();
  g.pass(100s);
  ASSERT_EQ(g.phase(), Phase::kRunning);
  g.machine.disconnected(id("2"), Loss::kSilent, g.now);
  g.ready_all();
  g.pass(600s);
  ASSERT_EQ(g.phase(), Phase::kEnded);
  EXPECT_TRUE(g.view("1").failures.empty());
}

// ---- (2) running -> gathering

TEST(LateJoiner, IsAdmittedByANewGenerationWithoutALastCall) {
  Group g(terms(1, 3));
  g.run({"1"});
  const uint64_t revision = g.machine.revision();
  g.join_all({"2"});
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_EQ(g.generation(), 2u);
  EXPECT_GT(g.machine.revision(), revision);
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.placed(), (Names{"1", "2"}));
  EXPECT_EQ(g.view("1").legacy.restarts_used, 0);
}

TEST(Spare, OfAFullGroupWaitsAndDisturbsNobody) {
  Group g(terms(1, 2));
  g.run({"1", "2"});
  g.join_all({"3"});
  g.pass(60s);
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.generation(), 1u);
  EXPECT_EQ(g.placed(), (Names{"1", "2"}));
  EXPECT_FALSE(g.view("3").assignment);
}

TEST(Spare, TakesThePlaceOfALostMember) {
  Group g(terms(2, 2));
  g.run({"1", "2"});
  g.join_all({"3"});
  g.machine.disconnected(id("1"), Loss::kSilent, g.now);
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.placed(), (Names{"2", "3"}));
  EXPECT_EQ(g.view("2").assignment->group_rank, 0);
}

Terms in_steps(int min, int max, int step) {
  Terms t = terms(min, max);
  t.step = step;
  return t;
}

TEST(Steps, AGroupHasAMultipleAndTheYoungestWait) {
  Group g(in_steps(2, 6, 2));
  g.run({"1", "2", "3"});
  EXPECT_EQ(g.placed(), (Names{"1", "2"}));
  EXPECT_EQ(g.view("1").assignment->world_size, 2);
  EXPECT_EQ(g.machine.legacy().spares, 1);
}

TEST(Steps, OneAgentMoreDisturbsNobodyAndAWholeStepGrowsTheGroup) {
  Group g(in_steps(2, 6, 2));
  g.run({"1", "2"});
  g.join_all({"3"});
  g.pass(60s);
  EXPECT_EQ(g.generation(), 1u);
  g.join_all({"4"});
  EXPECT_EQ(g.phase(), Phase::kGathering);
  g.ready_all();
  EXPECT_EQ(g.placed(), (Names{"1", "2", "3", "4"}));
}

TEST(Steps, WhoIsLostCostsItsStepUntilAnotherComes) {
  Group g(in_steps(2, 4, 2));
  g.run({"1", "2", "3", "4"});
  g.machine.disconnected(id("2"), Loss::kDead, g.now);
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.placed(), (Names{"1", "3"}));
  g.join_all({"5"});
  g.ready_all();
  EXPECT_EQ(g.placed(), (Names{"1", "3", "4", "5"}));
  EXPECT_EQ(g.machine.legacy().restarts_used, 0);
}

TEST(Steps, BelowTheMinimumItWaits) {
  Group g(in_steps(4, 8, 4));
  g.run({"1", "2", "3", "4", "5", "6"});
  EXPECT_EQ(g.placed(), (Names{"1", "2", "3", "4"}));
  for (const char* gone : {"1", "2", "3"}) g.machine.disconnected(id(gone), Loss::kDead, g.now);
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_EQ(g.reason(), "waiting for 1 more agent (3 of at least 4 here)");
}

TEST(Steps, ASuccessorKeepsThem) {
  Group before(in_steps(2, 6, 2));
  before.run({"1", "2", "3", "4"});
  Group after(before.machine.legacy(), {"1"});
  for (const char* name : {"2", "3", "4"}) EXPECT_EQ(after.join(name, before.claim(name)), std::nullopt);
  after.ready_all();
  after.pass(kRegather);
  EXPECT_EQ(after.placed(), (Names{"2", "3"}));
}

TEST(Spare, ThatIsLostOrLeavesDisturbsNobody) {
  Group g(terms(1, 1));
  g.run({"1"});
  g.join_all({"2", "3"});
  g.machine.disconnected(id("2"), Loss::kSilent, g.now);
  g.machine.leaving(id("3"), "SIGTERM", g.now);
  EXPECT_EQ(g.generation(), 1u);
  EXPECT_EQ(g.machine.member_ids(), (std::vector<AgentId>{id("1")}));
}

TEST(Loss, ASilentMemberIsGivenUpAfterTheHeartbeatBoundNotBefore) {
  Group g(terms(1, 2));
  g.run({"1", "2"});
  g.machine.heard(id("2"), g.now, g.now);
  g.mute = {"2"};
  g.pass(3s - 1ns);
  EXPECT_EQ(g.generation(), 1u);
  g.pass(1ns);
  EXPECT_EQ(g.generation(), 2u);
  EXPECT_FALSE(g.machine.has(id("2")));
  g.ready_all();
  EXPECT_EQ(g.placed(), (Names{"1"}));
}

TEST(Loss, AClosedConnectionIsGivenUpAfterTheReconnectWindow) {
  Group g(terms(1, 2));
  g.run({"1", "2"});
  g.machine.disconnected(id("2"), Loss::kClosed, g.now);
  g.pass(kReconnectWindow - 1ns);
  EXPECT_EQ(g.generation(), 1u);
  g.pass(1ns);
  EXPECT_EQ(g.generation(), 2u);
}

TEST(Loss, AMemberThatIsBackInTimeKeepsTheGenerationAndItsPlace) {
  for (const bool succeeded : {false, true}) {
    Group g(terms(1, 2));
    g.run({"1", "2"});
    const auto place = g.view("2").assignment;
    Claim claim = g.claim("2");
    claim.running = !succeeded;
    claim.succeeded = succeeded;
    g.machine.disconnected(id("2"), Loss::kClosed, g.now);
    g.pass(kReconnectWindow / 2);
    EXPECT_EQ(g.join("2", claim), std::nullopt);
    g.pass(60s);
    EXPECT_EQ(g.phase(), Phase::kRunning);
    EXPECT_EQ(g.generation(), 1u);
    EXPECT_EQ(g.view("2").assignment, place);
  }
}

TEST(Loss, AMemberThatIsBackWithoutItsWorkersNeedsANewGeneration) {
  Group g(terms(1, 2));
  g.run({"1", "2"});
  Claim claim = g.claim("2");
  claim.running = false;
  g.machine.disconnected(id("2"), Loss::kClosed, g.now);
  EXPECT_EQ(g.join("2", claim), std::nullopt);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_EQ(g.generation(), 2u);
}

TEST(Loss, OfTwoAgentsAtOnceFormsOnlyTheRoundWithoutBoth) {
  Group g(terms(1, 4));
  g.run({"1", "2"});
  g.join_all({"3", "4"});
  g.ready({"1", "2", "4"});  // 3 is waited for
  g.machine.disconnected(id("3"), Loss::kClosed, g.now);
  g.machine.disconnected(id("4"), Loss::kClosed, g.now);
  g.pass(kReconnectWindow);
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.generation(), 2u) << "a round was formed with an agent that was lost at the same time";
}

TEST(Leaving, AMemberIsWaitedForUntilItsWorkersAreGone) {
  Group g(terms(1, 2));
  g.run({"1", "2"});
  g.machine.leaving(id("2"), "SIGTERM", g.now);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_TRUE(has(g.reason(), "leaving (SIGTERM)")) << g.reason();
  g.ready({"1"});
  g.pass(10s);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  g.ready({"2"});
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.placed(), (Names{"1"}));
  EXPECT_FALSE(g.machine.has(id("2")));
}

TEST(Leaving, AMemberWhoseConnectionClosesIsGoneAtOnce) {
  Group g(terms(1, 2));
  g.run({"1", "2"});
  g.machine.leaving(id("2"), "SIGTERM", g.now);
  g.ready({"1"});
  g.machine.disconnected(id("2"), Loss::kClosed, g.now);
  EXPECT_EQ(g.phase(), Phase::kRunning) << g.view("1").reason;
  EXPECT_EQ(g.placed(), (Names{"1"}));
}

TEST(Leaving, CostsNoRestartEvenIfItsWorkersFailed) {
  Group g(terms(1, 2, 1));
  g.run({"1", "2"});
  g.fail("2", 1);
  g.machine.leaving(id("2"), "SIGTERM", g.now);
  g.ready({"1", "2"});
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.view("1").legacy.restarts_used, 0);
}

// Who says goodbye cannot go on elsewhere: it must not count as one that might.
TEST(Leaving, MostOfTheGroupLeavesARestThatGoesOn) {
  Group g(terms(1, 4));
  g.run({"1", "2", "3", "4"});
  for (const char* name : {"2", "3", "4"}) g.machine.leaving(id(name), "SIGTERM", g.now);
  g.ready_all();
  g.pass(10s);
  EXPECT_EQ(g.phase(), Phase::kRunning) << g.reason();
  EXPECT_EQ(g.placed(), (Names{"1"}));
}

TEST(Leaving, AfterSuccessLeavesARestThatGoesOn) {
  Group g(terms(1, 4));
  g.run({"1", "2", "3", "4"});
  for (const char* name : {"2", "3", "4"}) {
    g.machine.succeeded(id(name), 1, g.now);
    g.machine.leaving(id(name), "SIGTERM", g.now);
  }
  g.pass(10s);
  EXPECT_EQ(g.phase(), Phase::kRunning) << g.reason();
  EXPECT_EQ(g.generation(), 1u);
  g.machine.succeeded(id("1"), 1, g.now);
  EXPECT_EQ(g.phase(), Phase::kEnded);
}

// ---- failures and the budget

TEST(Failing, CostsOneRestartAndStartsAgainWhenAllAreReady) {
  Group g(terms(2, 2, 3));
  g.run({"1", "2"});
  g.fail("2", 1);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_EQ(g.view("1").legacy.restarts_used, 0) << "decided only when all have answered";
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.generation(), 2u);
  EXPECT_EQ(g.view("1").legacy.restarts_used, 1);
  EXPECT_EQ(g.view("1").legacy.causes, (Names{"rank 1 (local rank 0, pid 0) on host: exit code 1"}));
}

TEST(Failing, OnSeveralAgentsCostsOneRestart) {
  Group g(terms(2, 2, 3));
  g.run({"1", "2"});
  g.fail("2", 1);
  g.machine.failed(id("1"), 1, {failure(0, g.now - 1s)}, g.now);
  g.ready_all();
  EXPECT_EQ(g.view("1").legacy.restarts_used, 1);
  EXPECT_TRUE(has(g.view("1").legacy.causes.at(0), "rank 0 ")) << "the earliest is the cause";
}

TEST(Failing, CostsNothingWhenAnAgentWasLostMeanwhile) {
  for (const Loss how : {Loss::kClosed, Loss::kSilent}) {
    Group g(terms(1, 2, 3));
    g.run({"1", "2"});
    g.fail("1");
    g.machine.disconnected(id("2"), how, g.now);
    g.pass(kReconnectWindow);
    g.ready_all();
    EXPECT_EQ(g.phase(), Phase::kRunning);
    EXPECT_EQ(g.view("1").legacy.restarts_used, 0);
  }
}

TEST(Failing, CostsARestartWhenOnlyASpareWasLostOrLeftMeanwhile) {
  for (const bool leaves : {false, true}) {
    Group g(terms(1, 1, 3));
    g.run({"1"});
    g.join_all({"2"});
    g.fail("1");
    if (leaves) {
      g.machine.leaving(id("2"), "SIGTERM", g.now);
    } else {
      g.machine.disconnected(id("2"), Loss::kSilent, g.now);
    }
    g.ready_all();
    EXPECT_EQ(g.view("1").legacy.restarts_used, 1) << (leaves ? "left" : "lost");
  }
}

TEST(Failing, ThatIsHeardAfterAReconnectCostsARestart) {
  Group g(terms(1, 1, 1));
  g.run({"1"});
  Claim claim = g.claim("1");
  claim.running = false;
  g.machine.disconnected(id("1"), Loss::kClosed, g.now);
  EXPECT_EQ(g.join("1", claim), std::nullopt);
  g.machine.failed(id("1"), 1, {failure(0, g.now)}, g.now);
  g.ready_all();
  EXPECT_EQ(g.view("1").legacy.restarts_used, 1);
}

TEST(Failing, OfAnOlderGenerationIsIgnored) {
  Group g(terms(1, 2, 3));
  g.run({"1"});
  g.join_all({"2"});
  g.ready_all();
  g.machine.failed(id("1"), 1, {failure(0, g.now)}, g.now);
  EXPECT_EQ(g.phase(), Phase::kRunning);
  g.machine.failed(id("9"), 2, {failure(0, g.now)}, g.now);
  EXPECT_EQ(g.phase(), Phase::kRunning);
}

TEST(Failing, InALoopBacksOff) {
  Group g(terms(1, 1, 10));
  g.run({"1"});
  g.fail("1");
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kRunning);
  g.fail("1");
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_TRUE(has(g.reason(), "starting again in 100ms")) << g.reason();
  g.pass(kBackoffFirst - 1ns);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  g.pass(1ns);
  EXPECT_EQ(g.phase(), Phase::kRunning);
}

TEST(Failing, BeyondTheBudgetEndsTheJobAndNamesEveryCause) {
  Group g(terms(1, 1, 2));
  g.run({"1"});
  for (const int rank : {4, 5, 6}) {
    g.fail("1", rank);
    g.ready_all();
    g.pass(60s);
  }
  EXPECT_EQ(g.phase(), Phase::kEnded);
  const View view = g.view("1");
  EXPECT_FALSE(view.succeeded);
  EXPECT_EQ(view.legacy.restarts_used, 2);
  for (const char* part : {"2 restarts used up", "rank 4", "rank 5", "now rank 6"}) {
    EXPECT_TRUE(has(view.reason, part)) << view.reason;
  }
  ASSERT_EQ(view.failures.size(), 1u) << "those of the last generation only";
  EXPECT_EQ(view.failures[0].rank, 6);
}

TEST(Failing, WithoutABudgetEndsTheJobWithItsCause) {
  Group g(terms(1, 1, 0));
  g.run({"1"});
  g.fail("1", 7);
  EXPECT_EQ(g.phase(), Phase::kGathering) << "the others must have stopped first";
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kEnded);
  EXPECT_TRUE(has(g.reason(), "rank 7 ")) << g.reason();
}

// ---- (3) the end

TEST(Success, IsWhenEveryMemberIsDone) {
  Group g(terms(2, 2));
  g.run({"1", "2"});
  g.join_all({"3"});
  g.machine.succeeded(id("1"), 1, g.now);
  g.pass(60s);
  EXPECT_EQ(g.phase(), Phase::kRunning);
  g.machine.succeeded(id("2"), 1, g.now);
  EXPECT_EQ(g.phase(), Phase::kEnded);
  EXPECT_TRUE(g.view("3").succeeded);
}

TEST(Success, OfAnOlderGenerationDoesNotCount) {
  Group g(terms(1, 1, 3));
  g.run({"1"});
  g.fail("1");
  g.ready_all();
  g.machine.succeeded(id("1"), 1, g.now);
  EXPECT_EQ(g.phase(), Phase::kRunning);
}

TEST(Success, IsNotHinderedByTheLossOfAMemberThatIsDone) {
  Group g(terms(1, 2));
  g.run({"1", "2"});
  g.machine.succeeded(id("2"), 1, g.now);
  g.machine.disconnected(id("2"), Loss::kSilent, g.now);
  EXPECT_EQ(g.generation(), 1u);
  g.machine.succeeded(id("1"), 1, g.now);
  EXPECT_EQ(g.phase(), Phase::kEnded);
}

TEST(Success, AMemberThatWasDoneAndLostDoesNotComeBackToAnothersPlace) {
  Group g(terms(2, 2));
  g.run({"1", "2"});
  const auto place = g.view("2").assignment;
  Claim claim = g.claim("2");
  claim.running = false;
  claim.succeeded = true;
  g.machine.succeeded(id("2"), 1, g.now);
  g.machine.disconnected(id("2"), Loss::kSilent, g.now);
  EXPECT_EQ(g.join("2", claim), std::nullopt);
  ASSERT_EQ(g.phase(), Phase::kRunning);
  const auto now = g.view("2").assignment;
  EXPECT_TRUE(!now || now == place) << "group rank " << now->group_rank << " of " << now->group_world_size;
}

TEST(Success, ComesWithTheLossOfNobodyWhoWasNotDone) {
  Group g(terms(1, 2));
  g.run({"1", "2"});
  g.machine.succeeded(id("1"), 1, g.now);
  g.machine.disconnected(id("2"), Loss::kSilent, g.now);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_EQ(g.generation(), 2u);
  g.ready_all();
  EXPECT_EQ(g.placed(), (Names{"1"})) << "its work is done again with those who are left";
}

TEST(Success, ThatCrossesTheWordToStopIsSuccess) {
  Group g(terms(1, 3));
  g.run({"1", "2"});
  g.join_all({"3"});
  g.machine.succeeded(id("1"), 1, g.now);
  g.machine.succeeded(id("2"), 1, g.now);
  EXPECT_EQ(g.phase(), Phase::kEnded);
  EXPECT_TRUE(g.view("1").succeeded);
}

TEST(Success, IsNotClaimedWhenAMemberWasStoppedAndThenLeft) {
  Group g(terms(1, 3));
  g.run({"1", "2"});
  g.join_all({"3"});  // 1 and 2 are told to stop
  g.machine.succeeded(id("1"), 1, g.now);
  g.ready({"2"});  // stopped in the middle
  g.machine.leaving(id("2"), "SIGTERM", g.now);
  EXPECT_NE(g.phase(), Phase::kEnded) << g.reason();
}

TEST(Finishing, AJoinerIsHeldUntilTheJobEnds) {
  Group g(terms(1, 3));
  g.run({"1", "2"});
  g.machine.succeeded(id("1"), 1, g.now);
  g.join_all({"3"});
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.generation(), 1u);
  EXPECT_FALSE(g.view("3").assignment);
  g.machine.succeeded(id("2"), 1, g.now);
  EXPECT_EQ(g.phase(), Phase::kEnded);
}

TEST(Finishing, AHeldJoinerIsTakenWhenTheRoundBreaks) {
  Group g(terms(1, 3, 1));
  g.run({"1", "2"});
  g.machine.succeeded(id("1"), 1, g.now);
  g.join_all({"3"});
  g.fail("2", 1);
  g.ready_all();
  EXPECT_EQ(g.placed(), (Names{"1", "2", "3"}));
}

TEST(Ended, NobodyJoinsAnyMoreAndTheReasonIsTold) {
  Group g(terms(1, 1));
  g.run({"1"});
  g.machine.succeeded(id("1"), 1, g.now);
  const auto refusal = g.join("2");
  ASSERT_TRUE(refusal);
  EXPECT_TRUE(has(*refusal, "all workers ended well")) << *refusal;
  EXPECT_EQ(g.machine.next_tick(g.now), Instant::max());
}

// ---- what is told

TEST(Notes, TellWhoCameAndWentAndWhatCameOfIt) {
  Group g(terms(1, 2));
  g.run({"1", "2"});
  g.machine.disconnected(id("2"), Loss::kSilent, g.now);
  std::vector<Note::Kind> kinds;
  for (const Note& note : g.machine.take_notes()) kinds.push_back(note.kind);
  using enum Note::Kind;
  EXPECT_EQ(kinds, (std::vector<Note::Kind>{kJoined, kJoined, kRunning, kLost, kGathering}));
  EXPECT_TRUE(g.machine.take_notes().empty());
}

TEST(Phases, HaveNames) {
  EXPECT_EQ(to_string(Phase::kGathering), "gathering");
  EXPECT_EQ(to_string(Phase::kRunning), "running");
  EXPECT_EQ(to_string(Phase::kEnded), "ended");
}

// ---- a host that stood still

MemberInfo on_one_machine(const std::string& name) {
  MemberInfo member = info(name);
  member.machine = "machine";
  member.address = "127.0.0.1";
  return member;
}

TEST(AHostThatStoodStill, CallsNobodySilentOnItsOwnMachine) {
  Group g(terms(2, 2));
  for (const char* name : {"1", "2"}) EXPECT_EQ(g.machine.join(on_one_machine(name), {}, g.now), std::nullopt);
  g.ready_all();
  ASSERT_EQ(g.phase(), Phase::kRunning);
  g.now += 10s;
  g.machine.stood_still(g.now);
  g.machine.tick(g.now);
  EXPECT_EQ(g.phase(), Phase::kRunning) << g.reason();
  g.mute = {"2"};
  g.pass(3s);
  EXPECT_EQ(g.phase(), Phase::kGathering) << "who is silent from then on is lost";
}

TEST(AHostThatStoodStill, StopsWhenOthersElsewhereMayHaveGoneOn) {
  Group g(terms(2, 2));
  g.run({"1", "2"});
  g.now += 10s;
  g.machine.stood_still(g.now);
  g.machine.tick(g.now);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_TRUE(g.machine.has(id("2"))) << "but it has not lost them";
}

}  // namespace
}  // namespace rubato::elastic

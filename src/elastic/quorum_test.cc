#include "elastic/quorum.h"

#include <gtest/gtest.h>

#include "elastic/rendezvous_testing.h"

namespace rubato::elastic {
namespace {

TEST(Quorum, AHostInOfficeGoesOnWithHalfAndASuccessorNeedsMore) {
  EXPECT_TRUE((Quorum{4, 0, true}.holds(2)));
  EXPECT_FALSE((Quorum{4, 0, true}.holds(1)));
  EXPECT_FALSE((Quorum{4, 0, false}.holds(2)));
  EXPECT_TRUE((Quorum{4, 0, false}.holds(3)));
}

TEST(Quorum, AGroupOfTwoSurvivesACutOnTheHostsSideOnly) {
  EXPECT_TRUE((Quorum{2, 0, true}.holds(1)));
  EXPECT_FALSE((Quorum{2, 0, false}.holds(1)));
}

TEST(Quorum, TheDeadCountForNoOne) {
  EXPECT_TRUE((Quorum{2, 1, false}.holds(1)));
  EXPECT_TRUE((Quorum{7, 6, false}.holds(1)));
  EXPECT_FALSE((Quorum{7, 5, false}.holds(1)));
}

TEST(Quorum, NobodyIsNoQuorumForASuccessor) { EXPECT_FALSE((Quorum{0, 0, false}.holds(0))); }

// Every agent of a group of up to 7 is dead or on one of three sides (3 is enough: more sides are smaller ones). The
// host is on side 0, or dead. A side knows of any part of the dead.
TEST(Quorum, OfAllSplitsOfAGroupTwoSidesNeverBothGoOn) {
  for (int base = 1; base <= 7; ++base) {
    for (int dead = 0; dead <= base; ++dead) {
      for (int first = 0; first <= base - dead; ++first) {
        for (int second = 0; second <= base - dead - first; ++second) {
          const int sides[] = {first, second, base - dead - first - second};
          for (const bool host_lives : {true, false}) {
            if (host_lives && first == 0) continue;
            int going_on = 0;
            for (int side = 0; side < 3; ++side) {
              bool holds = false;
              for (int known = 0; known <= dead; ++known) {
                holds = holds || Quorum{base, known, host_lives && side == 0}.holds(sides[side]);
              }
              going_on += holds;
            }
            EXPECT_LE(going_on, 1) << "base " << base << ", dead " << dead << ", sides " << sides[0] << " " << sides[1]
                                   << " " << sides[2] << ", host lives: " << host_lives;
          }
        }
      }
    }
  }
}

TEST(Quorum, WithoutACutWhoeverSurvivesGoesOn) {
  for (int base = 1; base <= 7; ++base) {
    for (int dead = 0; dead < base; ++dead) {
      EXPECT_TRUE((Quorum{base, dead, true}.holds(base - dead)));
      EXPECT_TRUE((Quorum{base, dead, false}.holds(base - dead)));
    }
  }
}

// ---- the quorum in the rendezvous: cuts and takeovers

TEST(Cut, AHostThatHearsLessThanHalfStopsBeforeTheOthersCanGoOn) {
  Group g(terms(1, 3));
  g.run({"1", "2", "3"});
  g.mute = {"2", "3"};
  for (const char* name : {"2", "3"}) g.machine.heard(id(name), g.now, g.now);
  g.pass(fence_after(3s));
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_TRUE(g.machine.provisional());
  g.pass(3s);
  g.ready_all();
  g.pass(60s);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_TRUE(has(g.reason(), "minority")) << g.reason();
  g.pass(600s);
  EXPECT_EQ(g.phase(), Phase::kEnded);
}

// The way to them is cut, the way back is not: they fence themselves although we hear them.
TEST(Cut, AgentsThatCannotKnowThatTheyAreHeardDoNotCount) {
  Group g(terms(1, 3));
  g.run({"1", "2", "3"});
  const Instant proof = g.now;
  g.machine.heard(id("2"), proof, g.now);
  g.machine.heard(id("3"), proof, g.now);
  while (g.now < proof + fence_after(3s)) {
    EXPECT_FALSE(g.machine.provisional());
    g.now += 100ms;
    g.machine.heard(id("1"), g.now, g.now);
    g.machine.heard(id("2"), proof, g.now);
    g.machine.heard(id("3"), proof, g.now);
    g.machine.tick(g.now);
  }
  EXPECT_TRUE(g.machine.provisional());
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_TRUE(g.machine.has(id("2")));
}

TEST(Cut, AHostWithHalfGoesOn) {
  Group g(terms(1, 4));
  g.run({"1", "2", "3", "4"});
  g.mute = {"3", "4"};
  g.pass(4s);
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.placed(), (Names{"1", "2"}));
}

TEST(Cut, AMinorityThatHearsTheOthersAgainGoesOn) {
  Group g(terms(1, 3));
  g.run({"1", "2", "3"});
  const Claim claims[] = {g.claim("2"), g.claim("3")};
  g.mute = {"2", "3"};
  g.pass(5s);
  g.ready_all();
  ASSERT_EQ(g.phase(), Phase::kGathering);
  g.mute.clear();
  EXPECT_EQ(g.join("2", claims[0]), std::nullopt);
  EXPECT_EQ(g.join("3", claims[1]), std::nullopt);
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.placed(), (Names{"1", "2", "3"}));
}

TEST(Cut, AMemberWhoseConnectionIsBrokenDoesNotCountUntilItIsBack) {
  Group g(terms(1, 3));
  g.run({"1", "2", "3"});
  const Claim claim = g.claim("2");
  for (const char* name : {"2", "3"}) g.machine.disconnected(id(name), Loss::kClosed, g.now);
  EXPECT_TRUE(g.machine.provisional());
  EXPECT_EQ(g.join("2", claim), std::nullopt);
  EXPECT_FALSE(g.machine.provisional());
}

TEST(Cut, TheDeadOfAnEarlierRoundDoNotCountForTheNext) {
  Group g(terms(1, 5));
  g.run({"1", "2", "3", "4", "5"});
  for (const char* name : {"4", "5"}) g.machine.disconnected(id(name), Loss::kDead, g.now);
  g.ready_all();
  ASSERT_EQ(g.placed(), (Names{"1", "2", "3"}));
  g.mute = {"2", "3"};
  g.pass(5s);
  g.ready_all();
  EXPECT_NE(g.phase(), Phase::kRunning) << "1 of 3";
}

// Their connections close, they are given up, and then their kernels say that they are dead.
TEST(Cut, AgentsThatTurnOutToBeDeadNoLongerCount) {
  Group g(terms(1, 3));
  g.run({"1", "2", "3"});
  for (const char* name : {"2", "3"}) g.machine.disconnected(id(name), Loss::kClosed, g.now);
  g.pass(kReconnectWindow);
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kGathering) << "they may have given us up";
  EXPECT_EQ(g.machine.missing().size(), 2u);
  g.machine.declare_dead(id("2"), true, g.now);
  g.machine.declare_dead(id("3"), true, g.now);
  EXPECT_EQ(g.phase(), Phase::kRunning) << g.reason();
  EXPECT_TRUE(g.machine.missing().empty());
}

// 1 and 2 were cut off; 3, 4 and 5 went on without them, then 4 ended. Its death must not make a half of 1 and 2.
TEST(Cut, AnAgentThatDiedOutOfSightMayHaveHelpedTheOthersToGoOn) {
  Group g(terms(1, 5));
  g.run({"1", "2", "3", "4", "5"});
  g.mute = {"3", "4", "5"};
  g.pass(5s);
  g.ready_all();
  ASSERT_TRUE(g.machine.provisional());
  g.machine.declare_dead(id("4"), true, g.now);
  EXPECT_TRUE(g.machine.provisional()) << "3 and 5 may have gone on with it";
  EXPECT_EQ(g.view("2").legacy.round_size, 5) << "nor may a successor of this host think so";
  g.machine.declare_dead(id("3"), true, g.now);
  EXPECT_TRUE(g.machine.provisional());
  g.machine.declare_dead(id("5"), true, g.now);
  EXPECT_EQ(g.phase(), Phase::kRunning) << "nobody is left elsewhere: " << g.reason();
}

// The host went on with a spare, and then ended: the one that it had lost must not go on alone.
TEST(Cut, TheLastOfARoundWaitsForTheSparesThatMayHaveTakenAPlace) {
  Group old(terms(1, 2));
  old.run({"1", "2"});
  old.join_all({"3"});
  Group g(old.machine.legacy(), {});
  EXPECT_EQ(g.join("2", old.claim("2")), std::nullopt);
  g.pass(10s);
  g.machine.declare_dead(id("1"), true, g.now);
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kGathering) << "3 may be in a round of its own by now";
  EXPECT_EQ(g.join("3", old.claim("3")), std::nullopt);
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kRunning) << g.reason();
}

TEST(Cut, AnAgentThatIsBackIsNotDeclaredDead) {
  Group g(terms(1, 2));
  g.run({"1", "2"});
  const Claim claim = g.claim("2");
  g.machine.disconnected(id("2"), Loss::kClosed, g.now);
  EXPECT_EQ(g.join("2", claim), std::nullopt);
  g.machine.declare_dead(id("2"), true, g.now);
  EXPECT_TRUE(g.machine.has(id("2")));
  EXPECT_EQ(g.generation(), 1u);
}

// As agent/coordinator.cc does when a spare's connection closes and the answer "refused" comes after it was given up.
TEST(Cut, ASpareThatIsDeclaredDeadIsNoDeadMemberOfTheRound) {
  Group g(terms(1, 3));
  g.run({"1", "2", "3"});
  g.join_all({"4", "5"});
  for (const char* spare : {"4", "5"}) {
    g.machine.disconnected(id(spare), Loss::kClosed, g.now);
    g.pass(kReconnectWindow);
    g.machine.declare_dead(id(spare), true, g.now);
  }
  g.mute = {"2", "3"};
  g.pass(5s);
  g.ready_all();
  EXPECT_NE(g.phase(), Phase::kRunning) << "2 and 3 are the majority and may go on: a split brain";
}

// The cable is cut when the round forms, so 2 and 3 never hear of it; then all meet again.
TEST(Cut, MembersThatNeverHeardOfTheirRoundCountWhenTheyAreBack) {
  Group g(terms(1, 3));
  g.join_all({"1", "2", "3"});
  const Claim claims[] = {g.claim("2"), g.claim("3")};  // before the round
  g.ready_all();
  ASSERT_EQ(g.phase(), Phase::kRunning);
  g.mute = {"2", "3"};
  g.pass(5s);
  g.mute.clear();
  EXPECT_EQ(g.join("2", claims[0]), std::nullopt);
  EXPECT_EQ(g.join("3", claims[1]), std::nullopt);
  g.ready_all();
  g.pass(10s);
  EXPECT_EQ(g.phase(), Phase::kRunning) << g.reason();
}

class Takeover : public testing::Test {
 protected:
  void SetUp() override { old.run({"1", "2", "3", "4", "5"}); }
  Group after(const Names& dead) const {
    Group g(old.machine.legacy(), dead);
    return g;
  }
  void join(Group& g, const Names& names) {
    for (const std::string& name : names) EXPECT_EQ(g.join(name, old.claim(name)), std::nullopt) << name;
    g.ready_all();
  }
  Group old{terms(1, 5, 3)};
};

TEST_F(Takeover, BeginsANewEpochAndGeneration) {
  Group g = after({"1"});
  EXPECT_EQ(g.machine.epoch(), 2u);
  EXPECT_EQ(g.generation(), 2u);
  EXPECT_FALSE(g.machine.incumbent());
  EXPECT_TRUE(g.machine.provisional());
  EXPECT_EQ(g.phase(), Phase::kGathering);
}

TEST_F(Takeover, FormsAtOnceWhenAllWhoMayLiveAreBack) {
  Group g = after({"1"});
  join(g, {"2", "3", "4"});
  EXPECT_EQ(g.phase(), Phase::kGathering);
  join(g, {"5"});
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.placed(), (Names{"2", "3", "4", "5"}));
  EXPECT_EQ(g.view("2").assignment->group_rank, 0);
  EXPECT_TRUE(g.machine.incumbent());
  EXPECT_FALSE(g.machine.provisional());
}

TEST_F(Takeover, WaitsTheRegatherWindowForTheOthersAndThenGoesOnWithAMajority) {
  Group g = after({"1"});
  join(g, {"2", "3", "4"});
  g.pass(kRegather - 1ns);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  g.pass(1ns);
  EXPECT_EQ(g.phase(), Phase::kRunning);
  join(g, {"5"});
  EXPECT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.placed().size(), 4u) << "and a late one joins by a new generation";
}

TEST_F(Takeover, WaitsForTheLostHostOnlyUntilItHasFencedItself) {
  Group g = after({});
  join(g, {"2", "3", "4", "5"});
  g.pass(kHostFenced - 1ns);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  g.pass(1ns);
  EXPECT_EQ(g.phase(), Phase::kRunning);
}

TEST_F(Takeover, OfHalfOfThoseWhoMayLiveNeverFormsARound) {
  Group g = after({"1"});
  join(g, {"2", "3"});
  g.pass(300s);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_TRUE(has(g.reason(), "only 2 of the last 4 agents")) << g.reason();
  EXPECT_TRUE(g.view("2").provisional);
  g.pass(300s);
  EXPECT_EQ(g.phase(), Phase::kEnded);
}

TEST_F(Takeover, NewAgentsDoNotCountForTheQuorum) {
  Group g = after({"1"});
  join(g, {"2", "3"});
  g.join_all({"6", "7", "8", "9"});
  g.ready_all();
  g.pass(300s);
  EXPECT_EQ(g.phase(), Phase::kGathering);
}

TEST_F(Takeover, AMemberThatIsLostSilentlyAgainCountsAgainstIt) {
  Group g = after({"1"});
  join(g, {"2", "3", "4"});
  g.mute = {"4"};
  g.machine.disconnected(id("4"), Loss::kSilent, g.now);
  g.pass(60s);
  EXPECT_EQ(g.phase(), Phase::kGathering);
}

TEST_F(Takeover, ADeadAgentThatIsBackCountsAgain) {
  Group g = after({"1", "5"});
  join(g, {"2", "5"});
  g.pass(kRegather);
  EXPECT_EQ(g.phase(), Phase::kGathering) << "2 of 4";
  join(g, {"3"});
  EXPECT_EQ(g.phase(), Phase::kRunning);
}

TEST_F(Takeover, TheLaterRoundOfAClaimWins) {
  const Legacy before = old.machine.legacy();
  old.machine.disconnected(id("4"), Loss::kSilent, old.now);
  old.machine.disconnected(id("5"), Loss::kSilent, old.now);
  old.ready_all();
  ASSERT_EQ(old.phase(), Phase::kRunning);
  ASSERT_EQ(old.generation(), 2u);
  Group g(before, {"1"});
  Group stale(terms(1, 5, 3));
  stale.run({"1", "2", "3", "4", "5"});
  EXPECT_EQ(g.join("4", stale.claim("4")), std::nullopt);
  EXPECT_EQ(g.join("5", stale.claim("5")), std::nullopt);
  const uint64_t revision = g.machine.revision();
  EXPECT_EQ(g.join("2", old.claim("2")), std::nullopt);
  EXPECT_EQ(g.generation(), 3u);
  EXPECT_GT(g.machine.revision(), revision) << "agents must act on a new generation";
  EXPECT_EQ(g.machine.legacy().round, 2u);
  g.ready_all();
  g.pass(60s);
  EXPECT_EQ(g.phase(), Phase::kGathering) << "1 of the later round's 2: the majority of the older one is void";
  EXPECT_EQ(g.join("3", old.claim("3")), std::nullopt);
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kRunning);
}

// 5, 6 and 7 died and the rest formed round 2. The cut {1, 4} | {2, 3} came when 2 knew of round 2 and 3 did not yet.
TEST(TakeoverAfterALaterRound, TheDeadOfTheOlderOneDoNotCount) {
  Group old(terms(1, 7));
  old.run({"1", "2", "3", "4", "5", "6", "7"});
  const Legacy before = old.machine.legacy();
  const Claim before_3 = old.claim("3");
  for (const char* name : {"5", "6", "7"}) old.machine.disconnected(id(name), Loss::kDead, old.now);
  old.ready_all();
  ASSERT_EQ(old.placed(), (Names{"1", "2", "3", "4"}));
  Group g(before, {"5", "6", "7"});
  EXPECT_EQ(g.join("3", before_3), std::nullopt);
  EXPECT_EQ(g.join("2", old.claim("2")), std::nullopt);
  g.ready_all();
  g.pass(60s);
  EXPECT_NE(g.phase(), Phase::kRunning) << "1 and 4 are half of round 2 and have its host: a split brain";
}

// The host formed round 2 as it was cut off, so nobody heard of it; then it came to its successor, and died.
TEST(TakeoverAfterALaterRound, ThoseWhoNeverHeardOfItCountAllTheSame) {
  Group old(terms(1, 3, 1));
  old.run({"1", "2", "3"});
  const Legacy before = old.machine.legacy();
  const Claim before_2 = old.claim("2"), before_3 = old.claim("3");
  old.fail("1");
  old.ready_all();
  ASSERT_EQ(old.view("1").legacy.round, 2u);
  Group g(before, {});
  EXPECT_EQ(g.join("2", before_2), std::nullopt);
  EXPECT_EQ(g.join("3", before_3), std::nullopt);
  EXPECT_EQ(g.join("1", old.claim("1")), std::nullopt);
  EXPECT_EQ(g.machine.legacy().round, 2u);
  g.machine.disconnected(id("1"), Loss::kDead, g.now);
  g.ready_all();
  EXPECT_EQ(g.phase(), Phase::kRunning) << g.reason();
  EXPECT_EQ(g.placed(), (Names{"2", "3"}));
}

TEST_F(Takeover, KeepsTheBudgetThatWasUsedAndItsCauses) {
  old.fail("1");
  old.ready_all();
  ASSERT_EQ(old.machine.legacy().restarts_used, 1);
  Group g = after({"1"});
  EXPECT_EQ(g.machine.legacy().restarts_used, 1);
  EXPECT_EQ(g.machine.legacy().causes.size(), 1u);
  EXPECT_EQ(g.machine.legacy().terms, old.machine.legacy().terms);
  Claim knows_more = old.claim("2");
  knows_more.restarts_used = 2;
  EXPECT_EQ(g.join("2", knows_more), std::nullopt);
  EXPECT_EQ(g.machine.legacy().restarts_used, 2);
}

TEST_F(Takeover, NewAgentsGetRanksBehindTheOldOnes) {
  Group g = after({"1", "5"});
  g.join_all({"0"});
  join(g, {"4", "3", "2"});
  ASSERT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.view("2").assignment->group_rank, 0);
  EXPECT_EQ(g.view("4").assignment->group_rank, 2);
  EXPECT_EQ(g.view("0").assignment->group_rank, 3);
}

TEST_F(Takeover, WithAnOutsideAuthorityNeedsNoQuorum) {
  Legacy legacy = old.machine.legacy();
  legacy.terms.needs_quorum = false;
  Group g(legacy, {});
  join(g, {"2"});
  EXPECT_FALSE(g.machine.provisional());
  g.pass(kRegather);
  EXPECT_EQ(g.phase(), Phase::kRunning);
}

TEST_F(Takeover, AFormerHostStepsDownWhenAnAgentHasSeenANewerOne) {
  Group g = after({});
  join(g, {"2", "3", "4", "5"});
  g.pass(kRegather);
  ASSERT_EQ(g.phase(), Phase::kRunning);
  const auto refusal = old.join("2", g.claim("2"));
  ASSERT_TRUE(refusal);
  EXPECT_TRUE(has(*refusal, "newer host")) << *refusal;
  EXPECT_TRUE(old.machine.superseded());
  EXPECT_FALSE(g.machine.superseded());
}

TEST_F(Takeover, SuccessorsAreTheOldestMembersOfTheRound) {
  old.join_all({"0"});
  const auto successors = old.view("1").successors;
  ASSERT_EQ(successors.size(), 6u);
  EXPECT_EQ(successors[0].id, id("1"));
  EXPECT_EQ(successors[4].id, id("5"));
  EXPECT_EQ(successors[5].id, id("0"));
  EXPECT_TRUE(successors[4].in_round);
  EXPECT_FALSE(successors[5].in_round);
  EXPECT_EQ(successors[2].address, "10.0.0.3");
  EXPECT_EQ(successors[2].port, 4000);
}

// 2 took over, 3 followed, then 2 died: now the old host has its half again, but 3 has seen a newer one.
TEST_F(Takeover, AFormerHostStepsDownWhenAnAgentOfItsRoundAsksForANewerOne) {
  old.machine.saw_host(id("9"), 7);
  EXPECT_FALSE(old.machine.superseded()) << "of another group, with the same name";
  old.machine.saw_host(id("3"), 1);
  EXPECT_FALSE(old.machine.superseded()) << "that is this one";
  old.machine.saw_host(id("3"), 2);
  EXPECT_TRUE(old.machine.superseded());
}

// An agent that leaves takes nothing over, but it counts until it is gone: whoever takes over must look after it.
TEST_F(Takeover, AgentsThatAreLeavingCanBeAskedAfter) {
  old.machine.leaving(id("3"), "SIGTERM", old.now);
  const View last = old.view("2");
  for (const Successor& successor : last.successors) EXPECT_NE(successor.id, id("3"));
  ASSERT_EQ(last.missing.size(), 1u);
  EXPECT_EQ(last.missing[0].id, id("3"));
  EXPECT_EQ(last.missing[0].address, "10.0.0.3");
  EXPECT_TRUE(last.missing[0].in_round);
  old.machine.ready(id("3"), old.generation(), 0, old.now);
  EXPECT_TRUE(old.view("2").missing.empty()) << "it is gone";
}

// The host went from RUNNING 2 to GATHERING 3 before it could send RUNNING 2 to anybody, then it died. The agents know
// of round 2 by the later view only, and were in it all the same: somebody must be able to take over.
TEST_F(Takeover, WorksWhenTheLastRoundWasNeverAnnounced) {
  old.machine.disconnected(id("5"), Loss::kClosed, old.now);
  old.pass(kReconnectWindow);
  old.ready_all();
  ASSERT_EQ(old.phase(), Phase::kRunning);
  old.join_all({"6"});
  ASSERT_EQ(old.generation(), 3u);
  Group g = after({"1"});
  for (const char* name : {"2", "3", "4", "6"}) {
    EXPECT_EQ(g.join(name, old.claim(name)), std::nullopt);
  }
  g.ready_all();
  g.pass(60s);
  EXPECT_EQ(g.phase(), Phase::kRunning) << g.reason();
}

TEST(TakeoverBeforeTheFirstRound, NeedsAMajorityOfThoseWhoHadJoined) {
  Group old(terms(5, 5));
  old.join_all({"1", "2", "3"});
  Group g(old.machine.legacy(), {});
  EXPECT_EQ(g.join("2", old.claim("2")), std::nullopt);
  EXPECT_TRUE(g.machine.provisional());
  EXPECT_EQ(g.join("3", old.claim("3")), std::nullopt);
  EXPECT_FALSE(g.machine.provisional());
}

// Agents that come and go while it has no quorum were never part of what it needs a majority of.
TEST(TakeoverBeforeTheFirstRound, DeadNewcomersMakeNoQuorum) {
  Group old(terms(1, 8));
  old.join_all({"1", "2", "3", "4"});
  Group g(old.machine.legacy(), {});
  EXPECT_EQ(g.join("2", old.claim("2")), std::nullopt);
  g.ready_all();
  for (const char* name : {"6", "7", "8"}) {
    g.join_all({name});
    g.machine.disconnected(id(name), Loss::kDead, g.now);
    g.pass(kReconnectWindow);
  }
  g.ready_all();
  g.pass(10s);
  EXPECT_TRUE(g.machine.provisional());
  EXPECT_EQ(g.phase(), Phase::kGathering);
}

}  // namespace
}  // namespace rubato::elastic

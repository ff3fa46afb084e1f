#include "elastic/lease.h"

#include <gtest/gtest.h>

#include "core/random.h"

namespace rubato::elastic {
namespace {

const AgentId kMe{"me"}, kA{"a"}, kB{"b"}, kC{"c"}, kD{"d"};
constexpr Instant at(Duration since) { return Instant{} + 1h + since; }
constexpr Duration kBeat = 3s;
const RoundId kRound{JobId{"j-1"}, 5}, kNext{JobId{"j-1"}, 6};
constexpr Duration kShort = short_lease(kBeat);

bool vouches(Witness& witness, const AgentId& agent, Instant now) {
  return !witness.vouch(agent, {kRound}, now).empty();
}

TEST(Lease, ANodeThatIsAloneInItsJobHasTheWholeLease) {
  LeaseHolder holder(kMe);
  holder.heard_by_head(at(0s));
  EXPECT_EQ(holder.valid_until(kRound, {}, 2min), at(2min));
  EXPECT_EQ(holder.valid_until(kRound, {kMe}, 2min), at(2min));
}

TEST(Lease, OneOfSeveralEndsBeforeTheHeadTakesOver) {
  LeaseHolder holder(kMe);
  holder.heard_by_head(at(0s));
  EXPECT_EQ(holder.valid_until(kRound, {kMe, kA}, 2min), at(kShort));
  EXPECT_LT(kShort, takeover_after(kBeat));
}

TEST(Lease, MoreThanHalfOfTheWitnessesKeepItAlive) {
  LeaseHolder holder(kMe);
  holder.heard_by_head(at(0s));
  const std::vector<AgentId> four{kMe, kA, kB, kC};
  holder.heard_by(kA, kRound, at(10s));
  EXPECT_EQ(holder.valid_until(kRound, four, 2min), at(kShort)) << "two of four are half";
  holder.heard_by(kB, kRound, at(8s));
  EXPECT_EQ(holder.valid_until(kRound, four, 2min), at(8s + kShort)) << "as long as the last one that is needed";
  EXPECT_EQ(holder.valid_until(kRound, {kMe, kA}, 2min), at(10s + kShort));
  EXPECT_EQ(holder.valid_until(kRound, {kMe, kD}, 2min), at(kShort)) << "others do not count";
}

TEST(Lease, WitnessesDoNotOutlastTheLease) {
  LeaseHolder holder(kMe);
  holder.heard_by_head(at(0s));
  holder.heard_by(kA, kRound, at(1min + 58s));
  EXPECT_EQ(holder.valid_until(kRound, {kMe, kA}, 2min), at(2min));
}

TEST(Lease, ADeadHeadKeepsALeaseAliveButBringsNoneBack) {
  LeaseHolder holder(kMe);
  holder.heard_by_head(at(0s));
  const std::vector<AgentId> two{kMe, kA};
  holder.missed_head(kRound, two, 2min, at(3s), at(3500ms));
  EXPECT_EQ(holder.valid_until(kRound, two, 2min), at(3s + kShort));
  EXPECT_EQ(holder.valid_until(kNext, two, 2min), at(kShort));
  holder.missed_head(kRound, two, 2min, at(3s + kShort - 1ms), at(3s + kShort));
  EXPECT_EQ(holder.valid_until(kRound, two, 2min), at(3s + kShort)) << "it was over when that was heard";
  holder.heard_by_head(at(10s));
  EXPECT_EQ(holder.valid_until(kRound, two, 2min), at(10s + kShort)) << "the head itself knows";
}

TEST(Lease, WhoWasGivenUpEndsAtOnce) {
  LeaseHolder holder(kMe);
  holder.heard_by_head(at(0s));
  holder.give_up();
  holder.heard_by_head(at(1s));
  EXPECT_LT(holder.valid_until(kRound, {kMe}, 2min), at(0s));
}

TEST(Lease, ProofsDoNotGoBack) {
  LeaseHolder holder(kMe);
  holder.heard_by_head(at(5s));
  holder.heard_by_head(at(1s));
  EXPECT_EQ(holder.valid_until(kRound, {}, 2min), at(5s + 2min));
}

TEST(Lease, AWitnessIsClearOfAFencedAgentWhenItsLastWordIsOld) {
  Witness witness;
  witness.follow({kRound}, {});
  EXPECT_TRUE(vouches(witness, kA, at(0s)));
  EXPECT_TRUE(vouches(witness, kB, at(0s)));
  witness.follow({kRound}, {kA, kC});
  EXPECT_FALSE(vouches(witness, kA, at(1s)));
  EXPECT_TRUE(vouches(witness, kB, at(1s)));
  EXPECT_EQ(witness.clear_of(at(1s)), std::set<AgentId>{kC}) << "it never vouched for that one";
  ASSERT_EQ(witness.next(at(1s)), at(takeover_after(kBeat)));
  EXPECT_EQ(witness.clear_of(*witness.next(at(1s))), (std::set<AgentId>{kA, kC}));
}

// It stood still while the next generation was started, and wakes up with an order that it had not read.
TEST(Lease, AWitnessVouchesOnlyForRoundsThatItRunsItself) {
  Witness witness;
  witness.follow({kRound}, {});
  EXPECT_EQ(witness.vouch(kA, {kRound, kNext}, at(0s)), std::vector{kRound});
  witness.follow({kNext}, {});
  EXPECT_TRUE(witness.vouch(kA, {kRound}, at(1s)).empty());
  EXPECT_FALSE(witness.is_fenced(kA)) << "the head has not said so";
}

TEST(Lease, WordsAboutOneRoundDoNotKeepAnotherAlive) {
  LeaseHolder holder(kMe);
  holder.heard_by_head(at(0s));
  holder.heard_by(kA, kNext, at(3s));
  EXPECT_EQ(holder.valid_until(kRound, {kMe, kA}, 2min), at(kShort));
  EXPECT_EQ(holder.valid_until(kNext, {kMe, kA}, 2min), at(3s + kShort));
  holder.keep_rounds({kRound});
  EXPECT_EQ(holder.valid_until(kNext, {kMe, kA}, 2min), at(kShort));
}

TEST(Lease, AWitnessIsClearAtOnceOfWhoHasStopped) {
  Witness witness;
  witness.follow({kRound}, {});
  EXPECT_TRUE(vouches(witness, kA, at(0s)));
  witness.follow({kRound}, {kA});
  EXPECT_TRUE(witness.clear_of(at(1s)).empty());
  witness.stopped(kA);
  EXPECT_EQ(witness.clear_of(at(1s)), std::set<AgentId>{kA});
}

// Whatever was said when: once half of the witnesses are clear of an agent, none of its workers may live by their word.
TEST(Lease, HalfOfTheWitnessesAndMoreThanHalfHaveOneInCommon) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Random random{seed};
    const size_t size = 2 + random.below(6);
    std::vector<AgentId> members{kMe};
    while (members.size() < size) members.push_back(AgentId{std::to_string(members.size())});
    std::map<AgentId, Witness> witnesses;
    for (const AgentId& member : members) witnesses[member].follow({kRound}, {});
    LeaseHolder holder(kMe);
    holder.heard_by_head(at(0s));
    Duration now = 0s;
    Duration fenced_at = Duration::max();
    for (int step = 0; step < 200; ++step) {
      now += std::chrono::milliseconds(random.below(300));
      Witness& one = witnesses[members[random.below(size)]];
      if (random.chance(0.05)) fenced_at = std::min(fenced_at, now);
      if (now >= fenced_at && random.chance(0.3)) one.follow({kRound}, {kMe});
      const AgentId asked = members[random.below(size)];
      // The answer may be late, or lost.
      const Duration sent = now - std::chrono::milliseconds(random.below(1000));
      if (asked != kMe && vouches(witnesses[asked], kMe, at(now)) && random.chance(0.7))
        holder.heard_by(asked, kRound, at(sent));
      size_t clear = 0;
      for (const AgentId& member : members) clear += witnesses[member].clear_of(at(now)).contains(kMe) ? 1 : 0;
      if (now >= takeover_after(kBeat) && 2 * clear >= size && !witnesses[kMe].clear_of(at(now)).contains(kMe)) {
        ASSERT_LE(holder.valid_until(kRound, members, 1h), at(now)) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace rubato::elastic

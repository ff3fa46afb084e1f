// Who leaves, and who takes the place of another.
#include "elastic/rendezvous_testing.h"

namespace rubato::elastic {
namespace {

MemberInfo pod(const std::string& name, const std::string& identity) {
  MemberInfo member = info(name);
  member.identity = identity;
  return member;
}

TEST(AHostThatLeaves, SaysThatItIsNoMoreOfTheRound) {
  Group g(terms(1, 3));
  g.run({"1", "2"});
  const uint64_t before = g.machine.revision();
  g.machine.retire(id("1"), "SIGTERM", g.now);
  EXPECT_GT(g.machine.revision(), before);
  const View last = g.view("2");
  EXPECT_TRUE(last.host_leaves);
  EXPECT_EQ(last.legacy.round_size, 1);
  EXPECT_TRUE(last.in_round);
  for (const Successor& next : last.successors) EXPECT_NE(next.id, id("1"));
  EXPECT_EQ(last.phase, Phase::kGathering);
  EXPECT_TRUE(has(last.reason, "is leaving (SIGTERM)")) << last.reason;
}

TEST(AHostThatLeaves, FormsNothingAndLosesNobodyAfterIt) {
  Group g(terms(1, 3));
  g.run({"1", "2"});
  g.machine.retire(id("1"), "SIGTERM", g.now);
  const Generation generation = g.generation();
  g.ready({"2"});
  g.machine.disconnected(id("2"), Loss::kClosed, g.now);
  g.pass(10s);
  EXPECT_EQ(g.phase(), Phase::kGathering);
  EXPECT_EQ(g.generation(), generation);
  EXPECT_EQ(g.view("2").legacy.round_size, 1);
}

TEST(AHostThatLeaves, IsNotWaitedForByItsSuccessor) {
  Group old(terms(1, 3));
  old.run({"1", "2"});
  old.machine.retire(id("1"), "SIGTERM", old.now);
  const View last = old.view("2");
  LostHost host{id("1"), last.host_in_round, old.now};
  host.elders = last.successors;
  Rendezvous next(last.legacy, host, Dead{}, old.now);
  EXPECT_EQ(next.join(info("2"), old.claim("2"), old.now), std::nullopt);
  next.ready(id("2"), next.generation(), 1, old.now);
  EXPECT_EQ(next.phase(), Phase::kRunning) << next.common_view().reason;
}

TEST(AHostThatLeaves, AfterAllWereDoneEndsTheJobWell) {
  Group g(terms(1, 2));
  g.run({"1", "2"});
  g.machine.succeeded(id("2"), 1, g.now);
  g.machine.succeeded(id("1"), 1, g.now);
  g.machine.retire(id("1"), "SIGTERM", g.now);
  EXPECT_EQ(g.phase(), Phase::kEnded);
  EXPECT_FALSE(g.machine.retired());
}

TEST(Identity, ANewcomerTakesThePlaceOfAMemberAtOnce) {
  Group g(terms(2, 2));
  for (const char* name : {"1", "2"}) {
    EXPECT_EQ(g.machine.join(pod(name, std::string("worker-") + name), {}, g.now), std::nullopt);
  }
  g.ready_all();
  ASSERT_EQ(g.phase(), Phase::kRunning);
  EXPECT_EQ(g.machine.join(pod("3", "worker-2"), {}, g.now), std::nullopt);
  EXPECT_FALSE(g.machine.has(id("2")));
  EXPECT_EQ(g.phase(), Phase::kGathering);
  g.ready_all();
  EXPECT_EQ(g.placed(), (Names{"1", "3"}));
}

TEST(Identity, ANewcomerProvesToASuccessorThatTheHostIsDead) {
  Group old(terms(1, 2));
  for (const char* name : {"1", "2"}) {
    EXPECT_EQ(old.machine.join(pod(name, std::string("worker-") + name), {}, old.now), std::nullopt);
  }
  old.ready_all();
  ASSERT_EQ(old.phase(), Phase::kRunning);
  const View last = old.view("2");
  LostHost host{id("1"), true, old.now};
  host.elders = last.successors;
  Rendezvous next(last.legacy, host, Dead{}, old.now + 10s);
  EXPECT_EQ(next.join(pod("2", "worker-2"), old.claim("2"), old.now + 10s), std::nullopt);
  EXPECT_TRUE(next.provisional()) << "one of two that may both live";
  EXPECT_EQ(next.join(pod("3", "worker-1"), {}, old.now + 11s), std::nullopt);
  EXPECT_FALSE(next.provisional());
}

// Seed 485 of PodsChaos: the dead host counted as alive elsewhere, for the sake of a spare that had died.
TEST(ASuccessor, KnowsThatASpareThatCameToItAndDiedIsNotElsewhere) {
  Group old(terms(1, 3));
  old.run({"1", "2"});
  old.join_all({"3"});
  const View last = old.view("2");
  ASSERT_EQ(last.legacy.spares, 1);
  LostHost host{id("1"), true, old.now};
  host.elders = last.successors;
  Instant now = old.now + 10s;
  Rendezvous next(last.legacy, host, Dead{}, now);
  EXPECT_EQ(next.join(info("2"), old.claim("2"), now), std::nullopt);
  EXPECT_EQ(next.join(info("3"), {}, now), std::nullopt) << "it was cut off before it heard that it was in";
  next.disconnected(id("3"), Loss::kDead, now);
  next.declare_dead(id("1"), true, now);
  EXPECT_FALSE(next.provisional()) << next.common_view().reason;
}

TEST(Identity, WhoWasReplacedIsRefused) {
  Group g(terms(1, 2));
  EXPECT_EQ(g.machine.join(pod("1", "worker-1"), {}, g.now), std::nullopt);
  EXPECT_EQ(g.machine.join(pod("2", "worker-2"), {}, g.now), std::nullopt);
  const Claim was = [&] {
    Claim claim;
    claim.epoch = 1;
    claim.seniority = g.view("2").seniority;
    return claim;
  }();
  EXPECT_EQ(g.machine.join(pod("3", "worker-2"), {}, g.now), std::nullopt);
  const std::optional<std::string> refusal = g.machine.join(pod("2", "worker-2"), was, g.now);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(*refusal, "another agent has taken its place (worker-2)");
  EXPECT_TRUE(g.machine.has(id("3")));
}

TEST(Identity, WithoutOneNobodyReplacesAnybody) {
  Group g(terms(1, 3));
  g.run({"1", "2"});
  EXPECT_EQ(g.join("3"), std::nullopt);
  EXPECT_TRUE(g.machine.has(id("1")) && g.machine.has(id("2")));
}

}  // namespace
}  // namespace rubato::elastic

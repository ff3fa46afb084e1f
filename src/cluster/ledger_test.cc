#include "cluster/ledger.h"

#include <gtest/gtest.h>

#include "cluster/state_testing.h"

namespace rubato::cluster {
namespace {

const Offering kSpotInA{"a", Market::kSpot, 0.1};
const Offering kSpotInB{"b", Market::kSpot, 0.1};
const Offering kOnDemandInA{"a", Market::kOnDemand, 0.3};

bool short_of(const Shortages& shortages, const Offering& offering, WallTime now, const std::string& type = "t") {
  return shortage_of(shortages, type, offering, now) != nullptr;
}

TEST(Shortages, NoCapacityIsAboutOneOffering) {
  Shortages shortages;
  note_failure(shortages, LaunchFailure::kNoCapacity, "t", kSpotInA, "none left", kTestStart);
  EXPECT_TRUE(short_of(shortages, kSpotInA, kTestStart));
  EXPECT_FALSE(short_of(shortages, kSpotInB, kTestStart));
  EXPECT_FALSE(short_of(shortages, kOnDemandInA, kTestStart));
  EXPECT_FALSE(short_of(shortages, kSpotInA, kTestStart, "other"));
}

TEST(Shortages, AQuotaHoldsInAllZonesOfAMarket) {
  Shortages shortages;
  note_failure(shortages, LaunchFailure::kQuota, "t", kSpotInA, "32 vCPUs", kTestStart);
  EXPECT_TRUE(short_of(shortages, kSpotInB, kTestStart));
  EXPECT_FALSE(short_of(shortages, kOnDemandInA, kTestStart));
}

TEST(Shortages, AnAccountThatMayNotIsAboutAll) {
  Shortages shortages;
  note_failure(shortages, LaunchFailure::kAuth, "t", kSpotInA, "expired", kTestStart);
  EXPECT_TRUE(short_of(shortages, kOnDemandInA, kTestStart, "other"));
}

TEST(Shortages, AnotherFailureIsNotRemembered) {
  Shortages shortages;
  note_failure(shortages, LaunchFailure::kOther, "t", kSpotInA, "?", kTestStart);
  EXPECT_TRUE(shortages.empty());
}

TEST(Shortages, WaitTwiceAsLongEachTimeUpToAMaximum) {
  Shortages shortages;
  WallTime now = kTestStart;
  std::vector<Duration> waits;
  for (int i = 0; i < 9; ++i) {
    note_failure(shortages, LaunchFailure::kNoCapacity, "t", kSpotInA, "none", now);
    const WallTime until = shortage_of(shortages, "t", kSpotInA, now)->until;
    waits.push_back(until - now);
    EXPECT_FALSE(short_of(shortages, kSpotInA, until)) << "it is tried again then";
    now = until;
  }
  EXPECT_EQ(waits.front(), kShortageFirst);
  EXPECT_EQ(waits[1], 2 * kShortageFirst);
  EXPECT_EQ(waits.back(), kShortageMax);
}

TEST(Shortages, LaunchesThatFailTogetherAreOneFailure) {
  Shortages shortages;
  for (int i = 0; i < 20; ++i)
    note_failure(shortages, LaunchFailure::kNoCapacity, "t", kSpotInA, "none", later(kTestStart, 10ms * i));
  EXPECT_EQ(shortages.begin()->second.failures, 1);
}

TEST(Shortages, AreForgottenAfterASuccessOrALongTime) {
  Shortages shortages;
  note_failure(shortages, LaunchFailure::kNoCapacity, "t", kSpotInA, "none", kTestStart);
  note_failure(shortages, LaunchFailure::kQuota, "t", kSpotInA, "none", kTestStart);
  note_success(shortages, "t", kSpotInA);
  EXPECT_TRUE(shortages.empty());
  note_failure(shortages, LaunchFailure::kNoCapacity, "t", kSpotInA, "none", kTestStart);
  note_failure(shortages, LaunchFailure::kNoCapacity, "t", kSpotInB, "none",
               later(kTestStart, kShortageFirst + kShortageForgotten));
  EXPECT_EQ(shortages.size(), 1u);
}

TEST(Cost, IsThePriceOverTheTime) {
  EXPECT_EQ(cost_micros(price_micros(0.1), 30min), 50'000);
  EXPECT_EQ(cost_micros(price_micros(3.06), 1s), 850);
  EXPECT_EQ(cost_micros(price_micros(1), -5s), 0) << "a clock that was set back gives nothing back";
}

// A node of type 'n' that costs $1.20 an hour.
NodeId priced(History& history) {
  const NodeId id{"n-1"};
  NodeRequested request{id, "n", launch_hash(*history.state.spec, history.state.spec->types.at("n")), "test"};
  request.offering.price_per_hour = 1.2;
  history.add(request);
  return id;
}

TEST(Cost, RunsFromTheRequestUntilTheMachineIsGone) {
  History history;
  history.configure({node_type("n", cpus(1), 0, 3)});
  const NodeId node = priced(history);
  history.pass(30min);
  EXPECT_EQ(cost_so_far(history.state, history.now), 600'000);
  history.add(NodeRemoving{node, "asked"});
  history.pass(30min);
  history.add(NodeGone{node});
  history.pass(30min);
  EXPECT_EQ(cost_so_far(history.state, history.now), 1'200'000);
  EXPECT_EQ(history.state.spent.at("n").nodes, 1);
  EXPECT_EQ(history.state.spent.at("n").time, Duration(1h));
  EXPECT_EQ(encode_snapshot(decode_snapshot(encode_snapshot(history.state))), encode_snapshot(history.state));
}

TEST(Cost, AMachineThatCouldNotBeHadCostsNothing) {
  History history;
  history.configure({node_type("n", cpus(1), 0, 3)});
  const NodeId node = priced(history);
  history.pass(30min);
  history.add(NodeFailed{node, "none left", LaunchFailure::kNoCapacity});
  EXPECT_EQ(cost_so_far(history.state, history.now), 0);
  EXPECT_EQ(history.state.health.count("n"), 0u) << "its type is not to blame";
  EXPECT_EQ(history.state.shortages.size(), 1u);
  EXPECT_EQ(history.state.nodes.at(node).phase, NodePhase::kLost);
}

TEST(IdleClock, RunsWhileNothingOfAnyJobIsThere) {
  History history;
  history.configure({node_type("n", cpus(4), 1, 3)});
  const NodeId node = history.node_up("n");
  const WallTime up = history.now;
  EXPECT_EQ(history.state.nodes.at(node).idle_since, up);
  history.pass(10s);
  const JobId job = history.running(job_of(1, 1), {{"n-1", 1}});
  EXPECT_EQ(history.state.nodes.at(node).idle_since, WallTime{});
  history.pass(10s);
  history.add(JobStopping{job, false, "asked"});
  EXPECT_EQ(history.state.nodes.at(node).idle_since, WallTime{}) << "its workers are still there";
  history.pass(10s);
  history.add(SeatVacated{job, node});
  EXPECT_EQ(history.state.nodes.at(node).idle_since, history.now);
  history.pass(10s);
  history.add(History::joined(node, "agent-n-1", cpus(4)));
  EXPECT_EQ(history.state.nodes.at(node).idle_since, later(history.now, -10s)) << "a new word of it changes nothing";
  history.add(NodeDraining{node, "asked"});
  EXPECT_EQ(history.state.nodes.at(node).idle_since, WallTime{});
}

}  // namespace
}  // namespace rubato::cluster

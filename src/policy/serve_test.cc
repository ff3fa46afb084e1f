// Queued jobs: priority, fair shares, gangs, backfill and starvation, room made by elastic jobs.
#include "policy/place_testing.h"

namespace rubato::policy {
namespace {

JobSpec with(JobSpec spec, int priority, const std::string& owner = "ann") {
  spec.priority = priority;
  spec.owner = owner;
  return spec;
}

TEST(Serve, HigherPriorityFirstThenTheOlder) {
  History history = nodes_of(1, 4);
  const JobId low = history.submit(with(job_of(2, 2), 0));
  const JobId high = history.submit(with(job_of(2, 2), 5));
  const JobId high_later = history.submit(with(job_of(2, 2), 5));
  const PlacedJobs result = place_now(history);
  EXPECT_EQ(result.workers(high), 2);
  EXPECT_EQ(result.workers(high_later), 2);
  EXPECT_EQ(result.against(low), "room for 0 of 2 workers now");
}

TEST(Serve, OwnersTakeTurnsByTheirShare) {
  History history = nodes_of(1, 4);
  const JobId a1 = history.submit(with(job_of(1, 1), 0, "ann"));
  const JobId a2 = history.submit(with(job_of(1, 1), 0, "ann"));
  const JobId a3 = history.submit(with(job_of(1, 1), 0, "ann"));
  history.pass(1s);
  const JobId b1 = history.submit(with(job_of(1, 1), 0, "bob"));
  const JobId b2 = history.submit(with(job_of(1, 1), 0, "bob"));
  const PlacedJobs result = place_now(history);
  EXPECT_EQ(result.placed.count(a1) + result.placed.count(a2) + result.placed.count(b1) + result.placed.count(b2), 4u);
  EXPECT_TRUE(result.held.contains(a3));
}

TEST(Serve, WhatAnOwnerHasAlreadyCounts) {
  History history = nodes_of(1, 4);
  history.running(with(job_of(3, 3), 0, "ann"), {{"n-1", 3}});
  const JobId ann = history.submit(with(job_of(1, 1), 0, "ann"));
  history.pass(1s);
  const JobId bob = history.submit(with(job_of(1, 1), 0, "bob"));
  const PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.placed.contains(bob));
  EXPECT_TRUE(result.held.contains(ann));
}

TEST(Serve, AGangIsAllOrNothingAndSmallerOnesPass) {
  History history = nodes_of(2, 4);
  history.running(job_of(4, 4), {{"n-1", 4}});
  const JobId gang = history.submit(6, 6);
  const JobId small = history.submit(2, 2);
  const PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.held.contains(gang));
  EXPECT_EQ(result.seats(small), (Seats{{"n-2", 2}}));
}

TEST(Serve, NothingPassesAStarvedJob) {
  History history = nodes_of(2, 4);
  history.running(job_of(4, 4), {{"n-1", 4}});
  const JobId gang = history.submit(6, 6);
  history.pass(kStarvation);
  const JobId small = history.submit(2, 2);
  const JobId important = history.submit(with(job_of(2, 2), 1));
  const PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.held.contains(gang));
  EXPECT_EQ(result.against(small), fmt::format("job {} has waited too long: nothing passes it any more", gang.value));
  EXPECT_TRUE(result.placed.contains(important)) << "it comes before";
}

TEST(Serve, WhatAStarvedJobCanNotUseIsForOthers) {
  History history;
  history.configure({node_type("small", cpus(4), 1, 9), node_type("big", cpus(8), 1, 9)});
  const NodeId small = history.node_up("small");
  const NodeId big = history.node_up("big");
  history.running(job_of(1, 1, cpus(6)), {{big.value, 1}});
  const JobId starved = history.submit(1, 1, cpus(8));
  history.pass(kStarvation);
  const JobId fits_beside = history.submit(1, 1, cpus(4));
  const JobId on_big = history.submit(1, 1, cpus(2));
  const PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.held.contains(starved));
  EXPECT_EQ(result.seats(fits_beside), (Seats{{small.value, 1}}));
  EXPECT_EQ(result.against(on_big),
            fmt::format("job {} has waited too long: nothing passes it any more", starved.value));
}

// A job that no wait helps would have blocked the cluster for ever.
TEST(Serve, AJobThatCanNotRunStarvesNobody) {
  History history = nodes_of(2, 4);
  const JobId huge = history.submit(9, 9);
  const JobId wide = history.submit(1, 1, cpus(5));
  history.pass(kStarvation * 2);
  const JobId small = history.submit(2, 2);
  const PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.placed.contains(small));
  EXPECT_TRUE(result.held.contains(huge) && result.held.contains(wide));
}

TEST(Serve, AStarvedJobLosesNoRoomToGrowthThatItCanNotTakeBack) {
  History history = nodes_of(2, 4);
  const JobId inelastic = history.running(job_of(2, 2), {{"n-1", 2}});
  const JobId elastic = history.running(with(job_of(1, 8), 5), {{"n-1", 1}});
  const JobId gang = history.submit(7, 7);
  history.pass(1min);
  EXPECT_EQ(place_now(history).workers(elastic), 6);
  history.pass(kStarvation);
  EXPECT_EQ(place_now(history).workers(elastic), 0);
  EXPECT_FALSE(place_now(history).placed.contains(gang) || place_now(history).placed.contains(inelastic));
}

TEST(Serve, ElasticJobsGiveUpWholeSteps) {
  History history = nodes_of(2, 4);
  JobSpec spec = job_of(3, 6);
  spec.workers_step = 3;
  const JobId elastic = history.running(spec, {{"n-1", 4}, {"n-2", 2}});
  history.submit(4, 4);
  EXPECT_EQ(place_now(history).workers(elastic), 3);
}

TEST(Serve, ElasticJobsGiveUpWorkersAboveTheirMinimum) {
  History history = nodes_of(2, 4);
  const JobId elastic = history.running(job_of(2, 8), {{"n-1", 4}, {"n-2", 4}});
  const JobId queued = history.submit(3, 3);
  const PlacedJobs result = place_and_apply(history);
  EXPECT_EQ(result.workers(elastic), 5);
  EXPECT_EQ(result.placed.at(elastic).cause, "makes room for job " + queued.value);
  EXPECT_EQ(result.against(queued), "other jobs are giving up workers above their minimum for it");
  // While they go, nobody is asked again and nobody grows; then it has its turn.
  EXPECT_TRUE(place_now(history).placed.empty());
  history.start(elastic);
  EXPECT_EQ(place_now(history).workers(queued), 3);
}

TEST(Serve, NeverBelowTheMinimumAndNotForLessImportantJobs) {
  History history = nodes_of(1, 4);
  history.running(job_of(2, 4), {{"n-1", 4}});
  history.submit(3, 3);
  EXPECT_TRUE(place_now(history).placed.empty()) << "two is all that it can give";
  History other = nodes_of(1, 4);
  other.running(with(job_of(1, 4), 5), {{"n-1", 4}});
  other.submit(with(job_of(1, 1), 4));
  EXPECT_TRUE(place_now(other).placed.empty());
}

TEST(Serve, TheLeastImportantGivesFirstAndOnlyWhatHelps) {
  History history = nodes_of(3, 4);
  const JobId useless = history.running(with(job_of(1, 2), -1), {{"n-1", 2}});
  const JobId hog = history.running(job_of(2, 2), {{"n-1", 2}});
  const JobId low = history.running(with(job_of(1, 4), 0), {{"n-2", 4}});
  const JobId high = history.running(with(job_of(1, 4), 1), {{"n-3", 4}});
  const JobId queued = history.submit(with(job_of(1, 1, cpus(3)), 2));
  const PlacedJobs result = place_now(history);
  EXPECT_EQ(result.workers(low), 1);
  EXPECT_FALSE(result.placed.contains(high) || result.placed.contains(hog) || result.placed.contains(queued));
  EXPECT_FALSE(result.placed.contains(useless)) << "a CPU of n-1 makes no room for three";
}

TEST(Serve, RoomThatIsMadeIsNotGivenToSmallerJobs) {
  History history = nodes_of(1, 8);
  const JobId elastic = history.running(job_of(1, 6), {{"n-1", 6}});
  const JobId first = history.submit(4, 4);
  const JobId small = history.submit(2, 2);
  const PlacedJobs result = place_and_apply(history);
  EXPECT_EQ(result.workers(elastic), 4);
  EXPECT_FALSE(result.placed.contains(small)) << "the two that are free are the first one's";
  history.start(elastic);
  EXPECT_EQ(place_now(history).workers(first), 4);
}

TEST(Serve, ManyJobsThatCanNotRunDoNotKeepOthersFromRoom) {
  History history = nodes_of(1, 4);
  const JobId elastic = history.running(job_of(1, 4), {{"n-1", 4}});
  for (size_t i = 0; i < 2 * kExplainedMax; ++i) history.submit(50 + static_cast<int>(i), 100);
  history.submit(2, 2);
  EXPECT_EQ(place_now(history).workers(elastic), 2);
}

TEST(Serve, ANodeThatOneJobShunsIsThereForTheNext) {
  History history = nodes_of(1, 4);
  const JobId first = history.submit(2, 2);
  JobPlaced placed{first, 1, {Seat{NodeId{"n-1"}, AgentId{"agent-n-1"}, 2}}, "", {}, {NodeId{"n-1"}}};
  history.add(placed);
  history.add(JobHeld{first, {}});
  history.add(SeatVacated{first, NodeId{"n-1"}});
  const JobId second = history.submit(2, 2);
  const PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.held.contains(first));
  EXPECT_TRUE(result.placed.contains(second));
  EXPECT_EQ(result.wake.at, later(history.now, 60s)) << "then it may be used again";
  history.pass(60s);
  EXPECT_TRUE(place_now(history).placed.contains(first));
}

TEST(Serve, GpusAndOwnResourcesBindToo) {
  History history;
  Resources special = cpus(4, 0, 1);
  special.set("license", 1000);
  history.configure({node_type("plain", cpus(8), 1, 1), node_type("special", special, 1, 1)});
  history.node_up("plain");
  history.node_up("special");
  Resources each = cpus(1, 0, 1);
  const JobId gpu = history.submit(1, 1, each);
  each = cpus(1);
  each.set("license", 1000);
  const JobId licensed = history.submit(1, 4, each);
  const PlacedJobs result = place_now(history);
  EXPECT_EQ(result.seats(gpu), (Seats{{"special-1", 1}}));
  EXPECT_EQ(result.seats(licensed), (Seats{{"special-1", 1}}));
}

TEST(Serve, NothingStartsWhileTheClusterShutsDown) {
  History history = nodes_of(1, 4);
  const JobId job = history.submit(1, 1);
  history.add(ShutdownRequested{});
  const PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.placed.empty());
  EXPECT_EQ(result.against(job), "the cluster is shutting down");
}

}  // namespace
}  // namespace rubato::policy

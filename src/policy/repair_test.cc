// Placed jobs: lost nodes, failures, seats that do not answer, and growth.
#include "policy/place_testing.h"

namespace rubato::policy {
namespace {

Observed ready(const History& history, const JobId& job, const std::vector<std::string>& nodes) {
  Observed observed;
  for (const std::string& node : nodes)
    observed.ready[job][NodeId{node}] = Observed::Ready{history.job(job).generation, 5000};
  return observed;
}

TEST(Repair, AJobThatRunsIsLeftAlone) {
  History history = nodes_of(2, 4);
  history.running(job_of(2, 2), {{"n-1", 2}});
  const PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.placed.empty() && result.held.empty());
}

TEST(Repair, LostWorkersAreReplacedAtOnceAndRanksKeepTheirOrder) {
  History history = nodes_of(4, 2);
  const JobId job = history.running(job_of(2, 6), {{"n-3", 2}, {"n-1", 2}, {"n-2", 2}});
  history.add(NodeLost{NodeId{"n-1"}, "silent"});
  const PlacedJobs result = place_now(history);
  EXPECT_EQ(result.seats(job), (Seats{{"n-3", 2}, {"n-2", 2}, {"n-4", 2}}));
  EXPECT_EQ(result.placed.at(job).cause, "node n-1 was lost");
  EXPECT_EQ(result.placed.at(job).generation, 2u);
}

TEST(Repair, GoesOnWithFewerOrWaitsForItsMinimum) {
  History history = nodes_of(2, 2);
  const JobId elastic = history.running(job_of(2, 4), {{"n-1", 2}, {"n-2", 2}});
  history.add(NodeDraining{NodeId{"n-2"}, "asked"});
  EXPECT_EQ(place_now(history).seats(elastic), (Seats{{"n-1", 2}}));
  EXPECT_EQ(place_now(history).placed.at(elastic).cause, "node n-2 drains");

  History other = nodes_of(2, 2);
  const JobId gang = other.running(job_of(4, 4), {{"n-1", 2}, {"n-2", 2}});
  other.add(NodeLost{NodeId{"n-2"}, "silent"});
  const PlacedJobs result = place_and_apply(other);
  EXPECT_EQ(result.against(gang), "node n-2 was lost");
  EXPECT_EQ(other.job(gang).phase, JobPhase::kQueued);
  other.node_up("n");
  other.add(SeatVacated{gang, NodeId{"n-1"}});
  EXPECT_EQ(place_now(other).placed.at(gang).cause, "there is room again");
}

// It was asked to make room for another one in the same breath.
TEST(Repair, AJobThatLosesItsSeatsGivesNone) {
  History history = nodes_of(2, 2);
  const JobId job = history.running(job_of(3, 4), {{"n-1", 2}, {"n-2", 2}});
  history.submit(1, 1);
  history.add(NodeLost{NodeId{"n-2"}, "silent"});
  const PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.held.contains(job));
  EXPECT_FALSE(result.placed.contains(job));
}

TEST(Repair, AReplacedAgentHasNoneOfTheWorkers) {
  History history = nodes_of(1, 2);
  const JobId job = history.running(job_of(2, 2), {{"n-1", 2}});
  history.add(History::joined(NodeId{"n-1"}, "other", cpus(2)));
  const PlacedJobs result = place_now(history);
  EXPECT_EQ(result.seats(job), (Seats{{"n-1", 2}}));
  EXPECT_EQ(result.placed.at(job).seats[0].agent, AgentId{"other"});
}

TEST(Repair, AFailureGathersTheSameSeats) {
  History history = nodes_of(2, 2);
  const JobId job = history.running(job_of(4, 4), {{"n-2", 2}, {"n-1", 2}});
  history.fail(job, "n-1");
  EXPECT_EQ(place_now(history).seats(job), (Seats{{"n-2", 2}, {"n-1", 2}}));
}

TEST(Repair, ADoneSeatIsMissedOnlyWhenTheRoundIsFormedAnew) {
  History history = nodes_of(3, 2);
  const JobId job = history.running(job_of(2, 4), {{"n-1", 2}, {"n-2", 2}});
  history.add(SeatDone{job, 1, NodeId{"n-1"}});
  history.add(NodeLost{NodeId{"n-1"}, "silent"});
  EXPECT_TRUE(place_now(history).placed.empty());
  history.fail(job, "n-2");
  EXPECT_EQ(place_now(history).seats(job), (Seats{{"n-2", 2}, {"n-3", 2}})) << "not on the node that is lost";
}

TEST(Repair, ASeatThatDoesNotAnswerInTimeIsReplacedAndShunned) {
  History history = nodes_of(3, 2);
  const JobId job = history.submit(4, 4);
  history.place(job, {{"n-1", 2}, {"n-2", 2}});
  const Observed observed = ready(history, job, {"n-1"});
  PlacedJobs result = place_now(history, observed);
  EXPECT_TRUE(result.placed.empty());
  EXPECT_EQ(result.wake.at, later(history.now, 60s)) << "rescale_timeout; nothing was to be saved yet";
  history.pass(60s);
  result = place_now(history, observed);
  EXPECT_EQ(result.seats(job), (Seats{{"n-1", 2}, {"n-3", 2}}));
  EXPECT_EQ(result.placed.at(job).shunned, std::vector<NodeId>{NodeId{"n-2"}});
  EXPECT_EQ(result.placed.at(job).cause, "node n-2 not ready within 1m00s");
}

TEST(Repair, WithNothingBetterAnUnreadySeatIsWaitedFor) {
  History history = nodes_of(1, 2);
  const JobId job = history.submit(2, 2);
  history.place(job, {{"n-1", 2}});
  history.pass(1h);
  const PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.placed.empty() && result.held.empty());
}

TEST(Repair, OldWorkersHaveTheirTimeToSaveBeforeASeatIsLate) {
  History history = nodes_of(1, 2);
  history.node_up("n");
  const JobId job = history.running(job_of(1, 4), {{"n-1", 2}});
  history.place(job, {{"n-1", 2}, {"n-2", 2}});
  EXPECT_EQ(patience(history.job(job), NodeId{"n-1"}), 180s);
  EXPECT_EQ(patience(history.job(job), NodeId{"n-2"}), 60s) << "a newcomer has nothing to save";
}

TEST(Grow, WaitsUntilJoinsHaveSettled) {
  History history = nodes_of(1, 2);
  const JobId job = history.running(job_of(2, 6), {{"n-1", 2}});
  history.pass(1min);
  history.node_up("n");
  PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.placed.empty());
  EXPECT_EQ(result.wake.at, later(history.now, kJoinsSettle));
  history.pass(kJoinsSettle / 2);
  history.node_up("n");
  history.pass(kJoinsSettle);
  result = place_now(history);
  EXPECT_EQ(result.workers(job), 6) << "both at once";
  EXPECT_EQ(result.placed.at(job).cause, "grows from 2 to 6 workers");
}

TEST(Grow, NotTooOften) {
  History history = nodes_of(2, 2);
  const JobId job = history.running(job_of(2, 6), {{"n-1", 2}});
  history.pass(2s);
  PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.placed.empty());
  EXPECT_EQ(result.wake.at, later(history.now, kGrowEvery - 2s));
  history.pass(kGrowEvery - 2s);
  EXPECT_EQ(place_now(history).workers(job), 4);
}

TEST(Grow, DealsOutEvenlyUpToTheMaximum) {
  History history = nodes_of(1, 16);
  const JobId a = history.submit(1, 3);
  const JobId b = history.submit(2, 20);
  const JobId c = history.submit(1, 20);
  const PlacedJobs result = place_now(history);
  EXPECT_EQ(result.workers(a), 3);
  EXPECT_EQ(result.workers(b), 7);
  EXPECT_EQ(result.workers(c), 6) << "5 above the minimum each, the older one first";
}

JobSpec in_steps(int min, int max, int step) {
  JobSpec spec = job_of(min, max);
  spec.workers_step = step;
  return spec;
}

TEST(Grow, InWholeSteps) {
  History history = nodes_of(1, 11);
  const JobId a = history.submit(in_steps(4, 12, 4));
  const JobId b = history.submit(1, 20);
  const PlacedJobs result = place_now(history);
  EXPECT_EQ(result.workers(a), 8);
  EXPECT_EQ(result.workers(b), 3);
}

TEST(Repair, OfABrokenStepTheRestIsDroppedOrFilledUp) {
  History history = nodes_of(3, 2);
  const JobId job = history.running(in_steps(2, 6, 2), {{"n-1", 1}, {"n-2", 2}, {"n-3", 1}});
  history.add(NodeLost{NodeId{"n-3"}, "gone"});
  EXPECT_EQ(place_now(history).workers(job), 4) << "n-1 has room for the other half of a step";
  const JobId other = history.running(job_of(1, 1), {{"n-1", 1}});
  EXPECT_EQ(place_now(history).workers(job), 2) << "there is none";
  EXPECT_FALSE(place_now(history).placed.contains(other));
}

TEST(Grow, NotAJobThatIsAboutToEnd) {
  History history = nodes_of(2, 2);
  const JobId job = history.running(job_of(1, 4), {{"n-1", 1}, {"n-2", 1}});
  history.add(SeatDone{job, 1, NodeId{"n-1"}});
  history.pass(1min);
  EXPECT_TRUE(place_now(history).placed.empty());
}

TEST(Grow, NotOntoShunnedNodesAndWakesWhenTheyAreForgiven) {
  History history = nodes_of(2, 2);
  const JobId job = history.submit(2, 4);
  history.add(JobPlaced{job, 1, {Seat{NodeId{"n-1"}, AgentId{"agent-n-1"}, 2}}, "", {}, {NodeId{"n-2"}}});
  history.start(job);
  history.pass(30s);
  const PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.placed.empty());
  EXPECT_EQ(result.wake.at, later(history.now, 30s));
  history.pass(30s);
  EXPECT_EQ(place_now(history).workers(job), 4);
}

}  // namespace
}  // namespace rubato::policy

// Groups whose workers change in place, as values.
#include <fmt/format.h>

#include "elastic/rendezvous_testing.h"

namespace rubato::elastic {
namespace {

using enum WorkerStage;
using Ids = std::vector<std::string>;

AgentWorkers workers(const Names& ids, WorkerStage stage = kVeteran) {
  AgentWorkers out;
  for (const std::string& id : ids) out.slots.push_back({id, static_cast<int>(out.slots.size()), stage});
  out.store = {"", 4711, "token"};
  return out;
}

class PlannedGroup : public Group {
 public:
  explicit PlannedGroup(const Terms& t) : Group(t) {}
  PlannedGroup(const Legacy& legacy, const Names& dead) : Group(legacy, dead) {}

  void answer(const std::string& name, const AgentWorkers& with) {
    machine.ready(id(name), machine.generation(), 29500, now, with);
  }
  void lives(const std::string& name) { answer(name, workers({name + "-1"})); }
  void fresh(const std::string& name) { answer(name, workers({name + "-2"}, kFresh)); }

  // A group whose workers train and have declared that they can change.
  void train(const Names& names) {
    join_all(names);
    for (const std::string& name : names) answer(name, workers({name + "-1"}, kFresh));
    pass(machine.legacy().terms.last_call);
    ASSERT_EQ(phase(), Phase::kRunning) << reason();
    for (const std::string& name : names) machine.settled(id(name), generation(), now);
  }
  Ids planned() const {
    Ids ids;
    const View view = machine.common_view();
    if (view.plan) {
      for (const PlannedWorker& one : view.plan->members) ids.push_back(one.id);
    }
    return ids;
  }
  void kill(const std::string& name) { machine.disconnected(id(name), Loss::kDead, now); }
};

TEST(InPlace, TheFirstPlanHasAllInTheirOrderAndWhereTheyMeet) {
  PlannedGroup group(terms(1, 3));
  group.train({"1", "2", "3"});
  EXPECT_EQ(group.planned(), (Ids{"1-1", "2-1", "3-1"}));
  EXPECT_EQ(group.view("1").plan->store, (MeetingPlace{"10.0.0.1", 4711, "token"}));
}

TEST(InPlace, ANewcomerIsPreparedWhileTheOthersTrainOn) {
  PlannedGroup group(terms(1, 3));
  group.train({"1", "2"});
  group.join_all({"3"});
  EXPECT_EQ(group.generation(), 1u);
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_TRUE(group.view("3").prepare);
  EXPECT_FALSE(group.view("3").assignment);

  group.machine.offered(id("3"), 1, group.now);
  EXPECT_EQ(group.phase(), Phase::kGathering);
  group.lives("1");
  group.lives("2");
  group.answer("3", workers({"3-1"}, kReady));
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.planned(), (Ids{"1-1", "2-1", "3-1"}));
  EXPECT_EQ(group.view("3").assignment->world_size, 3);
}

TEST(InPlace, AGroupThatHasNotDeclaredItRestartsForANewcomer) {
  PlannedGroup group(terms(1, 3));
  group.join_all({"1", "2"});
  group.fresh("1");
  group.fresh("2");
  group.pass(1s);
  ASSERT_EQ(group.phase(), Phase::kRunning);
  group.machine.settled(id("1"), 1, group.now);  // 2 is silent on it
  group.join_all({"3"});
  EXPECT_EQ(group.phase(), Phase::kGathering);
}

TEST(InPlace, SurvivorsOfALostAgentAreTheNextGenerationAtOnce) {
  PlannedGroup group(terms(1, 3));
  group.train({"1", "2", "3"});
  group.kill("2");
  EXPECT_EQ(group.phase(), Phase::kGathering);
  EXPECT_FALSE(group.view("1").restart);
  group.lives("1");
  group.lives("3");
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.planned(), (Ids{"1-1", "3-1"}));
  EXPECT_EQ(group.machine.legacy().restarts_used, 0);
}

TEST(InPlace, ADeadWorkerIsDroppedAndReplacedWhenTheNewOneIsReady) {
  PlannedGroup group(terms(1, 2, 3));
  group.train({"1", "2"});
  group.fail("2", 1);
  group.lives("1");
  group.fresh("2");
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.planned(), (Ids{"1-1"}));
  EXPECT_EQ(group.machine.legacy().restarts_used, 1);
  EXPECT_TRUE(group.view("2").prepare);

  group.machine.offered(id("2"), group.generation(), group.now);
  group.lives("1");
  group.answer("2", workers({"2-2"}, kReady));
  EXPECT_EQ(group.planned(), (Ids{"1-1", "2-2"}));
}

TEST(InPlace, AFailureBeyondTheBudgetEndsTheJob) {
  PlannedGroup group(terms(1, 2, 0));
  group.train({"1", "2"});
  group.fail("2", 1);
  group.lives("1");
  group.fresh("2");
  EXPECT_EQ(group.phase(), Phase::kEnded);
}

TEST(InPlace, CrashesInARowDelayTheReplacementNotTheOthers) {
  PlannedGroup group(terms(1, 2, 5));
  group.train({"1", "2"});
  for (int i = 0; i < 2; ++i) {
    group.fail("2", 1);
    group.lives("1");
    group.fresh("2");
    ASSERT_EQ(group.phase(), Phase::kRunning);
    if (i == 0) {
      group.machine.offered(id("2"), group.generation(), group.now);
      group.lives("1");
      group.answer("2", workers({"2-3"}, kReady));
    }
  }
  EXPECT_EQ(group.planned(), (Ids{"1-1"}));
  EXPECT_FALSE(group.view("2").prepare);
  group.pass(1s);
  EXPECT_TRUE(group.view("2").prepare);
}

TEST(InPlace, AReplacementThatDiesBeforeItJoinsCostsARestartAndDisturbsNobody) {
  PlannedGroup group(terms(1, 2, 2));
  group.train({"1", "2"});
  group.fail("2", 1);
  group.lives("1");
  group.fresh("2");
  const Generation generation = group.generation();
  group.machine.failed(id("2"), generation, {failure(1, group.now)}, group.now, false);
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.generation(), generation);
  EXPECT_EQ(group.machine.legacy().restarts_used, 2);
  group.machine.failed(id("2"), generation, {failure(1, group.now)}, group.now, false);
  EXPECT_EQ(group.phase(), Phase::kEnded);
}

TEST(InPlace, FewerThanTheLeastWaitForTheReplacement) {
  PlannedGroup group(terms(2, 2, 1));
  group.train({"1", "2"});
  group.fail("2", 1);
  group.lives("1");
  group.fresh("2");
  EXPECT_EQ(group.phase(), Phase::kGathering);
  EXPECT_TRUE(group.view("2").prepare);
  group.answer("2", workers({"2-2"}, kReady));
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.planned(), (Ids{"1-1", "2-2"}));
}

TEST(InPlace, AMixedGroupRestarts) {
  PlannedGroup group(terms(1, 3));
  group.train({"1", "2", "3"});
  group.kill("3");
  group.lives("1");
  AgentWorkers stopped = workers({"2-2"}, kFresh);
  stopped.stopped = true;
  group.answer("2", stopped);
  EXPECT_EQ(group.phase(), Phase::kGathering);
  EXPECT_TRUE(group.view("1").restart);
  EXPECT_TRUE(has(group.reason(), "cannot change in place")) << group.reason();
  group.answer("1", workers({"1-2"}, kFresh));
  group.answer("2", workers({"2-2"}, kFresh));
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.planned(), (Ids{"1-2", "2-2"}));
}

TEST(InPlace, AnAgentThatPlansNothingMakesAGroupOfTheOldKind) {
  PlannedGroup group(terms(1, 2));
  group.join_all({"1", "2"});
  group.fresh("1");
  group.ready({"2"});
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_FALSE(group.view("1").plan);
}

TEST(InPlace, WhoLeavesDepartsInPeace) {
  PlannedGroup group(terms(1, 3));
  group.train({"1", "2", "3"});
  group.machine.leaving(id("2"), "SIGTERM", group.now);
  for (const char* name : {"1", "2", "3"}) group.lives(name);
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.planned(), (Ids{"1-1", "3-1"}));
  EXPECT_EQ(group.view("2").plan->departing, (Ids{"2-1"}));
  EXPECT_FALSE(group.view("2").prepare);
  group.kill("2");  // its workers have left, then it
  EXPECT_EQ(group.phase(), Phase::kRunning);
}

TEST(InPlace, AGroupThatBreaksThoughNobodyDiesIsFormedAgain) {
  PlannedGroup group(terms(1, 2, 1));
  group.train({"1", "2"});
  for (int i = 0; i < kBreaksMax; ++i) {
    group.machine.broken(id("1"), group.generation(), "reset by peer", group.now);
    group.lives("1");
    group.lives("2");
    for (int waited = 0; waited < 60 && group.phase() != Phase::kRunning; ++waited) group.pass(100ms);
    ASSERT_EQ(group.phase(), Phase::kRunning);
  }
  EXPECT_EQ(group.machine.legacy().restarts_used, 0);
  group.machine.broken(id("1"), group.generation(), "reset by peer", group.now);
  EXPECT_TRUE(group.view("1").restart);
}

TEST(InPlace, AReportOfAnOlderGroupMeansNothing) {
  PlannedGroup group(terms(1, 3));
  group.train({"1", "2", "3"});
  group.kill("3");
  group.machine.broken(id("1"), 1, "a peer was lost", group.now);
  group.lives("1");
  group.lives("2");
  group.machine.broken(id("2"), 1, "a peer was lost", group.now);
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.generation(), 2u);
}

TEST(InPlace, AWorkerThatDiesAfterItsAgentAnsweredIsNotPlanned) {
  PlannedGroup group(terms(1, 3, 1));
  group.train({"1", "2", "3"});
  group.machine.broken(id("1"), 1, "a peer was lost", group.now);
  group.lives("2");
  group.machine.failed(id("2"), 1, {failure(1, group.now)}, group.now);
  group.lives("1");
  group.lives("3");
  EXPECT_EQ(group.phase(), Phase::kGathering);
  group.fresh("2");
  EXPECT_EQ(group.planned(), (Ids{"1-1", "3-1"}));
  EXPECT_EQ(group.machine.legacy().restarts_used, 1);
}

TEST(InPlace, ASuccessorGoesOnWithTheLivingWorkers) {
  PlannedGroup before(terms(1, 3));
  before.train({"1", "2", "3"});
  PlannedGroup after(before.machine.legacy(), {"1"});
  for (const char* name : {"2", "3"}) {
    EXPECT_EQ(after.join(name, before.claim(name)), std::nullopt);
    EXPECT_FALSE(after.view(name).restart);
  }
  after.lives("2");
  after.lives("3");
  EXPECT_EQ(after.phase(), Phase::kRunning);
  EXPECT_EQ(after.planned(), (Ids{"2-1", "3-1"}));
}

TEST(InPlace, WhoHasFinishedTakesNobodyIn) {
  PlannedGroup group(terms(1, 3));
  group.train({"1", "2"});
  group.join_all({"3"});
  group.machine.offered(id("3"), 1, group.now);
  group.lives("1");
  AgentWorkers done = workers({"2-2"}, kFresh);
  done.finished = true;
  group.answer("2", done);
  group.answer("3", workers({"3-1"}, kReady));
  EXPECT_EQ(group.planned(), (Ids{"1-1"}));
  EXPECT_FALSE(group.view("2").prepare);
  group.machine.succeeded(id("1"), group.generation(), group.now);
  EXPECT_EQ(group.phase(), Phase::kEnded);
  EXPECT_TRUE(group.view("1").succeeded);
}

TEST(InPlace, WhenAllHaveFinishedWhoWaitsToJoinDoesNotBeginAnew) {
  PlannedGroup group(terms(1, 3));
  group.train({"1", "2"});
  group.join_all({"3"});
  group.machine.offered(id("3"), 1, group.now);
  for (const char* name : {"1", "2"}) {
    AgentWorkers done = workers({std::string(name) + "-2"}, kFresh);
    done.finished = true;
    group.answer(name, done);
  }
  group.answer("3", workers({"3-1"}, kReady));
  EXPECT_EQ(group.phase(), Phase::kEnded);
  EXPECT_TRUE(group.view("1").succeeded);
}

TEST(InPlace, SparesAreStartedAndTakeTheFirstPlaceThatIsFree) {
  Terms limits = terms(1, 2);
  limits.spares = 1;
  PlannedGroup group(limits);
  group.train({"1", "2"});
  group.join_all({"3", "4"});
  EXPECT_TRUE(group.view("3").prepare);
  EXPECT_FALSE(group.view("4").prepare);
  group.machine.offered(id("3"), 1, group.now);  // there is no room yet
  EXPECT_EQ(group.phase(), Phase::kRunning);
  group.kill("1");
  group.lives("2");
  group.answer("3", workers({"3-1"}, kReady));
  group.fresh("4");
  EXPECT_EQ(group.planned(), (Ids{"2-1", "3-1"}));
}

TEST(InPlace, WhereSizesHaveStepsAllStartAnew) {
  Terms limits = terms(2, 4);
  limits.step = 2;
  PlannedGroup group(limits);
  group.train({"1", "2", "3", "4"});
  group.kill("2");
  for (const char* name : {"1", "3", "4"}) group.lives(name);
  EXPECT_EQ(group.phase(), Phase::kGathering);
  EXPECT_TRUE(group.view("1").restart);
  for (const char* name : {"1", "3", "4"}) group.fresh(name);
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.planned(), (Ids{"1-2", "3-2"}));
}

TEST(InPlace, WhenNobodyWithTheStateIsLeftAllBeginTogether) {
  PlannedGroup group(terms(1, 2, 1));
  group.train({"1", "2"});
  group.join_all({"3"});
  group.kill("1");
  group.fail("2", 1);
  group.fresh("2");
  group.answer("3", workers({"3-1"}, kReady));
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.planned(), (Ids{"2-2", "3-1"}));
}

TEST(InPlace, AGroupTooLargeForPlansRestarts) {
  PlannedGroup group(terms(1, 2));
  group.join_all({"1", "2"});
  for (const char* name : {"1", "2"}) {
    Names ids;
    for (size_t i = 0; i < kPlanWorkersMax / 2 + 1; ++i) ids.push_back(fmt::format("{}-{}", name, i));
    group.answer(name, workers(ids, kFresh));
  }
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_FALSE(group.view("1").plan);
}

}  // namespace
}  // namespace rubato::elastic

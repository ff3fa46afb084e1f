// A node that has a deadline: its jobs leave it, its replacement is asked for, and nothing is started there.
#include <gtest/gtest.h>

#include "reconcile/admit.h"
#include "reconcile/cluster_testing.h"
#include "reconcile/fence.h"
#include "reconcile/jobs.h"

namespace rubato::reconcile {
namespace {

const NodeId kFirst{"n-1"}, kSecond{"n-2"};

struct Notice : testing::Test {
  History history;
  PlanMemory memory;
  Observed observed;

  Notice() {
    history.configure({node_type("n", cpus(2), 0, 2)});
    history.nodes_up("n", 2);
    history.pass(1min);
  }
  static NodeDraining notice(const NodeId& node, WallTime deadline) {
    NodeDraining draining;
    draining.node = node;
    draining.reason = "spot notice";
    draining.deadline = deadline;
    draining.noticed = true;
    return draining;
  }
  std::vector<Record> decide_now(std::vector<Event> happened = {}) {
    return decide(history.state, memory, observed, std::move(happened), history.now).records;
  }
  void ready(const JobId& job) {
    for (const Seat& seat : history.job(job).seats) {
      Observed::Ready ready;
      ready.generation = history.job(job).generation;
      ready.port = 5000;
      observed.ready[job][seat.node] = ready;
    }
  }
  void drain(const NodeId& node, WallTime deadline) {
    DrainNode request;
    request.node = node;
    request.reason = "drained by a person";
    request.deadline = deadline;
    decide_now(admit_or_throw(history.state, request, history.now).events);
  }
  int launching() const {
    int count = 0;
    for (const auto& [id, node] : history.state.nodes) count += node.phase == NodePhase::kRequested ? 1 : 0;
    return count;
  }
};

TEST_F(Notice, AnElasticJobShrinksAwayAndTellsHowLongItTook) {
  const JobId job = history.running(job_of(2, 4), {{"n-1", 2}, {"n-2", 2}});
  decide_now({notice(kSecond, later(history.now, 120s))});
  EXPECT_EQ(history.job(job).workers(), 2);
  EXPECT_EQ(history.job(job).leaving.at(kSecond), 2);
  history.pass(400ms);
  ready(job);
  decide_now({SeatVacated{job, kSecond}});
  EXPECT_EQ(history.job(job).phase, JobPhase::kRunning);
  EXPECT_EQ(history.job(job).moved, "spot notice 120 s → saved and stopped (0.4 s) → resized 4→2 (0.0 s)");
  EXPECT_FALSE(history.job(job).evacuation);
}

TEST_F(Notice, WorkersThatWereKilledHaveNotSaved) {
  const JobId job = history.running(job_of(1, 2), {{"n-1", 1}, {"n-2", 1}});
  decide_now({notice(kSecond, later(history.now, 30s))});
  history.pass(28s);
  ready(job);
  decide_now({CheckpointMissed{job, 1, kSecond, {"rank 1"}}, SeatVacated{job, kSecond}});
  EXPECT_NE(history.job(job).moved.find("lost what was not saved before"), std::string::npos) << history.job(job).moved;
}

TEST_F(Notice, AReplacementIsAskedForAtOnceThoughTheLimitIsReached) {
  history.running(job_of(4, 4), {{"n-1", 2}, {"n-2", 2}});
  decide_now({notice(kSecond, later(history.now, 120s))});
  EXPECT_EQ(launching(), 1) << "n-2 is still there, and does not count";
}

TEST_F(Notice, AJobOfFixedSizeWaitsForTheReplacement) {
  const JobId job = history.running(job_of(4, 4), {{"n-1", 2}, {"n-2", 2}});
  decide_now({notice(kSecond, later(history.now, 120s))});
  EXPECT_EQ(history.job(job).phase, JobPhase::kQueued);
  decide_now({SeatVacated{job, kFirst}, SeatVacated{job, kSecond}});
  history.pass(40s);
  const NodeId third{"n-3"};
  decide_now({NodeCreated{third}, History::joined(third, "agent-n-3", cpus(2))});
  ready(job);
  decide_now();
  EXPECT_EQ(history.job(job).phase, JobPhase::kRunning);
  EXPECT_NE(history.job(job).moved.find("moved 4 workers (40.0 s)"), std::string::npos) << history.job(job).moved;
}

// The notice comes in the moment in which all are ready.
TEST_F(Notice, NothingIsStartedOnANodeThatGoes) {
  const JobId job = history.submit(2, 4);
  history.place(job, {{"n-1", 2}, {"n-2", 2}});
  ready(job);
  for (const Record& record : decide_now({notice(kSecond, later(history.now, 120s))})) {
    const auto* started = std::get_if<JobStarted>(&record.event);
    EXPECT_FALSE(started && started->generation == 1);
  }
  EXPECT_EQ(history.job(job).generation, 2u);
  EXPECT_FALSE(history.job(job).seat_on(kSecond));
}

TEST_F(Notice, AnEmptyNodeIsRemovedWithoutWaitingForItsDeadline) {
  decide_now({notice(kSecond, later(history.now, 120s))});
  EXPECT_EQ(history.state.nodes.at(kSecond).phase, NodePhase::kRemoving);
}

TEST_F(Notice, WhatAnAgentHasPromisedEndsTheWaitForIt) {
  const JobId job = history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  decide_now({notice(kSecond, later(history.now, 20s)), NodeLost{kSecond, "silent", true}});
  ready(job);
  observed.silence[kSecond] = 10s;
  observed.ends_in[kSecond] = 11s;
  decide_now();
  EXPECT_NE(history.job(job).phase, JobPhase::kRunning) << "its workers may live: the lease is 2 min";
  observed.ends_in[kSecond] = -1ms;
  decide_now();
  EXPECT_EQ(history.job(job).phase, JobPhase::kRunning);
}

TEST_F(Notice, APersonsDrainCanBeUndone) {
  const JobId job = history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  drain(kSecond, later(history.now, 1min));
  EXPECT_EQ(history.state.nodes.at(kSecond).phase, NodePhase::kDraining);
  decide_now(admit_or_throw(history.state, KeepNode{kSecond, "asked"}, history.now).events);
  EXPECT_EQ(history.state.nodes.at(kSecond).phase, NodePhase::kUp);
  EXPECT_FALSE(history.state.nodes.at(kSecond).departs());
  EXPECT_TRUE(admit_or_throw(history.state, KeepNode{kSecond, "asked"}, history.now).events.empty());
  EXPECT_EQ(history.job(job).workers(), 2) << "it grows again when it is due";
}

TEST_F(Notice, AMachineThatGoesCannotBeKept) {
  history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  decide_now({notice(kSecond, later(history.now, 20s))});
  const Admission refused = admit(history.state, KeepNode{kSecond, "asked"}, history.now);
  EXPECT_EQ(std::get<Refused>(refused).reason, Refusal::kNodeGoes);
  // Nor does a person's wish change when it goes.
  DrainNode later_on;
  later_on.node = kSecond;
  later_on.deadline = later(history.now, 1h);
  EXPECT_TRUE(admit_or_throw(history.state, later_on, history.now).events.empty());
}

TEST_F(Notice, OutlivesASnapshot) {
  const JobId job = history.running(job_of(1, 4), {{"n-1", 2}, {"n-2", 2}});
  decide_now({notice(kSecond, later(history.now, 20s))});
  const State back = decode_snapshot(encode_snapshot(history.state));
  EXPECT_TRUE(back.nodes.at(kSecond).departs());
  EXPECT_EQ(back.nodes.at(kSecond).deadline, history.state.nodes.at(kSecond).deadline);
  ASSERT_TRUE(back.jobs.at(job).evacuation);
  EXPECT_EQ(*back.jobs.at(job).evacuation, *history.job(job).evacuation);
}

}  // namespace
}  // namespace rubato::reconcile

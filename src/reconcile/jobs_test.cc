#include "reconcile/jobs.h"

#include <gtest/gtest.h>

#include "reconcile/cluster_testing.h"

namespace rubato::reconcile {
namespace {

History two_nodes() {
  History history;
  history.configure({node_type("n", cpus(4), 2, 4)});
  history.nodes_up("n", 2);
  return history;
}

struct Rounds {
  explicit Rounds(History history_in) : history(std::move(history_in)) {}
  History history;
  Observed observed;
  Wake wake;

  void ready(const JobId& job, const std::string& node, uint16_t port = 5000) {
    observed.ready[job][NodeId{node}] = Observed::Ready{history.job(job).generation, port};
  }
  std::vector<Event> advance() {
    wake = {};
    return advance_jobs(history.state, observed, history.now, wake);
  }
  // The one event that follows, written down.
  template <class E>
  E step() {
    const std::vector<Event> events = advance();
    EXPECT_EQ(events.size(), 1u);
    if (events.size() != 1 || !std::holds_alternative<E>(events[0])) {
      ADD_FAILURE() << (events.empty() ? "nothing follows" : describe(events[0]));
      return E{};
    }
    history.add(events[0]);
    return std::get<E>(events[0]);
  }
  // It fails on n-1, and both seats are ready for the next round.
  void crash(const JobId& job, Duration after, const std::string& message = "") {
    history.pass(after);
    history.fail(job, "n-1", message);
    history.place(job, {{"n-1", 2}, {"n-2", 2}});
    ready(job, "n-1");
    ready(job, "n-2");
  }
};

TEST(Jobs, WorkersThatSavedAndLeftCostNoRestart) {
  Rounds rounds(two_nodes());
  const JobId job = rounds.history.submit(4, 4);
  rounds.history.run(job, {{"n-1", 2}, {"n-2", 2}});
  const auto leave = [&](int exit_code, Duration after) {
    rounds.history.pass(after);
    elastic::Failure failure;
    failure.exit_code = exit_code;
    rounds.history.add(SeatFailed{job, rounds.history.job(job).generation, NodeId{"n-1"}, {failure}});
    rounds.history.place(job, {{"n-1", 2}, {"n-2", 2}});
    rounds.ready(job, "n-1");
    rounds.ready(job, "n-2");
    const auto charged = rounds.step<RestartCharged>();
    rounds.history.pass(charged.backoff);
    rounds.step<JobStarted>();
    return charged;
  };
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(leave(143, 1min).saved);
  EXPECT_EQ(rounds.history.job(job).restarts.used, 0);
  EXPECT_EQ(leave(143, 1min).backoff, 0s);
  leave(143, 1s);
  EXPECT_GT(leave(143, 1s).backoff, 0s) << "one that leaves as soon as it starts is made to wait";
  EXPECT_FALSE(leave(1, 1min).saved);
  EXPECT_EQ(rounds.history.job(job).restarts.used, 1);
}

TEST(Jobs, StartWhenEverySeatIsReadyForThisGeneration) {
  Rounds rounds(two_nodes());
  const JobId job = rounds.history.submit(4, 4);
  rounds.history.place(job, {{"n-2", 2}, {"n-1", 2}});
  rounds.ready(job, "n-1", 4001);
  EXPECT_TRUE(rounds.advance().empty());
  rounds.observed.ready[job][NodeId{"n-2"}] = Observed::Ready{7, 4002};
  EXPECT_TRUE(rounds.advance().empty()) << "ready for another one";
  rounds.ready(job, "n-2", 4002);
  const auto started = rounds.step<JobStarted>();
  EXPECT_EQ(started.master_addr, "127.0.0.1") << "all are on this machine";
  EXPECT_EQ(started.master_port, 4002);
}

TEST(Jobs, TheMasterIsTheFirstSeatAtAnAddressThatAllReach) {
  Rounds rounds(two_nodes());
  for (auto& [id, node] : rounds.history.state.nodes) {
    node.info.machine = id.value;
    node.info.address = "10.0.0." + id.value.substr(2);
  }
  const JobId job = rounds.history.submit(4, 4);
  rounds.history.place(job, {{"n-2", 2}, {"n-1", 2}});
  rounds.ready(job, "n-1");
  rounds.ready(job, "n-2");
  EXPECT_EQ(rounds.step<JobStarted>().master_addr, "10.0.0.2");
}

TEST(Jobs, FailWhenASeatCannotGetReadyAndThereIsNoOther) {
  Rounds rounds(two_nodes());
  const JobId job = rounds.history.submit(4, 4);
  rounds.history.place(job, {{"n-1", 2}, {"n-2", 2}});
  rounds.ready(job, "n-1");
  rounds.observed.problems[job][NodeId{"n-2"}] = "the package holds '../x'";
  EXPECT_TRUE(rounds.advance().empty()) << "it may still get ready";
  rounds.history.pass(62s);
  const auto stopping = rounds.step<JobStopping>();
  EXPECT_TRUE(stopping.failed);
  EXPECT_EQ(stopping.reason, "node n-2: the package holds '../x'");
}

TEST(Jobs, NotBesideWorkersOfAnOlderGeneration) {
  Rounds rounds(two_nodes());
  const JobId job = rounds.history.running(job_of(2, 4), {{"n-1", 2}, {"n-2", 2}});
  rounds.history.place(job, {{"n-1", 2}});
  rounds.ready(job, "n-1");
  EXPECT_TRUE(rounds.advance().empty()) << "n-2 may still be saving";
  rounds.history.add(SeatVacated{job, NodeId{"n-2"}});
  rounds.step<JobStarted>();
}

TEST(Jobs, CrashesCostRestartsAndBackOff) {
  Rounds rounds(two_nodes());
  JobSpec spec = job_of(4, 4);
  spec.max_restarts = 2;
  const JobId job = rounds.history.running(spec, {{"n-1", 2}, {"n-2", 2}});
  rounds.crash(job, 1s);
  EXPECT_EQ(rounds.step<RestartCharged>().backoff, 0s);
  rounds.step<JobStarted>();
  rounds.crash(job, 1s);
  EXPECT_EQ(rounds.step<RestartCharged>().backoff, 100ms);
  EXPECT_TRUE(rounds.advance().empty());
  EXPECT_EQ(rounds.wake.at, later(rounds.history.now, 100ms));
  rounds.history.pass(100ms);
  rounds.step<JobStarted>();
  rounds.crash(job, 1min);
  const auto ended = rounds.step<JobEnded>();
  EXPECT_EQ(ended.result, JobResult::kFailed);
  EXPECT_NE(ended.reason.find("exit code 1; all 2 restarts used"), std::string::npos) << ended.reason;
}

TEST(Jobs, TheSameErrorTwiceAtTheStartEndsIt) {
  Rounds rounds(two_nodes());
  const JobId job = rounds.history.running(job_of(4, 4), {{"n-1", 2}, {"n-2", 2}});
  rounds.crash(job, 1s, "ModuleNotFoundError: No module named 'nope'");
  rounds.step<RestartCharged>();
  rounds.step<JobStarted>();
  rounds.crash(job, 1s, "ModuleNotFoundError: No module named 'nope'");
  const auto ended = rounds.step<JobEnded>();
  EXPECT_EQ(ended.result, JobResult::kFailed);
  EXPECT_EQ(ended.cause, JobEndCause::kSameCrash);
  EXPECT_NE(ended.reason.find("(ModuleNotFoundError: No module named 'nope'); the same error twice, right after the "
                              "start, so the 2 restarts left are not used"),
            std::string::npos)
      << ended.reason;
  EXPECT_EQ(rounds.history.job(job).end_cause, JobEndCause::kSameCrash);
}

TEST(Jobs, CrashesThatMayEndOtherwiseUseTheirRestarts) {
  const auto crashes = [](Duration first_after, const std::string& first, Duration second_after,
                          const std::string& second) {
    Rounds rounds(two_nodes());
    const JobId job = rounds.history.running(job_of(4, 4), {{"n-1", 2}, {"n-2", 2}});
    rounds.crash(job, first_after, first);
    rounds.step<RestartCharged>();
    rounds.step<JobStarted>();
    rounds.crash(job, second_after, second);
    rounds.step<RestartCharged>();
  };
  crashes(1s, "OSError: one", 1s, "OSError: other");
  crashes(1s, "", 1s, "");                                     // nobody knows whether it was the same
  crashes(20s, "OSError: no route", 1s, "OSError: no route");  // it had begun
  crashes(1s, "OSError: no route", 20s, "OSError: no route");  // the restart helped for a while
}

TEST(Jobs, AGenerationThatLivedMakesAnEarlierCrashForgotten) {
  Rounds rounds(two_nodes());
  const JobId job = rounds.history.running(job_of(2, 4), {{"n-1", 2}, {"n-2", 2}});
  rounds.crash(job, 1s, "OSError: busy");
  rounds.step<RestartCharged>();
  rounds.step<JobStarted>();
  rounds.history.pass(1min);  // it trains, then a node drains
  rounds.history.place(job, {{"n-1", 2}, {"n-2", 2}});
  rounds.ready(job, "n-1");
  rounds.ready(job, "n-2");
  rounds.step<JobStarted>();
  rounds.crash(job, 1s, "OSError: busy");
  rounds.step<RestartCharged>();
}

TEST(Jobs, WithoutRestartsTheFirstFailureEndsIt) {
  Rounds rounds(two_nodes());
  JobSpec spec = job_of(4, 4);
  spec.max_restarts = 0;
  const JobId job = rounds.history.running(spec, {{"n-1", 2}, {"n-2", 2}});
  rounds.crash(job, 1s);
  EXPECT_NE(rounds.step<JobEnded>().reason.find("no restarts allowed"), std::string::npos);
}

TEST(Jobs, LostNodesAndNewSizesCostNothing) {
  Rounds rounds(two_nodes());
  JobSpec spec = job_of(1, 4);
  spec.max_restarts = 0;
  const JobId job = rounds.history.running(spec, {{"n-1", 2}, {"n-2", 2}});
  // The survivor fails first, as it does when its peer is gone; the loss is noticed later.
  rounds.history.fail(job, "n-1");
  rounds.history.place(job, {{"n-1", 2}, {"n-2", 2}});
  rounds.history.add(NodeLost{NodeId{"n-2"}, "silent"});
  rounds.history.place(job, {{"n-1", 2}});
  rounds.ready(job, "n-1");
  rounds.step<JobStarted>();
  EXPECT_EQ(rounds.history.job(job).restarts.used, 0);
  rounds.history.place(job, {{"n-1", 1}});
  rounds.ready(job, "n-1");
  rounds.step<JobStarted>();
  EXPECT_EQ(rounds.history.job(job).restarts.used, 0);
}

TEST(Jobs, SucceedWhenEverySeatIsDone) {
  Rounds rounds(two_nodes());
  const JobId job = rounds.history.running(job_of(4, 4), {{"n-1", 2}, {"n-2", 2}});
  rounds.history.add(SeatDone{job, 1, NodeId{"n-1"}});
  EXPECT_TRUE(rounds.advance().empty());
  rounds.history.add(SeatDone{job, 1, NodeId{"n-2"}});
  EXPECT_EQ(rounds.step<JobEnded>().result, JobResult::kSucceeded);
}

TEST(Jobs, AStopWaitsForTheWorkers) {
  Rounds rounds(two_nodes());
  const JobId job = rounds.history.running(job_of(2, 2), {{"n-1", 2}});
  rounds.history.add(JobStopping{job, false, "asked"});
  EXPECT_TRUE(rounds.advance().empty());
  rounds.history.add(SeatVacated{job, NodeId{"n-1"}});
  const auto ended = rounds.step<JobEnded>();
  EXPECT_EQ(ended.result, JobResult::kStopped);
  EXPECT_EQ(ended.reason, "asked");
}

TEST(Jobs, TheTimeoutCountsFromTheFirstStartAlsoInTheQueue) {
  Rounds rounds(two_nodes());
  JobSpec spec = job_of(2, 2);
  spec.timeout = 1min;
  const JobId job = rounds.history.submit(spec);
  rounds.history.pass(1h);
  EXPECT_TRUE(rounds.advance().empty()) << "it has not begun";
  rounds.history.run(job, {{"n-1", 2}});
  EXPECT_TRUE(rounds.advance().empty());
  EXPECT_EQ(rounds.wake.at, later(rounds.history.now, 1min));
  rounds.history.add(JobHeld{job, {}});
  rounds.history.add(SeatVacated{job, NodeId{"n-1"}});
  rounds.history.pass(1min);
  const auto stopping = rounds.step<JobStopping>();
  EXPECT_TRUE(stopping.failed);
  EXPECT_EQ(stopping.reason, "timeout of 1m00s");
  EXPECT_EQ(rounds.step<JobEnded>().result, JobResult::kFailed);
}

TEST(Jobs, AShutdownStopsAllOfThem) {
  Rounds rounds(two_nodes());
  rounds.history.running(job_of(2, 2), {{"n-1", 2}});
  rounds.history.submit(1, 1);
  rounds.history.add(ShutdownRequested{});
  EXPECT_EQ(rounds.advance().size(), 2u);
}

}  // namespace
}  // namespace rubato::reconcile

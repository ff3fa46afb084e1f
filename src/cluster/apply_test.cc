#include "cluster/apply.h"

#include <gtest/gtest.h>

#include "cluster/state_testing.h"
#include "core/error.h"

namespace rubato::cluster {
namespace {

History with_nodes(int count) {
  History history;
  history.configure({node_type("small", cpus(8), count, 10)});
  history.nodes_up("small", count);
  return history;
}

NodeId n(int i) { return NodeId{"small-" + std::to_string(i)}; }

TEST(Apply, CountsWorkersThatMayStillBeAlive) {
  History history = with_nodes(2);
  const JobId job = history.running(job_of(1, 8), {{"small-1", 4}, {"small-2", 2}});
  history.place(job, {{"small-1", 2}});
  EXPECT_EQ(history.job(job).leaving, (std::map<NodeId, int>{{n(1), 2}, {n(2), 2}}));
  EXPECT_EQ(used_on(history.state, n(1)), cpus(4));
  history.add(SeatVacated{job, n(2)});
  EXPECT_EQ(history.state.jobs_on.count(n(2)), 0u);
  history.start(job);
  EXPECT_TRUE(history.job(job).leaving.empty());
  EXPECT_EQ(used_on(history.state, n(1)), cpus(2));
}

TEST(Apply, ASeatThatShrinksTwiceStillHoldsAllItsWorkers) {
  History history = with_nodes(1);
  const JobId job = history.running(job_of(1, 8), {{"small-1", 4}});
  history.place(job, {{"small-1", 2}});
  history.place(job, {{"small-1", 1}});
  EXPECT_EQ(used_on(history.state, n(1)), cpus(4));
  history.place(job, {{"small-1", 4}});
  EXPECT_EQ(used_on(history.state, n(1)), cpus(4));
}

TEST(Apply, WorkersDieWithTheirNode) {
  History history = with_nodes(2);
  const JobId job = history.running(job_of(1, 4), {{"small-1", 2}, {"small-2", 2}});
  history.place(job, {{"small-1", 2}});
  history.add(NodeLost{n(2), "silent"});
  EXPECT_TRUE(history.job(job).leaving.empty());
  EXPECT_FALSE(history.job(job).restarts.lost) << "it had left that node";
  history.add(NodeLost{n(1), "silent"});
  EXPECT_TRUE(history.job(job).restarts.lost);
}

TEST(Apply, AReplacedAgentIsALossOfItsWorkers) {
  History history = with_nodes(1);
  const JobId job = history.running(job_of(1, 4), {{"small-1", 2}});
  history.place(job, {{"small-1", 1}});
  history.add(History::joined(n(1), "other", cpus(8)));
  EXPECT_TRUE(history.job(job).leaving.empty());
  EXPECT_TRUE(history.job(job).restarts.lost);
  EXPECT_EQ(used_on(history.state, n(1)), Resources());
}

TEST(Apply, ALateAgentDoesNotBringANodeBack) {
  History history = with_nodes(3);
  history.add(NodeDraining{n(1), "asked"});
  history.add(History::joined(n(1), "other", cpus(8)));
  EXPECT_EQ(history.state.nodes.at(n(1)).phase, NodePhase::kDraining);
  EXPECT_EQ(history.state.nodes.at(n(1)).agent, AgentId{"other"});
  history.add(NodeRemoving{n(2), "surplus"});
  history.add(History::joined(n(2), "other", cpus(8)));
  history.add(NodeDraining{n(2), "asked"});
  history.add(NodeLost{n(2), "hung up"});
  EXPECT_EQ(history.state.nodes.at(n(2)).phase, NodePhase::kRemoving);
  history.add(NodeGone{n(2)});
  EXPECT_FALSE(history.state.nodes.contains(n(2)));
}

TEST(Apply, TypesWhoseNodesDieYoungBackOffAndRecover) {
  History history = with_nodes(4);
  const auto wait = [&] {
    const TypeHealth& health = history.state.health.at("small");
    return health.not_before - history.now;
  };
  history.add(NodeLost{n(1), "crash"});
  EXPECT_EQ(wait(), 500ms);
  history.add(NodeFailed{n(2), "no"});
  EXPECT_EQ(wait(), 1s);
  history.pass(1min);
  history.add(NodeLost{n(3), "crash"});
  EXPECT_EQ(history.state.health.at("small").failures, 0) << "it was old";
  history.add(NodeDraining{n(4), "asked"});
  history.add(NodeLost{n(4), "gone"});
  EXPECT_EQ(history.state.health.at("small").failures, 0) << "it drained, and was old";
  for (int i = 0; i < 40; ++i) history.add(NodeFailed{history.node_up("small"), "no"});
  EXPECT_EQ(wait(), 60s);
  history.configure({node_type("small", cpus(8), 1, 10)});
  EXPECT_TRUE(history.state.health.empty()) << "a new file is a new chance";
}

TEST(Apply, RemembersHowLongARoundLasted) {
  History history = with_nodes(1);
  const JobId job = history.running(job_of(1, 1), {{"small-1", 1}});
  history.pass(30s);
  history.add(JobHeld{job, {}});
  EXPECT_EQ(history.job(job).restarts.uptime, 30s);
  EXPECT_EQ(history.job(job).queued_since, history.now);
  EXPECT_TRUE(history.state.queued.contains(job) && history.state.active.contains(job));
  history.add(SeatVacated{job, n(1)});
  EXPECT_FALSE(history.state.active.contains(job));
}

TEST(Apply, FailuresOfOtherRoundsDoNotCount) {
  History history = with_nodes(2);
  const JobId job = history.running(job_of(1, 2), {{"small-1", 1}, {"small-2", 1}});
  history.add(SeatFailed{job, 0, n(1), {}});
  EXPECT_FALSE(history.job(job).restarts.failure_pending);
  history.fail(job, "small-1");
  history.place(job, {{"small-1", 1}, {"small-2", 1}});
  history.add(SeatFailed{job, 1, n(2), {elastic::Failure{}}});
  EXPECT_EQ(history.job(job).restarts.failures.size(), 2u) << "the other seat of the failed round";
  history.add(SeatDone{job, 1, n(1)});
  EXPECT_TRUE(history.job(job).done.empty());
}

TEST(Apply, AJobEndsOnce) {
  History history = with_nodes(1);
  const JobId job = history.running(job_of(1, 1), {{"small-1", 1}});
  history.add(JobEnded{job, JobResult::kSucceeded, ""});
  const std::string before = encode_snapshot(history.state);
  for (const Event& event : {Event(JobEnded{job, JobResult::kFailed, ""}), Event(JobStopping{job, false, ""}),
                             Event(JobHeld{job, {}}), Event(SeatVacated{job, n(1)})}) {
    State copy = history.state;
    apply(copy, Record{history.state.offset, history.now, event});
    EXPECT_EQ(encode_snapshot(copy), before) << describe(event);
  }
  EXPECT_EQ(history.state.jobs_on.count(n(1)), 0u);
}

TEST(Apply, ForgetsTheOldestEndedJobs) {
  History history;
  const JobId first{"first"};
  history.add(JobSubmitted{first, job_of(1, 1), "request", ""});
  history.add(JobEnded{first, JobResult::kStopped, ""});
  EXPECT_EQ(history.state.requests.size(), 1u);
  for (size_t i = 0; i < kEndedMax; ++i) history.add(JobEnded{history.submit(1, 1), JobResult::kStopped, ""});
  EXPECT_EQ(history.state.ended_jobs.size(), kEndedMax);
  EXPECT_FALSE(history.state.jobs.contains(first));
  EXPECT_TRUE(history.state.requests.empty());
}

TEST(Apply, RecordsOfUnknownThingsChangeNothing) {
  History history;
  history.configure({});
  State state = history.state;
  for (const Event& event :
       {Event(NodeCreated{n(9)}), Event(NodeLost{n(9), ""}), Event(NodeGone{n(9)}), Event(NodeDraining{n(9), ""}),
        Event(History::joined(n(9), "a", cpus(1))), Event(JobHeld{JobId{"x"}, {}}), Event(JobStarted{JobId{"x"}})})
    apply(state, Record{state.offset, history.now, event});
  EXPECT_TRUE(state.nodes.empty() && state.jobs.empty());
}

TEST(Apply, TimeNeverGoesBack) {
  History history;
  history.add(ShutdownRequested{});
  apply(history.state, Record{2, kTestStart - 1h, JobSubmitted{JobId{"j"}, job_of(1, 1), "", ""}});
  EXPECT_EQ(history.state.time, kTestStart);
  EXPECT_EQ(history.state.jobs.at(JobId{"j"}).submitted, kTestStart);
}

// Two nodes with disks of their own, and one that sees the head's.
History three_disks() {
  History history;
  history.configure({node_type("n", cpus(4), 3, 4)});
  history.nodes_up("n", 3);
  for (const char* node : {"n-2", "n-3"}) {
    NodeJoined joined = History::joined(NodeId{node}, std::string("agent-") + node, cpus(4));
    joined.own_disk = true;
    history.add(joined);
  }
  return history;
}

Output::Phase phase_of(const History& history, const JobId& job, const char* node) {
  return history.job(job).outputs.at(NodeId{node}).phase;
}

TEST(Outputs, AreHeldByNodesWithDisksOfTheirOwn) {
  History history = three_disks();
  const JobId job = history.running(job_of(4, 4), {{"n-1", 1}, {"n-3", 2}, {"n-2", 1}});
  EXPECT_EQ(history.job(job).outputs.size(), 2u);
  EXPECT_EQ(history.job(job).outputs.at(NodeId{"n-3"}).rank, 1);
  EXPECT_EQ(history.job(job).outputs.at(NodeId{"n-2"}).rank, 3);
  EXPECT_EQ(history.job(job).output_here_generation, 1u);
  EXPECT_EQ(history.job(job).output_here_rank, 0);
  EXPECT_TRUE(history.state.outputs_on.at(NodeId{"n-2"}).contains(job));

  history.add(JobEnded{job, JobResult::kSucceeded, ""});
  history.add(OutputKept{job, NodeId{"n-2"}, 1, 3, 100});
  EXPECT_EQ(phase_of(history, job, "n-2"), Output::Phase::kKept);
  EXPECT_FALSE(history.state.outputs_on.contains(NodeId{"n-2"})) << "nothing is left to forget";
  history.add(OutputMissing{job, NodeId{"n-3"}, "no room"});
  EXPECT_EQ(phase_of(history, job, "n-3"), Output::Phase::kMissing);
  EXPECT_TRUE(history.state.outputs_on.contains(NodeId{"n-3"})) << "it is tried again";
  history.add(OutputKept{job, NodeId{"n-3"}, 1, 0, 0});
  EXPECT_EQ(phase_of(history, job, "n-3"), Output::Phase::kKept);
  EXPECT_TRUE(history.state.outputs_on.empty());
}

TEST(Outputs, OfAJobThatComesBackAreHeldAgain) {
  History history = three_disks();
  const JobId job = history.running(job_of(1, 4), {{"n-2", 1}});
  history.place(job, {{"n-3", 1}});
  history.add(SeatVacated{job, NodeId{"n-2"}});
  history.add(OutputKept{job, NodeId{"n-2"}, 1, 1, 1});
  EXPECT_TRUE(history.state.outputs_on.contains(NodeId{"n-2"})) << "the job may come back";
  history.start(job);
  history.run(job, {{"n-2", 1}});
  EXPECT_EQ(phase_of(history, job, "n-2"), Output::Phase::kHeld);
  history.add(OutputKept{job, NodeId{"n-2"}, 1, 1, 1});
  EXPECT_EQ(phase_of(history, job, "n-2"), Output::Phase::kHeld) << "that was of before";
}

TEST(Outputs, OfANodeThatIsGoneAreMissingUntilTheyComeAfterAll) {
  History history = three_disks();
  const JobId job = history.running(job_of(1, 4), {{"n-2", 1}});
  history.add(JobEnded{job, JobResult::kSucceeded, ""});
  history.add(NodeLost{NodeId{"n-2"}, "silent"});
  EXPECT_EQ(phase_of(history, job, "n-2"), Output::Phase::kHeld) << "it may be salvaged";
  history.add(NodeRemoving{NodeId{"n-2"}, "silent"});
  history.add(NodeGone{NodeId{"n-2"}});
  EXPECT_EQ(phase_of(history, job, "n-2"), Output::Phase::kMissing);
  EXPECT_EQ(history.job(job).outputs.at(NodeId{"n-2"}).reason, "the node is gone: silent");
  EXPECT_TRUE(history.state.outputs_on.empty());
  history.add(OutputKept{job, NodeId{"n-2"}, 1, 1, 1});
  EXPECT_EQ(phase_of(history, job, "n-2"), Output::Phase::kKept);
  EXPECT_TRUE(history.state.outputs_on.empty());
  for (size_t i = 0; i < kEndedMax; ++i) history.add(JobEnded{history.submit(1, 1), JobResult::kStopped, ""});
  EXPECT_FALSE(history.state.jobs.contains(job));
}

TEST(FindJob, TakesIdsPrefixesAndTheNewestOfAName) {
  History history;
  const JobId first = history.submit(1, 1);
  history.pass(1s);
  const JobId second = history.submit(1, 1);
  EXPECT_EQ(find_job(history.state, "j-00000001").id, first);
  EXPECT_EQ(find_job(history.state, "00000002").id, second);
  EXPECT_EQ(find_job(history.state, "train").id, second);
  EXPECT_THROW(find_job(history.state, "j-0"), Error);
  EXPECT_THROW(find_job(history.state, "other"), Error);
}

}  // namespace
}  // namespace rubato::cluster

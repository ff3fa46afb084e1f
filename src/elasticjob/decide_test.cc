#include "elasticjob/decide.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/timestamp.h"

namespace rubato::elasticjob {
namespace {

const WallTime kStart = *parse_time("2026-11-16T12:00:00Z");

WallTime after(Duration wait) { return kStart + std::chrono::duration_cast<std::chrono::microseconds>(wait); }

Job job_of(int least, int wanted, int most) {
  Job job;
  job.name = {"team", "mnist"};
  job.uid = "job-uid";
  job.generation = 1;
  job.min_replicas = least;
  job.replicas = wanted;
  job.max_replicas = most;
  return job;
}

Pod pod_of(const Job& job, int index, PodPhase phase) {
  Pod pod;
  pod.name = worker_name(job, index);
  pod.uid = "uid-" + std::to_string(index);
  pod.owner_uid = job.uid;
  pod.job = job.name;
  pod.index = index;
  pod.phase = phase;
  pod.ready = phase == PodPhase::kRunning;
  pod.is_host = index == 0;
  pod.started = kStart - std::chrono::minutes(10);
  return pod;
}

Pod failed_pod(const Job& job, int index, int exit_code) {
  Pod pod = pod_of(job, index, PodPhase::kFailed);
  pod.exit_code = exit_code;
  pod.reason = "Error";
  pod.finished = kStart;
  return pod;
}

std::vector<std::string> removed(const Decision& decision) {
  std::vector<std::string> out;
  for (const RemovePod& one : decision.remove) out.push_back(one.name);
  return out;
}
using Names = std::vector<std::string>;

TEST(ElasticJobDecide, MakesAllWorkersAndOneOfThemOpensTheGroup) {
  const Decision decision = decide(job_of(2, 3, 4), {}, {}, kStart);
  const std::vector<MakePod> expected{{0, 0, true}, {1, 0, false}, {2, 0, false}};
  EXPECT_EQ(decision.make, expected);
  EXPECT_EQ(decision.status.phase, Phase::kPending);
  EXPECT_EQ(decision.status.start_time, "2026-11-16T12:00:00Z");
}

TEST(ElasticJobDecide, ASteadyJobNeedsNothing) {
  Job job = job_of(1, 2, 2);
  const std::vector<Pod> pods{pod_of(job, 0, PodPhase::kRunning), pod_of(job, 1, PodPhase::kRunning)};
  job.status = decide(job, pods, {}, kStart).status;
  EXPECT_EQ(job.status.phase, Phase::kRunning);
  EXPECT_EQ(job.status.ready, 2);
  const Decision again = decide(job, pods, {}, after(1h));
  EXPECT_TRUE(again.make.empty() && again.remove.empty() && !again.again);
  EXPECT_EQ(again.status, job.status);
}

TEST(ElasticJobDecide, ScalesUpAndDownAtTheEnd) {
  Job job = job_of(1, 3, 4);
  const std::vector<Pod> two{pod_of(job, 0, PodPhase::kRunning), pod_of(job, 1, PodPhase::kRunning)};
  const std::vector<MakePod> third{{2, 0, false}};
  EXPECT_EQ(decide(job, two, {}, kStart).make, third);
  job.replicas = 1;
  EXPECT_EQ(removed(decide(job, two, {}, kStart)), Names{"mnist-worker-1"});
}

TEST(ElasticJobDecide, ALostWorkerJoinsTheGroupThatIsThere) {
  const Job job = job_of(1, 2, 2);
  const std::vector<Pod> pods{pod_of(job, 1, PodPhase::kRunning)};
  const std::vector<MakePod> expected{{0, 0, false}};
  EXPECT_EQ(decide(job, pods, {}, kStart).make, expected);
}

TEST(ElasticJobDecide, WhoIsLeftWaitingGetsANewHost) {
  const Job job = job_of(1, 2, 2);
  // Worker 1 never started: it can be in no group.
  const std::vector<Pod> pods{pod_of(job, 1, PodPhase::kPending)};
  const std::vector<MakePod> expected{{0, 0, true}};
  EXPECT_EQ(decide(job, pods, {}, kStart).make, expected);
}

TEST(ElasticJobDecide, StrandedWorkersStartAnew) {
  const Job job = job_of(1, 2, 2);
  Pod zero = pod_of(job, 0, PodPhase::kRunning), one = pod_of(job, 1, PodPhase::kRunning);
  zero.is_host = zero.ready = one.ready = false;
  EXPECT_EQ(removed(decide(job, {zero, one}, {}, kStart)), (Names{"mnist-worker-0", "mnist-worker-1"}));
  one.ready = true;  // one has joined: there is a group
  EXPECT_TRUE(decide(job, {zero, one}, {}, kStart).remove.empty());
  one.ready = false;  // its sidecar is not ready, or its node is not heard of: the group trains all the same
  one.joined = true;
  EXPECT_TRUE(decide(job, {zero, one}, {}, kStart).remove.empty());
}

TEST(ElasticJobDecide, ATerminatingPodKeepsItsNameUntilItIsGone) {
  const Job job = job_of(1, 2, 2);
  std::vector<Pod> pods{pod_of(job, 0, PodPhase::kRunning), pod_of(job, 1, PodPhase::kRunning)};
  pods[1].deleting = true;
  const Decision decision = decide(job, pods, {}, kStart);
  EXPECT_TRUE(decision.make.empty() && decision.remove.empty());
  pods[1].phase = PodPhase::kUnknown;
  EXPECT_EQ(decide(job, pods, {}, kStart).status.block.reason, "NodeLost");
}

TEST(ElasticJobDecide, APodThatItsNodeDoesNotEndIsOnALostNode) {
  const Job job = job_of(1, 2, 2);
  std::vector<Pod> pods{pod_of(job, 0, PodPhase::kRunning), pod_of(job, 1, PodPhase::kRunning)};
  pods[1].deleting = true;
  pods[1].delete_by = after(30s);
  const Decision decision = decide(job, pods, {}, after(31s));
  EXPECT_EQ(decision.status.block, Block{});
  EXPECT_EQ(decision.again, after(60s));
  EXPECT_EQ(decide(job, pods, {}, after(60s)).status.block.reason, "NodeLost");
}

TEST(ElasticJobDecide, APodThatDoesNotStartIsMadeAnewWhenItsTemplateIsMended) {
  Job job = job_of(1, 3, 3);
  job.template_hash = 2;
  std::vector<Pod> pods;
  for (int index = 0; index < 3; ++index) pods.push_back(pod_of(job, index, PodPhase::kPending));
  pods[0].phase = PodPhase::kRunning;
  for (Pod& pod : pods) pod.template_hash = 1;
  pods[2].waiting = {"ImagePullFailed", "no such image"};
  EXPECT_EQ(removed(decide(job, pods, {}, kStart)), Names{worker_name(job, 2)}) << "those that may start stay";
  pods[2].template_hash = 2;
  EXPECT_TRUE(decide(job, pods, {}, kStart).remove.empty()) << "of the same template it waits";
}

TEST(ElasticJobDecide, APodThatAFinalizerKeepsIsNamed) {
  const Job job = job_of(1, 2, 2);
  std::vector<Pod> pods{pod_of(job, 0, PodPhase::kRunning), pod_of(job, 1, PodPhase::kFailed)};
  pods[1].deleting = true;
  pods[1].delete_by = kStart;
  pods[1].held_by = "example.com/audit";
  const Decision decision = decide(job, pods, {}, after(10s));
  EXPECT_EQ(decision.status.block, Block{});
  EXPECT_EQ(decision.again, after(30s));
  const Block block = decide(job, pods, {}, after(30s)).status.block;
  EXPECT_EQ(block.reason, "HeldByFinalizer");
  EXPECT_NE(block.message.find("example.com/audit"), std::string::npos);
}

TEST(ElasticJobDecide, TimesOfPodsAreByOurClock) {
  const Job job = job_of(1, 1, 1);
  Pod before = pod_of(job, 0, PodPhase::kRunning);
  // Of a node whose clock is an hour ahead, and of one that is an hour behind.
  for (const auto skew : {std::chrono::hours(1), std::chrono::hours(-1)}) {
    Pod pod = failed_pod(job, 0, 1);
    pod.started = kStart - std::chrono::minutes(10) + skew;
    pod.finished = kStart + skew;
    settle_times(pod, &before, after(1s), true);
    EXPECT_EQ(pod.started, before.started);
    EXPECT_EQ(pod.finished, after(1s));
    const Decision decision = decide(job, {pod}, {}, after(2s));
    EXPECT_TRUE(decision.remove.empty());
    EXPECT_EQ(decision.again, after(11s));
    // Later news of it change nothing.
    Pod again = failed_pod(job, 0, 1);
    again.finished = kStart + skew;
    settle_times(again, &pod, after(60s), true);
    EXPECT_EQ(again.finished, after(1s));
  }
  // One that nobody saw end: what its node says, but not in the future.
  Pod pod = failed_pod(job, 0, 1);
  settle_times(pod, nullptr, after(1h), true);
  EXPECT_EQ(pod.finished, kStart);
  pod.finished = after(2h);
  settle_times(pod, nullptr, after(1h), true);
  EXPECT_EQ(pod.finished, after(1h));
  // Another one of its name, and a container that was started again.
  Pod next = pod_of(job, 0, PodPhase::kRunning);
  next.uid = "another";
  settle_times(next, &before, after(1h), true);
  EXPECT_EQ(next.started, kStart - std::chrono::minutes(10));
  next.uid = before.uid;
  next.restarts = 1;
  settle_times(next, &before, after(1h), true);
  EXPECT_EQ(next.started, after(1h));
  // News that a list brings after a watch was down: which of two came first is as their nodes say.
  Pod listed = failed_pod(job, 0, 1);
  listed.finished = after(30s);
  settle_times(listed, &before, after(1h), false);
  EXPECT_EQ(listed.finished, after(30s));
}

TEST(ElasticJobDecide, APodThatIsDeletedIsNeitherFailureNorSuccess) {
  Job job = job_of(1, 2, 2);
  job.ends_by_exit_code = true;
  for (const int exit_code : {0, 1, 137}) {
    Pod gone = failed_pod(job, 1, exit_code);
    if (exit_code == 0) gone.phase = PodPhase::kSucceeded;
    gone.deleting = true;
    const Decision decision = decide(job, {pod_of(job, 0, PodPhase::kRunning), gone}, {}, after(1s));
    EXPECT_EQ(decision.status.phase, Phase::kRunning) << exit_code;
    EXPECT_EQ(decision.status.failures, 0) << exit_code;
    EXPECT_EQ(decision.status.reason, "Running") << exit_code;
  }
}

TEST(ElasticJobDecide, WhatTheClusterEndedIsNoFailure) {
  const Job job = job_of(1, 1, 1);
  Pod pod = failed_pod(job, 0, 137);
  pod.disrupted = true;
  EXPECT_TRUE(is_excused(pod));
  pod.disrupted = false;
  EXPECT_FALSE(is_excused(pod));
  pod.exit_code.reset();
  for (const char* reason : {"", "OutOfpods", "OutOfnvidia.com/gpu", "Outofcpu", "ContainerStatusUnknown"}) {
    pod.reason = reason;
    EXPECT_TRUE(is_excused(pod)) << reason;
  }
  // After a reboot of its machine, from containerd.
  pod.reason = "Unknown";
  pod.exit_code = 255;
  EXPECT_TRUE(is_excused(pod));
  pod.reason = "Error";
  EXPECT_FALSE(is_excused(pod));
}

TEST(ElasticJobDecide, AHostThatFindsNoNodeDoesNotStrandTheOthers) {
  const Job job = job_of(1, 2, 2);
  Pod host = pod_of(job, 0, PodPhase::kPending), other = pod_of(job, 1, PodPhase::kRunning);
  other.ready = false;
  other.started = kStart;
  EXPECT_TRUE(decide(job, {host, other}, {}, after(120s)).remove.empty());  // its image may still be pulled
  host.created = kStart;
  EXPECT_EQ(decide(job, {host, other}, {}, after(120s)).again, after(15min));
  EXPECT_EQ(removed(decide(job, {host, other}, {}, after(15min))), (Names{"mnist-worker-0", "mnist-worker-1"}));
  host.waiting = {"Unschedulable", "0/3 nodes are available"};
  Decision decision = decide(job, {host, other}, {}, after(1s));
  EXPECT_TRUE(decision.remove.empty());
  EXPECT_EQ(decision.again, after(120s));
  decision = decide(job, {host, other}, {}, after(120s));
  EXPECT_EQ(removed(decision), (Names{"mnist-worker-0", "mnist-worker-1"}));
}

TEST(ElasticJobDecide, ATrainerThatIsDoneIsNotKeptUpByItsSidecar) {
  Job job = job_of(1, 1, 1);
  Pod pod = pod_of(job, 0, PodPhase::kSucceeded);
  pod.finished = kStart;
  pod.lingers = true;
  job.status = decide(job, {pod}, {}, kStart).status;
  EXPECT_EQ(job.status.phase, Phase::kSucceeded);
  EXPECT_EQ(removed(decide(job, {pod}, {}, kStart)), Names{"mnist-worker-0"});
}

TEST(ElasticJobDecide, SaysThatAGroupKeepsTheRangeItWasStartedWith) {
  Job job = job_of(1, 5, 6);
  std::vector<Pod> pods{pod_of(job, 0, PodPhase::kRunning)};
  pods[0].group_min = 1;
  pods[0].group_max = 3;
  EXPECT_EQ(decide(job, pods, {}, kStart).status.block.reason, "RangeChanged");
  job.replicas = 3;
  EXPECT_EQ(decide(job, pods, {}, kStart).status.block, Block{});
  job.range_note = "9 workers are asked for";
  EXPECT_EQ(decide(job, pods, {}, kStart).status.block.reason, "ReplicasOutOfRange");
}

TEST(ElasticJobDecide, AFailedPodIsCountedOnceAndReplacedAfterABackOff) {
  Job job = job_of(1, 2, 2);
  const std::vector<Pod> pods{pod_of(job, 0, PodPhase::kRunning), failed_pod(job, 1, 1)};
  Decision decision = decide(job, pods, {}, after(1s));
  EXPECT_TRUE(decision.remove.empty());
  EXPECT_EQ(decision.status.failures, 1);
  EXPECT_EQ(decision.again, after(10s));
  job.status = decision.status;
  decision = decide(job, pods, {}, after(10s));
  EXPECT_EQ(decision.status.failures, 1);
  EXPECT_EQ(removed(decision), Names{"mnist-worker-1"});
  job.status = decision.status;
  const std::vector<MakePod> expected{{1, 1, false}};
  EXPECT_EQ(decide(job, {pods[0]}, {}, after(11s)).make, expected);
}

TEST(ElasticJobDecide, AWholeGroupThatFailedIsOneFailure) {
  const Job job = job_of(1, 2, 2);
  const std::vector<Pod> pods{failed_pod(job, 0, 1), failed_pod(job, 1, 1)};
  const Decision decision = decide(job, pods, {}, after(1s));
  EXPECT_EQ(decision.status.failures, 1);
  EXPECT_EQ(decision.status.phase, Phase::kRestarting);
}

TEST(ElasticJobDecide, FailsWhenItsBudgetIsSpentAndKeepsTheFailedPod) {
  Job job = job_of(1, 2, 2);
  job.backoff_limit = 1;
  Pod bad = failed_pod(job, 1, 3);
  bad.attempt = 1;
  const std::vector<Pod> pods{pod_of(job, 0, PodPhase::kRunning), bad};
  Decision decision = decide(job, pods, {}, after(1s));
  EXPECT_EQ(decision.status.phase, Phase::kFailed);
  EXPECT_EQ(decision.status.reason, "BackoffLimitExceeded");
  EXPECT_TRUE(decision.remove.empty());  // the end is written down first
  job.status = decision.status;
  decision = decide(job, pods, {}, after(2s));
  EXPECT_EQ(removed(decision), Names{"mnist-worker-0"});
  EXPECT_EQ(decision.status, job.status.phase == Phase::kFailed ? decision.status : Status{});
}

TEST(ElasticJobDecide, EvictionsAndExitCode143AreNoFailures) {
  const Job job = job_of(1, 2, 2);
  Pod evicted = failed_pod(job, 0, 137);
  evicted.reason = "Evicted";
  const std::vector<Pod> pods{evicted, failed_pod(job, 1, 143)};
  const Decision decision = decide(job, pods, {}, after(1s));
  EXPECT_EQ(decision.status.failures, 0);
  EXPECT_EQ(removed(decision), (Names{"mnist-worker-0", "mnist-worker-1"}));
}

TEST(ElasticJobDecide, SucceedsWhenTheGroupIsDone) {
  Job job = job_of(1, 3, 3);
  Pod done = pod_of(job, 0, PodPhase::kSucceeded);
  done.finished = kStart;
  std::vector<Pod> pods{done, pod_of(job, 1, PodPhase::kRunning), pod_of(job, 2, PodPhase::kPending)};
  Decision decision = decide(job, pods, {}, after(1s));
  EXPECT_EQ(decision.status.phase, Phase::kRunning);
  EXPECT_EQ(removed(decision), Names{"mnist-worker-2"});  // it was never in
  EXPECT_TRUE(decision.make.empty());
  decision = decide(job, {done}, {}, after(2s));
  EXPECT_EQ(decision.status.phase, Phase::kSucceeded);
  EXPECT_EQ(decision.status.completion_time, "2026-11-16T12:00:02Z");
}

// As Kubeflow counts them.
TEST(ElasticJobDecide, RestartsByTheKubeletCountWhereOthersLaunch) {
  Job job = job_of(1, 2, 2);
  job.backoff_limit = 3;
  std::vector<Pod> pods{pod_of(job, 0, PodPhase::kRunning), pod_of(job, 1, PodPhase::kRunning)};
  pods[0].restarts = 2;
  pods[1].restarts = 1;
  EXPECT_EQ(decide(job, pods, {}, kStart).status.phase, Phase::kRunning);  // a sidecar's own business
  job.launch = Launch::kAsIs;
  const Status status = decide(job, pods, {}, kStart).status;
  EXPECT_EQ(status.reason, "BackoffLimitExceeded");
  EXPECT_NE(status.message.find("restarted 3 times"), std::string::npos) << status.message;
  pods[1].deleting = true;
  EXPECT_EQ(decide(job, pods, {}, kStart).status.phase, Phase::kRunning);
  job.backoff_limit = 0;
  pods[0].restarts = 0;
  EXPECT_EQ(decide(job, pods, {}, kStart).status.phase, Phase::kRunning);
}

// torchrun's agents wait five minutes for each other and leave then, and whoever evaluates goes on.
TEST(ElasticJobDecide, ALauncherOfOthersThatStillWorksIsWaitedFor) {
  Job job = job_of(1, 3, 3);
  Pod done = pod_of(job, 1, PodPhase::kSucceeded);
  done.finished = kStart;
  const Pod works = pod_of(job, 0, PodPhase::kRunning);
  Pod alone = pod_of(job, 2, PodPhase::kRunning);  // it was started again, and finds nobody
  alone.started = after(30s);
  EXPECT_EQ(removed(decide(job, {works, done, alone}, {}, after(10min))), (Names{"mnist-worker-0", "mnist-worker-2"}));
  job.launch = Launch::kAsIs;
  const Decision decision = decide(job, {works, done, alone}, {}, after(10min));
  EXPECT_EQ(removed(decision), Names{"mnist-worker-2"});
  EXPECT_FALSE(decision.again);
  EXPECT_EQ(decision.status.phase, Phase::kRunning);
}

TEST(ElasticJobDecide, IsDeletedWhenItsTimeAfterTheEndIsOver) {
  Job job = job_of(1, 1, 1);
  job.ttl_s = 60;
  job.status.phase = Phase::kSucceeded;
  job.status.completion_time = "2026-11-16T12:00:00Z";
  EXPECT_EQ(decide(job, {}, {}, after(1s)).again, after(60s));
  EXPECT_TRUE(decide(job, {}, {}, after(60s)).remove_job);
}

TEST(ElasticJobDecide, ASuspendedJobHasNoPods) {
  Job job = job_of(1, 1, 1);
  job.suspended = true;
  const Decision decision = decide(job, {pod_of(job, 0, PodPhase::kRunning)}, {}, kStart);
  EXPECT_EQ(removed(decision), Names{"mnist-worker-0"});
  EXPECT_EQ(decision.status.phase, Phase::kSuspended);
  EXPECT_EQ(decision.status.start_time, "");
  EXPECT_TRUE(decide(job, {}, {}, kStart).make.empty());
}

TEST(ElasticJobDecide, EndsAtItsDeadline) {
  Job job = job_of(1, 1, 1);
  job.active_deadline_s = 100;
  job.status.start_time = "2026-11-16T12:00:00Z";
  const std::vector<Pod> pods{pod_of(job, 0, PodPhase::kRunning)};
  EXPECT_EQ(decide(job, pods, {}, after(1s)).again, after(100s));
  EXPECT_EQ(decide(job, pods, {}, after(100s)).status.reason, "DeadlineExceeded");
}

TEST(ElasticJobDecide, SaysWhyItDoesNotGetOn) {
  const Job job = job_of(1, 1, 1);
  Pod pod = pod_of(job, 0, PodPhase::kPending);
  pod.waiting = {"ImagePullFailed", "pod mnist-worker-0: no such image"};
  EXPECT_EQ(decide(job, {pod}, {}, kStart).status.block, pod.waiting);
  Trouble trouble;
  trouble.block = {"QuotaExceeded", "exceeded quota"};
  EXPECT_EQ(decide(job, {}, trouble, kStart).status.block, trouble.block);
  EXPECT_EQ(decide(job, {}, {}, kStart).status.block, Block{});
}

TEST(ElasticJobDecide, APodOfAnEarlierJobOfTheNameIsWaitedFor) {
  const Job job = job_of(1, 1, 1);
  Pod old = pod_of(job, 0, PodPhase::kRunning);
  old.owner_uid = "another-uid";
  const Decision decision = decide(job, {old}, {}, kStart);
  EXPECT_TRUE(decision.make.empty() && decision.remove.empty());
  EXPECT_EQ(decision.status.block.reason, "NameTaken");
}

Job rigid_job(int replicas, int groups) {
  Job job = job_of(replicas, replicas, 4);
  job.is_rigid = true;
  job.launch = Launch::kAsIs;
  job.status.groups = groups;
  return job;
}

Pod rigid_pod(const Job& job, int index, PodPhase phase, int group, int size) {
  Pod pod = pod_of(job, index, phase);
  pod.group = group;
  pod.group_size = size;
  return pod;
}

TEST(RigidJob, EndsAsAWholeWhenItsSizeChangesAndStartsWhenTheLastPodIsGone) {
  const Job job = rigid_job(3, 1);
  std::vector<Pod> pods{rigid_pod(job, 0, PodPhase::kRunning, 0, 2), rigid_pod(job, 1, PodPhase::kRunning, 0, 2)};
  Decision decision = decide(job, pods, {}, kStart);
  EXPECT_EQ(removed(decision), (Names{"mnist-worker-0", "mnist-worker-1"}));
  EXPECT_TRUE(decision.make.empty());
  pods.pop_back();
  pods[0].deleting = true;
  EXPECT_TRUE(decide(job, pods, {}, kStart).make.empty());
  decision = decide(job, {}, {}, kStart);
  EXPECT_EQ(decision.status.groups, 2);
  ASSERT_EQ(decision.make.size(), 3u);
  EXPECT_EQ(decision.make[2].group, 1);
}

TEST(RigidJob, ALostPodEndsItsGroupAndAnIntactOneStays) {
  const Job job = rigid_job(2, 1);
  const Pod zero = rigid_pod(job, 0, PodPhase::kRunning, 0, 2), one = rigid_pod(job, 1, PodPhase::kRunning, 0, 2);
  EXPECT_TRUE(decide(job, {zero, one}, {}, kStart).remove.empty());
  EXPECT_EQ(removed(decide(job, {zero}, {}, kStart)), Names{"mnist-worker-0"});
  // The operator died while it made them: the one that waits gets its peer.
  Pod waiting = zero;
  waiting.phase = PodPhase::kPending;
  const std::vector<MakePod> peer{{1, 0, false, 0}};
  EXPECT_EQ(decide(job, {waiting}, {}, kStart).make, peer);
}

TEST(RigidJob, AGroupThatTheServerRefusesKeepsItsNumberAndItsPods) {
  Job job = rigid_job(2, 1);
  Trouble refused;
  refused.block = {"QuotaExceeded", "exceeded quota"};
  Decision decision = decide(job, {}, refused, kStart);
  EXPECT_EQ(decision.status.groups, 1);
  ASSERT_EQ(decision.make.size(), 2u);
  EXPECT_EQ(decision.make[0].group, 0);
  // One of them got in, and runs: it waits for the other.
  decision = decide(job, {rigid_pod(job, 0, PodPhase::kRunning, 0, 2)}, refused, kStart);
  EXPECT_TRUE(decision.remove.empty());
  const std::vector<MakePod> peer{{1, 0, false, 0}};
  EXPECT_EQ(decision.make, peer);
}

TEST(RigidJob, SucceedsWhenAllOfItsGroupHave) {
  const Job job = rigid_job(2, 1);
  Pod zero = rigid_pod(job, 0, PodPhase::kRunning, 0, 2), one = rigid_pod(job, 1, PodPhase::kSucceeded, 0, 2);
  one.finished = kStart;
  // Rank 0 saves its model, however long it takes.
  const Decision decision = decide(job, {zero, one}, {}, after(1h));
  EXPECT_TRUE(decision.remove.empty() && decision.make.empty() && !decision.again);
  EXPECT_EQ(decision.status.reason, "Finishing");
  zero.phase = PodPhase::kSucceeded;
  EXPECT_EQ(decide(job, {zero, one}, {}, after(1h)).status.phase, Phase::kSucceeded);
}

TEST(RigidJob, IsMadeAnewWhenOneIsLostAfterOthersHaveEnded) {
  const Job job = rigid_job(2, 1);
  Pod one = rigid_pod(job, 1, PodPhase::kSucceeded, 0, 2);
  one.finished = kStart;
  // Evicted, deleted, gone.
  Pod zero = failed_pod(job, 0, 143);
  zero.group_size = 2;
  EXPECT_EQ(removed(decide(job, {zero, one}, {}, after(1min))), (Names{"mnist-worker-1", "mnist-worker-0"}));
  EXPECT_EQ(removed(decide(job, {one}, {}, after(1min))), Names{"mnist-worker-1"});
  zero.deleting = one.deleting = true;
  EXPECT_EQ(decide(job, {zero, one}, {}, after(1min)).status.phase, Phase::kPending);
  EXPECT_EQ(decide(job, {}, {}, after(1min)).make.size(), 2u);
}

TEST(NoticeOfANode, APodOnANodeThatGoesIsMovedAtOnce) {
  const Job job = job_of(2, 2, 2);
  std::vector<Pod> pods{pod_of(job, 0, PodPhase::kRunning), pod_of(job, 1, PodPhase::kRunning)};
  pods[1].notice = {Notice::kGoing, "karpenter.sh/disrupted"};
  const Decision decision = decide(job, pods, {}, kStart);
  EXPECT_EQ(removed(decision), Names{"mnist-worker-1"});
  EXPECT_EQ(decision.remove[0].reason, "notice: its node is about to go: karpenter.sh/disrupted");
  EXPECT_TRUE(decision.make.empty());
}

TEST(NoticeOfANode, PodsOnCordonedNodesMoveOneByOneWhileTheJobCanSpareOne) {
  Job job = job_of(1, 3, 3);
  std::vector<Pod> pods;
  for (int index = 0; index < 3; ++index) pods.push_back(pod_of(job, index, PodPhase::kRunning));
  pods[1].notice = pods[2].notice = {Notice::kCordoned, "node.kubernetes.io/unschedulable"};
  EXPECT_EQ(removed(decide(job, pods, {}, kStart)), Names{"mnist-worker-1"});
  pods[1].deleting = true;
  EXPECT_TRUE(decide(job, pods, {}, kStart).remove.empty());
  // It needs all of them: whoever drains the node decides.
  pods[1].deleting = false;
  job.min_replicas = 3;
  EXPECT_TRUE(decide(job, pods, {}, kStart).remove.empty());
}

TEST(NoticeOfANode, ARigidGroupLeavesAsAWhole) {
  const Job job = rigid_job(2, 1);
  Pod zero = rigid_pod(job, 0, PodPhase::kRunning, 0, 2), one = rigid_pod(job, 1, PodPhase::kRunning, 0, 2);
  one.notice = {Notice::kGoing, "ToBeDeletedByClusterAutoscaler"};
  EXPECT_EQ(removed(decide(job, {zero, one}, {}, kStart)), (Names{"mnist-worker-0", "mnist-worker-1"}));
}

// ---- What holds whatever happens. ----

rc::Gen<Pod> any_pod(const Job& job, int index) {
  return rc::gen::apply(
      [job, index](int phase, int exit_code, bool deleting, bool ready, bool host, int attempt) {
        Pod pod = pod_of(job, index, static_cast<PodPhase>(phase));
        pod.deleting = deleting;
        pod.ready = ready && pod.phase == PodPhase::kRunning;
        pod.is_host = host;
        pod.attempt = attempt;
        if (pod.ended()) pod.finished = kStart;
        if (pod.phase == PodPhase::kFailed) pod.exit_code = exit_code;
        return pod;
      },
      rc::gen::inRange(0, 5), rc::gen::element(1, 137, 143), rc::gen::arbitrary<bool>(), rc::gen::arbitrary<bool>(),
      rc::gen::arbitrary<bool>(), rc::gen::inRange(0, 4));
}

RC_GTEST_PROP(ElasticJobDecideProperty, NeverTwoHostsAndNeverTwoPodsOfAName, ()) {
  Job job = job_of(1, *rc::gen::inRange(1, 6), 6);
  job.status.failures = *rc::gen::inRange(0, 4);
  std::vector<Pod> pods;
  for (int index = 0; index < 6; ++index) {
    if (*rc::gen::arbitrary<bool>()) pods.push_back(*any_pod(job, index));
  }
  const Decision decision = decide(job, pods, {}, after(std::chrono::seconds(*rc::gen::inRange(0, 400))));
  int hosts = 0;
  bool may_be_in_a_group = false;
  for (const Pod& pod : pods) may_be_in_a_group = may_be_in_a_group || pod.phase == PodPhase::kRunning;
  for (const MakePod& made : decision.make) {
    hosts += made.is_host ? 1 : 0;
    for (const Pod& pod : pods) RC_ASSERT(pod.index != made.index);
    RC_ASSERT(made.index < job.replicas);
  }
  RC_ASSERT(hosts <= (may_be_in_a_group ? 0 : 1));
  for (const RemovePod& gone : decision.remove) {
    for (const Pod& pod : pods) RC_ASSERT(pod.name != gone.name || !pod.deleting);
  }
  RC_ASSERT(decision.status.failures >= job.status.failures);
  // A failed pod that counts is not deleted before its failure is in the status that is written first.
  for (const Pod& pod : pods) {
    if (pod.phase == PodPhase::kFailed && !is_excused(pod)) RC_ASSERT(decision.status.failures > pod.attempt);
  }
}

RC_GTEST_PROP(ElasticJobDecideProperty, WhatIsBeingDeletedDecidesNothing, ()) {
  Job job = job_of(1, *rc::gen::inRange(1, 6), 6);
  job.ends_by_exit_code = *rc::gen::arbitrary<bool>();
  job.backoff_limit = *rc::gen::inRange(0, 3);
  std::vector<Pod> pods;
  for (int index = 0; index < 6; ++index) {
    if (*rc::gen::arbitrary<bool>()) pods.push_back(*any_pod(job, index));
    if (!pods.empty()) pods.back().deleting = true;
  }
  const Decision decision = decide(job, pods, {}, after(std::chrono::seconds(*rc::gen::inRange(0, 400))));
  RC_ASSERT(!is_final(decision.status.phase));
  RC_ASSERT(decision.status.failures == 0);
  RC_ASSERT(decision.remove.empty());
}

}  // namespace
}  // namespace rubato::elasticjob

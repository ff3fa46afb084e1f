#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/timestamp.h"
#include "core/yaml.h"
#include "elasticjob/decide.h"
#include "elasticjob/manifest.h"
#include "model/yaml_value.h"

namespace rubato::elasticjob {
namespace {

using nlohmann::json;

json document_of(const std::string& yaml) { return json::parse(value_of(Yaml::parse(yaml, "pod.yaml")).dump()); }

constexpr const char* kJob = R"(
apiVersion: rubato.dev/v1
kind: ElasticJob
metadata: {name: mnist, namespace: team, uid: u-1, generation: 3, resourceVersion: "17"}
spec: {minReplicas: 2, maxReplicas: 4, template: {spec: {containers: [{name: trainer, command: [python, train.py]}]}}}
)";

TEST(PodManifest, ReadsWhyAPodDoesNotStart) {
  const Pod pod = read_pod(document_of(R"(
metadata: {name: a-worker-0, labels: {rubato.dev/worker-index: "0"}}
status:
  phase: Pending
  containerStatuses: [{name: t, state: {waiting: {reason: ImagePullBackOff, message: "Back-off pulling x"}}}]
)"));
  EXPECT_EQ(pod.waiting.reason, "ImagePullFailed");
  EXPECT_NE(pod.waiting.message.find("Back-off pulling x"), std::string::npos);
  const Pod unscheduled = read_pod(document_of(R"(
metadata: {name: a-worker-0}
status:
  phase: Pending
  conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: 0/3 nodes are available}]
)"));
  EXPECT_EQ(unscheduled.waiting.reason, "Unschedulable");
  // As Kueue admits pods one group after the other.
  const Pod gated = read_pod(document_of(R"(
metadata: {name: a-worker-0}
status:
  phase: Pending
  conditions: [{type: PodScheduled, status: "False", reason: SchedulingGated, message: Scheduling is blocked}]
)"));
  EXPECT_EQ(gated.waiting.reason, "SchedulingGated");
}

// A program that is not in the image; and what a container leaves in its termination log.
// As a server of 1.34 has it: a native sidecar, a resize that is not possible, conditions with generations.
TEST(PodManifest, ReadsAPodOfANewServer) {
  const json pod = document_of(R"(
metadata:
  name: mnist-worker-1
  namespace: team
  uid: p-1
  generation: 2
  resourceVersion: "981233"
  creationTimestamp: "2026-11-16T12:00:00Z"
  labels: {rubato.dev/job: mnist, rubato.dev/job-kind: elasticjobs.rubato.dev, rubato.dev/worker-index: "1"}
  annotations: {rubato.dev/container: trainer}
  ownerReferences: [{apiVersion: rubato.dev/v1, kind: ElasticJob, name: mnist, uid: u-1, controller: true}]
spec:
  nodeName: n1
  restartPolicy: Never
  resources: {limits: {cpu: "2"}}
  initContainers:
  - {name: rubato-launcher, image: rubato}
  - {name: mesh, image: proxy, restartPolicy: Always}
  containers: [{name: trainer, image: pytorch, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]}]
status:
  observedGeneration: 2
  phase: Running
  qosClass: Burstable
  podIP: 10.0.0.7
  podIPs: [{ip: 10.0.0.7}, {ip: "fd00::7"}]
  hostIPs: [{ip: 192.168.1.4}]
  startTime: "2026-11-16T12:00:02Z"
  conditions:
  - {type: PodReadyToStartContainers, status: "True", observedGeneration: 2}
  - {type: Initialized, status: "True", observedGeneration: 2}
  - {type: Ready, status: "True", observedGeneration: 2}
  - {type: ContainersReady, status: "True", observedGeneration: 2}
  - {type: PodScheduled, status: "True", observedGeneration: 2}
  - {type: PodResizePending, status: "True", reason: Infeasible, message: "Node didn't have enough capacity: cpu"}
  initContainerStatuses:
  - {name: rubato-launcher, ready: true, started: false, restartCount: 0, state: {terminated: {exitCode: 0}}}
  - {name: mesh, ready: true, started: true, restartCount: 3, state: {running: {startedAt: "2026-11-16T12:00:09Z"}},
     lastState: {terminated: {exitCode: 1, reason: Error}}}
  containerStatuses:
  - {name: trainer, ready: true, started: true, restartCount: 0, allocatedResources: {cpu: "1"},
     resources: {limits: {cpu: "1"}}, state: {running: {startedAt: "2026-11-16T12:00:10Z"}}}
)");
  Pod read = read_pod(pod);
  EXPECT_EQ(read.phase, PodPhase::kRunning);
  EXPECT_TRUE(read.ready && read.joined && !read.disrupted && read.waiting.reason.empty());
  EXPECT_EQ(read.started, parse_time("2026-11-16T12:00:10Z"));
  EXPECT_EQ(read.seen_version, 981'233u);
  // The trainer is done; the kubelet ends the sidecar after it.
  json ended = pod;
  ended["status"]["containerStatuses"][0]["state"] = {{"terminated", {{"exitCode", 0}, {"reason", "Completed"}}}};
  read = read_pod(ended);
  EXPECT_EQ(read.phase, PodPhase::kSucceeded);
  EXPECT_TRUE(read.lingers);
  // It is preempted: Failed before its object goes, with a grace of its own.
  json preempted = pod;
  preempted["metadata"]["deletionTimestamp"] = "2026-11-16T13:00:30Z";
  preempted["metadata"]["finalizers"] = {"kueue.x-k8s.io/managed"};
  preempted["status"]["phase"] = "Failed";
  preempted["status"]["conditions"].push_back(
      {{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "PreemptionByScheduler"}});
  read = read_pod(preempted);
  EXPECT_TRUE(read.disrupted && is_excused(read));
  EXPECT_EQ(read.held_by, "kueue.x-k8s.io/managed");
}

TEST(PodManifest, WhatIsToldOfAnEndIsInTheFailure) {
  Job job = read_job(Kind::kElasticJob, document_of(kJob));
  job.backoff_limit = 0;
  Pod pod = read_pod(document_of(R"(
metadata: {name: mnist-worker-0, labels: {rubato.dev/worker-index: "0"}}
status:
  phase: Failed
  containerStatuses:
  - name: trainer
    state: {terminated: {exitCode: 128, reason: StartError, message: 'exec: "pyhton": executable file not found'}}
)"));
  pod.owner_uid = job.uid;
  const Status status = decide(job, {pod}, {}, *parse_time("2026-11-16T12:00:00Z")).status;
  EXPECT_EQ(status.phase, Phase::kFailed);
  EXPECT_NE(status.message.find("StartError (exit code 128): exec: \"pyhton\""), std::string::npos) << status.message;
}

TEST(PodManifest, ALongMessageIsNotCutWithinACharacter) {
  std::string message = "x";
  for (int i = 0; i < 1000; ++i) message += "é";
  json document = document_of("{metadata: {name: a-worker-0}, status: {phase: Pending}}");
  document["status"]["conditions"] =
      json::array({{{"type", "PodScheduled"}, {"status", "False"}, {"reason", "Unschedulable"}, {"message", message}}});
  const std::string told = read_pod(document).waiting.message;
  EXPECT_LT(told.size(), 1100u);
  EXPECT_NO_THROW(json(told).dump());
}

TEST(PodManifest, APodThatNoContainerRanInHasATimeOfItsEnd) {
  const auto end_of = [](const char* status) {
    json document = document_of(status);
    document["metadata"] = {{"name", "a-worker-0"}, {"creationTimestamp", "2026-11-16T12:00:00Z"}};
    return read_pod(document);
  };
  const WallTime made = *parse_time("2026-11-16T12:00:00Z");
  EXPECT_EQ(end_of("status: {phase: Failed}").finished, made);
  EXPECT_EQ(end_of("status: {phase: Failed, reason: OutOfcpu, startTime: '2026-11-16T12:00:01Z'}").finished,
            made + std::chrono::seconds(1));
  const Pod taken = end_of(
      "status: {phase: Failed, conditions: [{type: DisruptionTarget, status: 'True', reason: DeletionByPodGC, "
      "lastTransitionTime: '2026-11-16T12:00:05Z'}]}");
  EXPECT_EQ(taken.finished, made + std::chrono::seconds(5));
  EXPECT_TRUE(taken.disrupted);
  const Pod init = end_of(R"(
status:
  phase: Failed
  initContainerStatuses:
  - name: fetch
    state: {terminated: {exitCode: 3, reason: Error, finishedAt: "2026-11-16T12:00:09Z"}}
  containerStatuses: [{name: t, state: {waiting: {reason: PodInitializing}}}]
)");
  EXPECT_EQ(init.finished, made + std::chrono::seconds(9));
  EXPECT_EQ(init.exit_code, 3);
  EXPECT_FALSE(is_excused(init));
  // So that it is replaced.
  Job job = read_job(Kind::kElasticJob, document_of(kJob));
  Pod failed = init;
  failed.owner_uid = job.uid;
  failed.index = 0;
  const Decision decision = decide(job, {failed}, {}, made + std::chrono::seconds(60));
  ASSERT_EQ(decision.remove.size(), 1u);
}

TEST(PodManifest, ASidecarThatCrashesDoesNotEndAWorkerThatRuns) {
  const Pod pod = read_pod(document_of(R"(
metadata: {name: a-worker-0}
spec: {restartPolicy: Never}
status:
  phase: Running
  initContainerStatuses:
  - name: mesh
    state: {terminated: {exitCode: 1, reason: Error, finishedAt: "2026-11-16T12:00:09Z"}}
  containerStatuses: [{name: t, state: {running: {startedAt: "2026-11-16T12:00:01Z"}}}]
)"));
  EXPECT_EQ(pod.phase, PodPhase::kRunning);
  EXPECT_FALSE(pod.exit_code);
  EXPECT_FALSE(pod.finished);
  EXPECT_EQ(pod.reason, "");
}

TEST(PodManifest, TheContainerThatTrainsIsWhatCounts) {
  json document = document_of(R"(
metadata: {name: a-worker-0, annotations: {rubato.dev/container: trainer}}
spec: {restartPolicy: Never}
status:
  phase: Running
  containerStatuses:
  - {name: sidecar, state: {running: {startedAt: "2026-11-16T11:00:00Z"}}}
  - name: trainer
    state: {terminated: {exitCode: 0, reason: Completed, finishedAt: "2026-11-16T12:01:00Z"}}
)");
  Pod pod = read_pod(document);
  EXPECT_EQ(pod.phase, PodPhase::kSucceeded);
  EXPECT_TRUE(pod.lingers);
  document["status"]["containerStatuses"][1]["state"]["terminated"]["exitCode"] = 4;
  pod = read_pod(document);
  EXPECT_EQ(pod.phase, PodPhase::kFailed);
  EXPECT_EQ(pod.exit_code, 4);
  // The kubelet starts that one again.
  document["spec"]["restartPolicy"] = "OnFailure";
  EXPECT_EQ(read_pod(document).phase, PodPhase::kRunning);
  // A sidecar that fails is not the training's failure, an eviction is no success.
  document["spec"]["restartPolicy"] = "Never";
  document["status"]["phase"] = "Failed";
  document["status"]["containerStatuses"][1]["state"]["terminated"]["exitCode"] = 0;
  document["status"]["containerStatuses"][0]["state"] = {{"terminated", {{"exitCode", 137}}}};
  EXPECT_EQ(read_pod(document).phase, PodPhase::kSucceeded);
  document["status"]["reason"] = "Evicted";
  EXPECT_EQ(read_pod(document).phase, PodPhase::kFailed);
}

TEST(PodManifest, AWorkerThatHasJoinedIsToldFromAPodThatIsReady) {
  json document = document_of(R"(
metadata: {name: a-worker-0, annotations: {rubato.dev/container: trainer}}
status:
  phase: Running
  conditions: [{type: Ready, status: "False", reason: ContainersNotReady}]
  containerStatuses:
  - {name: sidecar, ready: false, state: {running: {startedAt: "2026-11-16T11:00:00Z"}}}
  - {name: trainer, ready: true, restartCount: 2, state: {running: {startedAt: "2026-11-16T11:00:00Z"}}}
)");
  EXPECT_TRUE(read_pod(document).joined && !read_pod(document).ready);
  EXPECT_EQ(read_pod(document).restarts, 2);
  document["status"]["containerStatuses"][1]["ready"] = false;
  EXPECT_FALSE(read_pod(document).joined);
}

TEST(PodManifest, ReadsHowAPodEnded) {
  const Pod pod = read_pod(document_of(R"(
metadata: {name: a-worker-0}
status:
  phase: Failed
  containerStatuses:
  - name: t
    state:
      terminated: {exitCode: 143, reason: Error, startedAt: "2026-11-16T12:00:00Z", finishedAt: "2026-11-16T12:01:00Z"}
)"));
  EXPECT_EQ(pod.exit_code, 143);
  EXPECT_TRUE(is_excused(pod));
  EXPECT_EQ(*pod.finished - *pod.started, std::chrono::seconds(60));
}

}  // namespace
}  // namespace rubato::elasticjob

#include "elasticjob/explain.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/timestamp.h"

namespace rubato::elasticjob {
namespace {

using nlohmann::json;

Job job_of_three() {
  Job job;
  job.name = {"team", "mnist"};
  job.generation = job.status.observed_generation = 2;
  job.min_replicas = 2;
  job.max_replicas = 4;
  job.replicas = 3;
  job.status.ready = 1;
  return job;
}

Pod waiting_pod(const std::string& name, const std::string& reason) {
  Pod pod;
  pod.name = name;
  pod.waiting = {reason, "pod " + name + ": " + reason};
  return pod;
}

TEST(Explain, NamesWhatPodsWaitForOnceAndTheFix) {
  Job job = job_of_three();
  job.status.conditions.push_back({"Blocked", true, "Unschedulable", "pod a: Unschedulable", ""});
  const std::vector<Pod> pods = {waiting_pod("a", "Unschedulable"), waiting_pod("b", "Unschedulable"),
                                 waiting_pod("c", "ImagePullFailed")};
  const api::Why why = explain(job, pods, {});
  EXPECT_EQ(why.subject, "ElasticJob team/mnist");
  EXPECT_EQ(why.phase, "Pending");
  EXPECT_EQ(why.wanted, "workers: 3 (2:4), 1 ready");
  ASSERT_EQ(why.against.size(), 3u);
  EXPECT_EQ(why.against[0].text, "Unschedulable: pod a: Unschedulable");
  ASSERT_EQ(why.changes.size(), 2u);
  EXPECT_NE(why.changes[0].text.find("resources.requests"), std::string::npos);
  EXPECT_NE(why.changes[1].text.find("imagePullSecrets"), std::string::npos);
}

TEST(Explain, AJobThatNoOperatorHasSeen) {
  Job job = job_of_three();
  job.status.observed_generation = 1;
  EXPECT_EQ(explain(job, {}, {}).changes.at(0).text, "an operator runs for its namespace: rubato k8s install");
  job.kind = Kind::kPytorchJob;
  EXPECT_NE(explain(job, {}, {}).changes.at(0).text.find("--adopt pytorchjobs.kubeflow.org"), std::string::npos);
  job.status.phase = Phase::kFailed;
  job.status.reason = "BackoffLimitExceeded";
  job.status.message = "pod mnist-worker-0 failed";
  EXPECT_EQ(explain(job, {}, {}).against.at(0).text, "BackoffLimitExceeded: pod mnist-worker-0 failed");
}

TEST(Explain, EventsAreInTheirOrderTheLastOnes) {
  std::vector<json> events;
  for (int i = 9; i >= 0; --i) {
    events.push_back({{"reason", "Made"},
                      {"message", "pod " + std::to_string(i)},
                      {"lastTimestamp", "2026-01-01T00:00:0" + std::to_string(i) + "Z"}});
  }
  events.push_back({{"reason", "Odd"}, {"message", 7}, {"count", 3}, {"eventTime", "never"}});
  const std::vector<api::Change> told = *explain(job_of_three(), {}, events).history;
  ASSERT_EQ(told.size(), 8u);
  EXPECT_EQ(told.front().text, "Made: pod 2");
  EXPECT_EQ(told.back().text, "Made: pod 9");
  EXPECT_EQ(told.back().when, parse_time("2026-01-01T00:00:09Z"));
}

}  // namespace
}  // namespace rubato::elasticjob

#include "elasticjob/sizing.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/timestamp.h"
#include "elasticjob/decide.h"
#include "elasticjob/manifest.h"
#include "elasticjob/pod_manifest.h"

namespace rubato::elasticjob {
namespace {

using nlohmann::json;

const WallTime kStart = *parse_time("2026-11-16T12:00:00Z");

// `net`: what an exchange costs beside a computation of 1.
JobProfile profile_of(double net, int64_t seen) {
  JobProfile out;
  out.init_batch_size = 128;
  out.max_batch_size = 8192;
  out.local_min = 8;
  out.local_max = 256;
  out.max_profiled_replicas = seen;
  out.gradient = JobProfile::Gradient{0.001, 1};
  out.perf = JobProfile::Perf{0.1, 0.01, net, net / 10, net, net / 10, 1};
  return out;
}

json manifest(int least, int most, int replicas) {
  json container = {{"name", "trainer"}, {"image", "i"}, {"command", {"python", "train.py"}}};
  return {{"metadata", {{"name", "mnist"}, {"namespace", "ml"}, {"uid", "u-1"}, {"annotations", json::object()}}},
          {"spec",
           {{"minReplicas", least},
            {"maxReplicas", most},
            {"replicas", replicas},
            {"adaptive", json::object()},
            {"template", {{"spec", {{"containers", json::array({container})}}}}}}}};
}

void report(json& document, const JobProfile& profile) {
  document["metadata"]["annotations"][kAnnotationHints] = to_json(profile).dump();
}

Job read(const json& document) { return read_job(Kind::kElasticJob, document); }

std::vector<Pod> running_pods(const Job& job) {
  std::vector<Pod> out;
  for (int index = 0; index < job.replicas; ++index) {
    Pod pod;
    pod.name = worker_name(job, index);
    pod.owner_uid = job.uid;
    pod.index = index;
    pod.phase = PodPhase::kRunning;
    pod.ready = true;
    pod.node = "n1";
    pod.created = pod.started = kStart - std::chrono::minutes(10);
    out.push_back(std::move(pod));
  }
  return out;
}

// As the controller does it: decided, written down, read again; `again` is waited for.
int settle(json& document, WallTime now = kStart) {
  for (int turn = 0; turn < 20; ++turn) {
    const Job job = read(document);
    const Sizing sizing = size_job(job, running_pods(job), now);
    if (sizing.again) now = *sizing.again;
    if (sizing.change) document.merge_patch(size_patch(*sizing.change));
    if (!sizing.again && !sizing.change) break;
  }
  return read(document).replicas;
}

TEST(ElasticJobSizing, AJobThatScalesGrowsToItsMost) {
  json document = manifest(1, 8, 1);
  report(document, profile_of(0.001, 4));
  EXPECT_EQ(settle(document), 8);
  const Job job = read(document);
  EXPECT_NE(explain_size(job).find("8 workers in place of"), std::string::npos) << explain_size(job);
  EXPECT_NE(explain_size(job).find("maxReplicas is 8"), std::string::npos) << explain_size(job);
}

TEST(ElasticJobSizing, NobodyKnowsWhatLiesBeyondTwiceWhatWasSeen) {
  json document = manifest(1, 64, 1);
  report(document, profile_of(0.001, 1));
  const Job job = read(document);
  const Sizing sizing = size_job(job, running_pods(job), kStart);
  ASSERT_TRUE(sizing.change);
  EXPECT_EQ(sizing.change->workers, 2);
}

TEST(ElasticJobSizing, AJobThatDoesNotProfitGivesWorkersBack) {
  json document = manifest(1, 8, 8);
  report(document, profile_of(100, 8));
  EXPECT_EQ(settle(document), 1);
}

TEST(ElasticJobSizing, WhatIsDecidedStaysAndIsDecidedOnce) {
  for (const double net : {0.001, 0.05, 0.2, 1.0, 5.0}) {
    json document = manifest(1, 16, 4);
    report(document, profile_of(net, 16));
    const int size = settle(document);
    json drifted = document;
    JobProfile profile = profile_of(net, 16);
    profile.perf->alpha_c *= 1.03;
    profile.gradient->var *= 0.97;
    report(drifted, profile);
    EXPECT_EQ(settle(drifted, kStart + std::chrono::hours(1)), size) << "net " << net;
  }
}

TEST(ElasticJobSizing, ChangesAreSomeRestartsApart) {
  json document = manifest(1, 8, 2);
  JobProfile profile = profile_of(0.001, 1);
  profile.start_s = 20;
  report(document, profile);
  Job job = read(document);
  const Sizing first = size_job(job, running_pods(job), kStart);
  ASSERT_TRUE(first.change);
  document.merge_patch(size_patch(*first.change));
  job = read(document);
  EXPECT_EQ(job.replicas, 4);
  const Sizing second = size_job(job, running_pods(job), kStart + std::chrono::seconds(60));
  EXPECT_FALSE(second.change);
  ASSERT_TRUE(second.again);
  EXPECT_EQ(*second.again, kStart + std::chrono::seconds(150));
  EXPECT_TRUE(size_job(job, running_pods(job), *second.again).change);
}

TEST(ElasticJobSizing, AGroupThatIsNotWholeIsLeftAlone) {
  json document = manifest(1, 8, 2);
  report(document, profile_of(0.001, 4));
  const Job job = read(document);
  std::vector<Pod> pods = running_pods(job);
  pods[1].ready = false;
  EXPECT_FALSE(size_job(job, pods, kStart).change);
  pods.pop_back();
  EXPECT_FALSE(size_job(job, pods, kStart).change);
}

TEST(ElasticJobSizing, WithoutHintsItKeepsItsSizeAndSaysSo) {
  const Job job = read(manifest(1, 8, 3));
  EXPECT_FALSE(size_job(job, running_pods(job), kStart).change);
  EXPECT_NE(explain_size(job).find("no worker has reported hints yet"), std::string::npos);
}

TEST(ElasticJobSizing, WhereThereIsNoRoomItMakesDoAndAsksAgain) {
  json document = manifest(1, 8, 4);
  report(document, profile_of(0.001, 4));
  Job job = read(document);
  std::vector<Pod> pods = running_pods(job);
  pods[3].phase = PodPhase::kPending;
  pods[3].ready = false;
  pods[3].node.clear();
  pods[3].created = kStart;
  pods[3].waiting = {"Unschedulable", "pod mnist-worker-3: 0/2 nodes are available"};
  const Sizing soon = size_job(job, pods, kStart + std::chrono::seconds(10));
  EXPECT_FALSE(soon.change) << "a machine may be on its way";
  ASSERT_TRUE(soon.again);
  const Sizing sizing = size_job(job, pods, *soon.again);
  ASSERT_TRUE(sizing.change);
  EXPECT_EQ(sizing.change->workers, 3);
  EXPECT_NE(sizing.change->reason.find("0/2 nodes are available"), std::string::npos);
  document.merge_patch(size_patch(*sizing.change));
  job = read(document);
  const Sizing later = size_job(job, running_pods(job), *soon.again + std::chrono::minutes(5));
  EXPECT_FALSE(later.change) << "not at once";
  ASSERT_TRUE(later.again);
  EXPECT_TRUE(size_job(job, running_pods(job), *later.again).change);
}

TEST(ElasticJobSizing, SeveralProcessesInAPodAreCounted) {
  json document = manifest(1, 4, 1);
  document["spec"]["nprocPerNode"] = 4;
  report(document, profile_of(0.001, 4));
  const Job job = read(document);
  const Sizing sizing = size_job(job, running_pods(job), kStart);
  ASSERT_TRUE(sizing.change);
  EXPECT_EQ(sizing.change->workers, 2) << "seen with four processes: eight may be tried";
}

TEST(ElasticJobSizing, HintsAndSizesOfOthersAreNoneOfOurs) {
  for (const char* text : {"", "7", "[]", "{\"workers\": \"many\"}", "{\"workers\": -3}", "{\"perfParams\": 5}"}) {
    json document = manifest(2, 8, 3);
    document["metadata"]["annotations"] = {{kAnnotationHints, text}, {kAnnotationSized, text}};
    const Job job = read(document);
    EXPECT_EQ(job.invalid, "");
    EXPECT_EQ(job.replicas, 3) << text;
    EXPECT_FALSE(size_job(job, running_pods(job), kStart).change) << text;
  }
}

TEST(ElasticJobSizing, JobsWithoutAnAdaptivePolicyAreNotSized) {
  json document = manifest(1, 8, 3);
  document["spec"].erase("adaptive");
  report(document, profile_of(0.001, 8));
  const Job job = read(document);
  EXPECT_FALSE(job.adaptive);
  EXPECT_FALSE(size_job(job, running_pods(job), kStart).change);
}

json adaptdl_manifest() {
  json document = manifest(1, 8, 1);
  document["spec"].erase("adaptive");
  document["spec"].erase("replicas");
  return document;
}

TEST(ElasticJobSizing, AnAdaptdlJobIsMadeAnewInItsNewSize) {
  json document = adaptdl_manifest();
  report(document, profile_of(0.001, 2));
  Job job = read_job(Kind::kAdaptdlJob, document);
  EXPECT_EQ(job.replicas, 1);
  job.status.groups = 1;
  std::vector<Pod> pods = running_pods(job);
  pods[0].group_size = 1;
  EXPECT_TRUE(decide(job, pods, {}, kStart).remove.empty());
  const Sizing sizing = size_job(job, pods, kStart);
  ASSERT_TRUE(sizing.change);
  document.merge_patch(size_patch(*sizing.change));
  job = read_job(Kind::kAdaptdlJob, document);
  job.status.groups = 1;
  EXPECT_EQ(job.replicas, 4);
  EXPECT_EQ(decide(job, pods, {}, kStart).remove.size(), 1u) << "the old group ends";
  EXPECT_EQ(decide(job, {}, {}, kStart).make.size(), 4u) << "then the new one comes";
}

TEST(ElasticJobSizing, ASizeThatSomebodyAskedForStays) {
  json document = adaptdl_manifest();
  document["metadata"]["annotations"][kAnnotationReplicas] = "2";
  report(document, profile_of(0.001, 8));
  EXPECT_FALSE(read_job(Kind::kAdaptdlJob, document).adaptive);
  document = adaptdl_manifest();
  document["spec"]["preemptible"] = false;
  EXPECT_FALSE(read_job(Kind::kAdaptdlJob, document).adaptive);
}

TEST(ElasticJobHints, SmallDriftsAreNoNews) {
  const JobProfile before = profile_of(0.1, 4);
  JobProfile after = before;
  EXPECT_FALSE(is_news(before, after));
  after.perf->alpha_c *= 1.05;
  after.gradient->norm *= 1.05;
  EXPECT_FALSE(is_news(before, after));
  after.perf->alpha_c *= 1.2;
  EXPECT_TRUE(is_news(before, after));
  after = before;
  after.max_profiled_replicas = 5;
  EXPECT_TRUE(is_news(before, after));
  after = before;
  after.perf.reset();
  EXPECT_TRUE(is_news(before, after));
}

}  // namespace
}  // namespace rubato::elasticjob

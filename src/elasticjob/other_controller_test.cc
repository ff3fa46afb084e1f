#include "elasticjob/other_controller.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/timestamp.h"
#include "elasticjob/manifest.h"

namespace rubato::elasticjob {
namespace {

using nlohmann::json;

const WallTime kNow = *parse_time("2026-11-16T12:00:00Z");

json wrote(const char* manager, const char* time, const char* what = "f:status") {
  return {{"manager", manager}, {"time", time}, {"fieldsV1", {{what, json::object()}}}};
}

Job job_with(json managers) {
  const json document = {{"metadata", {{"name", "echo"}, {"uid", "u"}, {"managedFields", std::move(managers)}}}};
  return read_job(Kind::kPytorchJob, document);
}

TEST(OtherController, OneThatWritesTheStatusAfterUsOrOfLateRunsTheJob) {
  EXPECT_FALSE(is_run_by_another(job_with(json::array()), kNow));
  EXPECT_FALSE(is_run_by_another(job_with({wrote("kubectl-edit", "2026-11-16T11:59:00Z")}), kNow));
  EXPECT_FALSE(is_run_by_another(job_with({wrote("kueue", "2026-11-16T11:59:00Z", "f:spec")}), kNow));
  const json theirs = wrote("training-operator", "2026-11-16T11:59:00Z");
  const Job job = job_with({theirs});
  EXPECT_EQ(job.other_writer, "training-operator");
  EXPECT_TRUE(is_run_by_another(job, kNow));
  EXPECT_TRUE(is_run_by_another(job_with({wrote("rubato", "2026-11-16T11:58:00Z"), theirs}), kNow));
  // It was taken over from them, or they have been silent for long.
  EXPECT_FALSE(is_run_by_another(job_with({theirs, wrote("rubato", "2026-11-16T11:59:30Z")}), kNow));
  EXPECT_FALSE(is_run_by_another(job, kNow + std::chrono::minutes(10)));
  // That we step aside is written by us, and is no claim.
  EXPECT_TRUE(is_run_by_another(job_with({theirs, wrote(kAsideManager, "2026-11-16T11:59:30Z")}), kNow));
}

TEST(OtherController, APodOfTheJobWithoutOurLabelIsTheirs) {
  const Job job = job_with(json::array());
  json pod = {{"metadata", {{"name", "echo-worker-0"}, {"ownerReferences", {{{"uid", "u"}, {"controller", true}}}}}},
              {"status", {{"phase", "Running"}}}};
  EXPECT_TRUE(is_foreign_pod(job, pod));
  pod["status"]["phase"] = "Failed";
  EXPECT_FALSE(is_foreign_pod(job, pod));
  pod["status"]["phase"] = "Running";
  pod["metadata"]["labels"][kLabelKind] = "pytorchjobs.kubeflow.org";
  EXPECT_FALSE(is_foreign_pod(job, pod));
}

TEST(OtherController, ItsConditionsStayAndOneIsAddedOnce) {
  Job job = job_with(json::array());
  job.status_text = R"({"conditions": [{"type": "Running", "status": "True"}]})";
  job.resource_version = "17";
  const json patch = aside_patch(job, "they run it", kNow);
  EXPECT_EQ(patch["metadata"]["resourceVersion"], "17");
  ASSERT_EQ(patch["status"]["conditions"].size(), 2u);
  EXPECT_EQ(patch["status"]["conditions"][0]["type"], "Running");
  EXPECT_EQ(patch["status"]["conditions"][1]["reason"], kAsideReason);
  EXPECT_TRUE(patch["status"].contains("replicaStatuses")) << "their CRDs demand it";
  job.status_text = R"({"conditions": [], "replicaStatuses": {"Worker": {"active": 1}}})";
  EXPECT_FALSE(aside_patch(job, "they run it", kNow)["status"].contains("replicaStatuses"));
  job.status_text = patch["status"].dump();
  EXPECT_TRUE(aside_patch(job, "they run it", kNow).is_null());
}

}  // namespace
}  // namespace rubato::elasticjob

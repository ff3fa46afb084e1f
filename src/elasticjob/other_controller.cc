#include "elasticjob/other_controller.h"

#include <nlohmann/json.hpp>

#include "core/timestamp.h"
#include "elasticjob/manifest.h"
#include "kubernetes/client.h"

namespace rubato::elasticjob {

using kubernetes::bool_in;
using kubernetes::list_in;
using kubernetes::object_in;
using kubernetes::text_in;
using nlohmann::json;

namespace {

// Controllers write at least when something changes, and most of them in a resync of some minutes.
constexpr auto kSilentMax = std::chrono::minutes(10);

void later_of(std::optional<WallTime>& time, std::optional<WallTime> at) {
  if (at && (!time || *at > *time)) time = at;
}

}  // namespace

void read_status_writers(Job& job, const json& document) {
  for (const json& entry : list_in(object_in(document, "metadata"), "managedFields")) {
    if (!object_in(entry, "fieldsV1").contains("f:status")) continue;
    const std::string manager = text_in(entry, "manager");
    const auto at = parse_time(text_in(entry, "time"));
    // People write by kubectl; our own word that we step aside is no claim.
    if (manager.starts_with("kubectl") || manager == kAsideManager) continue;
    if (manager == "rubato") {
      later_of(job.we_wrote, at);
    } else if (at && (!job.other_wrote || *at > *job.other_wrote)) {
      job.other_wrote = at;
      job.other_writer = manager;
    }
  }
}

bool is_run_by_another(const Job& job, WallTime now) {
  if (!job.other_wrote || now - *job.other_wrote > kSilentMax) return false;
  return !job.we_wrote || *job.other_wrote > *job.we_wrote;
}

std::string foreign_selector(const Job& job) {
  switch (job.kind) {
    case Kind::kElasticJob:
      return "";
    case Kind::kTorchElasticJob:
      return "job-name=" + label_value(job.name.name);
    case Kind::kAdaptdlJob:
      return "adaptdl/job=" + label_value(job.name.name);
    case Kind::kPytorchJob:
      return "training.kubeflow.org/job-name=" + label_value(job.name.name);
  }
  return "";
}

bool is_foreign_pod(const Job& job, const json& document) {
  const json& metadata = object_in(document, "metadata");
  if (object_in(metadata, "labels").contains(kLabelKind)) return false;
  const std::string phase = text_in(object_in(document, "status"), "phase");
  if (phase == "Succeeded" || phase == "Failed") return false;
  for (const json& owner : list_in(metadata, "ownerReferences")) {
    if (bool_in(owner, "controller") && text_in(owner, "uid") == job.uid) return true;
  }
  return false;
}

json aside_patch(const Job& job, const std::string& message, WallTime now) {
  if (job.kind == Kind::kAdaptdlJob) return json();
  const json status = json::parse(job.status_text);
  json conditions = list_in(status, "conditions");
  for (const json& one : conditions) {
    if (text_in(one, "type") == "Blocked" && text_in(one, "reason") == kAsideReason) return json();
  }
  const std::string at = format_time(now).substr(0, 19) + "Z";
  conditions.push_back({{"type", "Blocked"},
                        {"status", "True"},
                        {"reason", kAsideReason},
                        {"message", message},
                        {"lastTransitionTime", at},
                        {"lastUpdateTime", at}});
  json patch = {{"status", {{"conditions", std::move(conditions)}}}};
  // Their CRDs demand it of every status.
  if (!status.contains("replicaStatuses")) patch["status"]["replicaStatuses"] = json::object();
  // The list is written as a whole: what they have added since must not go.
  if (!job.resource_version.empty()) patch["metadata"]["resourceVersion"] = job.resource_version;
  return patch;
}

}  // namespace rubato::elasticjob

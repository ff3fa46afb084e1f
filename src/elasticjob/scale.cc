#include "elasticjob/scale.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "elasticjob/explain.h"
#include "elasticjob/manifest.h"

namespace rubato::elasticjob {

using nlohmann::json;

ScalePatch scale_patch(Kind kind, int replicas) {
  const json worker = {{"Worker", {{"replicas", replicas}}}};
  switch (kind) {
    case Kind::kElasticJob:
      return {"scale", json{{"spec", {{"replicas", replicas}}}}.dump()};
    case Kind::kTorchElasticJob:
      return {"", json{{"spec", {{"replicaSpecs", worker}}}}.dump()};
    case Kind::kAdaptdlJob:
      return {"", json{{"metadata", {{"annotations", {{kAnnotationReplicas, std::to_string(replicas)}}}}}}.dump()};
    case Kind::kPytorchJob:
      return {"", json{{"spec", {{"pytorchReplicaSpecs", worker}}}}.dump()};
  }
  return {};
}

Task<std::string> scale(kubernetes::Client& client, ObjectName name, int replicas) {
  Task<FoundJob> finding = find_job(client, name);
  const FoundJob found = co_await std::move(finding);
  const Job job = read_job(found.kind, json::parse(found.document));
  if (found.kind == Kind::kElasticJob && job.adaptive) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is adaptive: its size follows what its workers report", to_string(job.name)),
                "spec.adaptive", "take spec.adaptive out first, or change minReplicas and maxReplicas");
  }
  // AdaptDL's jobs have the annotation alone: their least is what they run with now.
  const int least = job.is_rigid ? 1 : job.min_replicas;
  if (replicas < least || replicas > job.max_replicas) {
    throw Error(ErrorCode::kUsage, fmt::format("{} has {} to {} workers", to_string(job.name), least, job.max_replicas),
                std::to_string(replicas), "a number in that range, or change minReplicas and maxReplicas first");
  }
  const ScalePatch patch = scale_patch(found.kind, replicas);
  json document = json::parse(patch.text);
  co_await client.merge_patch(resource_of(found.kind), job.name, patch.subresource, std::move(document));
  co_return fmt::format("{}: {} workers wanted, {} before", to_string(job.name), replicas, job.replicas);
}

}  // namespace rubato::elasticjob

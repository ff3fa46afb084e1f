// Why a job on Kubernetes is as it is, in the words of `rubato why`: its status, what its pods wait for, its events.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "api/reasons.h"
#include "elasticjob/job.h"
#include "kubernetes/client.h"

namespace rubato::elasticjob {

// Pure. `events`: documents of the API, in any order.
api::Why explain(const Job& job, const std::vector<Pod>& pods, const std::vector<nlohmann::json>& events);

// The job of this name, of whatever kind there is one that may be read. Throws kNotFound, or kAuth.
struct FoundJob {
  Kind kind = Kind::kElasticJob;
  std::string document;  // JSON
};
Task<FoundJob> find_job(kubernetes::Client& client, ObjectName name);

Task<api::Why> fetch_explanation(kubernetes::Client& client, ObjectName name);

}  // namespace rubato::elasticjob

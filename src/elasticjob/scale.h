// scale: how many workers a job is to have, whatever kind it is of.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "elasticjob/job.h"
#include "kubernetes/client.h"

namespace rubato::elasticjob {

// The patch that sets it, and the subresource it is for. Pure.
struct ScalePatch {
  std::string subresource;  // empty: the job itself
  std::string text;         // JSON, a merge patch
};
ScalePatch scale_patch(Kind kind, int replicas);

// The job of this name, of whatever kind there is one. What happens then: "mnist: 3 workers, 4 wanted (2:4)". Throws
// kNotFound, and kUsage for a number out of the job's range.
Task<std::string> scale(kubernetes::Client& client, ObjectName name, int replicas);

}  // namespace rubato::elasticjob

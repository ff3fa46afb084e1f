// Everything that `rubato k8s install` applies, and `deploy/` shows: CRD, roles, the operator. One source; pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "elasticjob/job.h"

namespace rubato::elasticjob {

inline constexpr const char* kOperatorName = "rubato-operator";  // of its deployment, account, rights and lease

struct DeploymentSettings {
  std::string namespace_name = "rubato-system";  // of the operator itself
  std::string image;
  std::string watched_namespace;  // empty: all; else a Role there in place of a ClusterRole
  std::vector<Kind> adopted;
  int replicas = 1;
};

nlohmann::ordered_json elastic_job_crd();

// In the order in which they are applied.
std::vector<nlohmann::ordered_json> operator_objects(const DeploymentSettings& settings);  // without the CRD
// Of them: the role on jobs and their pods, and its binding.
std::vector<nlohmann::ordered_json> job_rights(const DeploymentSettings& settings);

}  // namespace rubato::elasticjob

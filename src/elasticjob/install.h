// install, uninstall: the operator on a cluster; and the same objects as text for people and Helm.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "elasticjob/deployment.h"
#include "kubernetes/client.h"

namespace rubato::elasticjob {

using Progress = std::function<void(std::string_view line)>;

// Applies CRD and operator; again: upgrades. A namespace that is there stays as it is. An operator that ran the jobs of
// other namespaces before loses its rights there.
Task<void> install(kubernetes::Client& client, DeploymentSettings settings, Progress progress);

// Jobs and the CRD stay unless `purge`. What is gone already is no error. Without a watched namespace the one is meant
// that the operator was installed with.
Task<void> uninstall(kubernetes::Client& client, DeploymentSettings settings, bool purge, Progress progress);

// YAML documents with --- between them.
std::string manifests_text(const std::vector<nlohmann::ordered_json>& objects);

// The operator's objects with Helm's placeholders: deploy/helm/rubato/templates/operator.yaml.
std::string helm_templates();

}  // namespace rubato::elasticjob

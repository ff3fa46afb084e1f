// `rubato audit` and `rubato doctor` of cluster files whose provider is a cloud: what it has of the cluster, and
// whether `up` can work. Nothing is changed.
#pragma once

#include <vector>

#include "cli/cli.h"
#include "cli/doctor.h"
#include "client/cluster_target.h"
#include "provider/cloud_survey.h"
#include "terminal/layout.h"

namespace rubato::cli {

bool is_cloud(const ClusterTarget& target);

// What the cloud still has of the cluster. Exit code 1 when some of it belongs to nobody.
int audit_cloud(const ClusterTarget& target, const ParsedCommand& parsed, const Shell& shell);
std::vector<Finding> check_cloud(const ClusterTarget& target, const Shell& shell);

// `word`: the cluster file as the person typed it, for the command that removes what is left. Pure.
std::string inventory_text(const provider::CloudInventory& inventory, const std::string& word, const Style& look);
nlohmann::json inventory_json(const provider::CloudInventory& inventory);

}  // namespace rubato::cli

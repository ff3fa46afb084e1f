// What Google Cloud has of a cluster (`rubato audit`), and whether `rubato up` can work there (`rubato doctor`).
#pragma once

#include "provider/cloud_survey.h"

namespace rubato::clouds {

Task<provider::CloudInventory> list_gcp(World& world, const ClusterFile& file, std::vector<std::string> env);
Task<std::vector<provider::CloudCheck>> check_gcp(World& world, const ClusterFile& file, std::vector<std::string> env);

}  // namespace rubato::clouds

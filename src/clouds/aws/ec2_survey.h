// What AWS has of a cluster (`rubato audit`), and whether `rubato up` can work there (`rubato doctor`).
#pragma once

#include "provider/cloud_survey.h"

namespace rubato::clouds {

Task<provider::CloudInventory> list_ec2(World& world, const ClusterFile& file, std::vector<std::string> env);
Task<std::vector<provider::CloudCheck>> check_ec2(World& world, const ClusterFile& file, std::vector<std::string> env);

}  // namespace rubato::clouds

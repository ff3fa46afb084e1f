// What spot machines cost now, by EC2's own history of prices.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "aws/client.h"
#include "provider/cloud_survey.h"

namespace rubato::clouds {

// Node types that may be spot machines and whose spot price the file does not give, with their instance types. Pure.
std::map<std::string, std::string> spot_types_of(const ClusterFile& file);

// The newest price of each of them in each zone; one call, of many pages at worst.
Task<std::vector<provider::LivePrice>> read_spot_prices(aws::Client& client,
                                                        std::map<std::string, std::string> instance_types);

Task<std::vector<provider::LivePrice>> ec2_prices(World& world, const ClusterFile& file, std::vector<std::string> env);

}  // namespace rubato::clouds

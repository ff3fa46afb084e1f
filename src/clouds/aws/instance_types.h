// What is known of EC2's machines without asking: sizes, and prices on demand. A table that is shipped, and older than
// the prices: `price_per_hour` of a node type counts before it.
#pragma once

#include <cstdint>
#include <string_view>

namespace rubato::clouds {

struct Ec2Type {
  std::string_view name;
  int vcpus = 0;
  int64_t memory_mib = 0;
  int gpus = 0;
  std::string_view gpu;       // "A10G"
  double price_per_hour = 0;  // dollars, Linux, kEc2PricesRegion
};
inline constexpr std::string_view kEc2PricesDate = "2025-06";
inline constexpr std::string_view kEc2PricesRegion = "us-east-1";

const Ec2Type* find_ec2_type(std::string_view name);  // nullptr: not in the table

bool is_arm(std::string_view name);

}  // namespace rubato::clouds

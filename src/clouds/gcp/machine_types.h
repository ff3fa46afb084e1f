// What is known of Compute Engine's machines without asking: sizes, and prices on demand. Written down by hand, and
// older than the prices: `price_per_hour` of a node type counts before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rubato::clouds {

struct GcpType {
  int vcpus = 0;
  int64_t memory_mib = 0;
  int gpus = 0;
  std::string_view gpu;       // "A100", as Ray calls it
  double price_per_hour = 0;  // dollars, Linux, kGcpPricesRegion, its GPUs included; 0: not known
};
inline constexpr std::string_view kGcpPricesDate = "2025-06";
inline constexpr std::string_view kGcpPricesRegion = "us-central1";

// By its name without a place: "n1-standard-8", "e2-custom-4-8192". nullopt: not known.
std::optional<GcpType> find_gcp_type(std::string_view name);

struct GcpAccelerator {
  std::string_view name;      // "nvidia-tesla-t4"
  std::string_view gpu;       // "T4"
  double price_per_hour = 0;  // of one
};
const GcpAccelerator* find_gcp_accelerator(std::string_view name);  // nullptr: not known

bool is_gcp_arm(std::string_view machine_type);

}  // namespace rubato::clouds

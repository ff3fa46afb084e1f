// libFuzzer: any bytes give an Error or a state with a plan that launches no more than the limits allow.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "policy/scale_state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato;
  using namespace rubato::policy;
  if (size > 4096) return 0;
  try {
    ScaleInput input = read_scale_state(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.json");
    input.max_workers = std::min(input.max_workers, 50);  // a plan of millions of nodes is right, but slow
    int workers = 0;
    for (ScaleLaunching& one : input.launching) workers += one.count = std::min(one.count, 50);
    for (const ScaleNode& node : input.nodes) workers += node.head ? 0 : 1;
    const ScalePlan plan = plan_scale(input);
    for (const PlannedLaunch& one : plan.launches) workers += one.count;
    CHECK(plan.launches.empty() || workers <= input.max_workers);
    to_json(plan);
  } catch (const Error&) {
  }
  return 0;
}

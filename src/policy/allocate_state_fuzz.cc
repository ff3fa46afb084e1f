// libFuzzer: any bytes give an Error or a state with a decision that over-commits no node.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "policy/allocate_state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato;
  using namespace rubato::policy;
  if (size > 4096) return 0;
  try {
    const AllocateState state = read_allocate_state({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    const AllocateDecision decision = allocate(state.input);
    std::vector<Resources> used(state.input.nodes.size());
    for (size_t i = 0; i < decision.jobs.size(); ++i) {
      for (const size_t node : decision.jobs[i].nodes) used[node] += state.input.jobs[i].resources;
    }
    for (size_t node = 0; node < used.size(); ++node) CHECK(used[node].fits_in(state.input.nodes[node].resources));
    to_json(state, decision);
  } catch (const Error&) {
  }
  return 0;
}

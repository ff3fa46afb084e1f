// Any text as a kubeconfig: an Error at most.
#include <cstddef>
#include <cstdint>

#include "kubernetes/kubeconfig.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    rubato::kubernetes::Kubeconfig config;
    rubato::kubernetes::add_kubeconfig(config, {reinterpret_cast<const char*>(data), size}, "config");
    rubato::kubernetes::choose_context(config, "");
  } catch (const rubato::Error&) {
  }
  return 0;
}

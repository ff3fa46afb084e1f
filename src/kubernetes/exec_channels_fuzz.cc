// What a server, or somebody in its place, may send as the end of a command.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "kubernetes/exec_channels.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const rubato::kubernetes::ExecEnd end = rubato::kubernetes::read_exec_status(text);
  if (end.exit_code < 0 || end.exit_code > 255 || (!end.ended && end.exit_code != 0)) std::abort();
  return 0;
}

// What a server, or somebody in its place, may send as a WebSocket; cut at a place that the input chooses.
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "kubernetes/websocket.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = bytes.empty() ? 0 : data[0] % bytes.size();
  rubato::kubernetes::WebSocketDecoder decoder;
  try {
    decoder.add(bytes.substr(0, cut));
    decoder.add(bytes.substr(cut));
  } catch (const rubato::Error&) {
    // Refused, as it should be.
  }
  return 0;
}

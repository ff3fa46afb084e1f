#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rest/ini.h"
#include "core/error.h"

// Any bytes give sections or an Error, nothing else.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const rubato::rest::IniFile file(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    (void)file.value("default", "region");
  } catch (const rubato::Error&) {
  }
  return 0;
}

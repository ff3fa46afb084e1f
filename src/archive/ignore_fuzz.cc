// libFuzzer: any ignore file and any path give an answer, soon. The first line is the path.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "archive/ignore.h"
#include "core/error.h"
#include "core/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using rubato::archive::IgnoreFile;
  const auto parts = rubato::split_once(std::string_view(reinterpret_cast<const char*>(data), size), '\n');
  if (!parts) return 0;
  const auto& [path, text] = *parts;
  const IgnoreFile file(text);
  const auto as_file = file.ignores(path, false);
  file.ignores(path, true);
  // A later line that matches everything decides.
  if (!path.empty() && !path.ends_with('/')) {
    CHECK(IgnoreFile(std::string(text) + "\n*\n").ignores(path, false) == true);
    CHECK(IgnoreFile(std::string(text) + "\n!*\n").ignores(path, false) == false);
    CHECK(IgnoreFile(std::string(text) + "\n").ignores(path, false) == as_file);
  }
  return 0;
}

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "rest/xml.h"

// Any bytes give a tree or a problem, and what is read can be asked for anything.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const rubato::rest::XmlResult parsed = rubato::rest::parse_xml(text);
  if (parsed.problem.empty() && parsed.root.name.empty()) std::abort();
  (void)parsed.root.text_at("a/b/c");
  (void)parsed.root.list("set", "item");
  return 0;
}

// A page of a list, as a server or somebody in its place may send it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "kubernetes/list_document.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string page(reinterpret_cast<const char*>(data), size);
  try {
    const rubato::kubernetes::ListDocument list = rubato::kubernetes::cut_list(page, "list");
    for (const std::string_view item : list.items) rubato::kubernetes::read_item(item, "list");
  } catch (const rubato::Error&) {
  }
  return 0;
}

// libFuzzer: any bytes give a tree that can be walked, or an Error. Build with
// clang++-19 -fsanitize=fuzzer,address,undefined.
#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/error.h"
#include "core/yaml.h"

namespace rubato {
namespace {

void attempt(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    CHECK(error.code == ErrorCode::kUsage && !error.message.empty() && !error.where.empty());
  }
}

void walk(const Yaml& node, size_t& nodes_left) {
  CHECK(nodes_left > 0);
  --nodes_left;
  CHECK(node.line() >= 1 && node.column() >= 1);
  attempt([&] { node.as_string(); });
  attempt([&] { node.as_int(-5, 5); });
  attempt([&] { node.as_double(); });
  attempt([&] { node.as_bool(); });
  attempt([&] { node.as_duration(); });
  attempt([&] { node.as_strings(); });
  if (node.is_sequence()) {
    for (const Yaml& item : node.items()) walk(item, nodes_left);
  }
  if (!node.is_mapping()) return;
  for (const Yaml::Entry& entry : node.entries()) {
    CHECK(node.find(entry.key.as_string()));
    walk(entry.value, nodes_left);
  }
  attempt([&] {
    StrictMapping fields(node, "fuzz");
    fields.find("name");
    fields.find("nodes");
    fields.finish();
  });
}

}  // namespace
}  // namespace rubato

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  rubato::attempt([&] {
    rubato::YamlLimits limits;
    limits.nodes_max = 5000;
    size_t nodes_left = limits.nodes_max;
    rubato::walk(rubato::Yaml::parse(text, "fuzz.yaml", limits), nodes_left);
  });
  return 0;
}

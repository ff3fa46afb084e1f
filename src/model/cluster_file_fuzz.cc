// libFuzzer: any bytes give findings or a file whose migrated form means the same.
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "model/cluster_file.h"
#include "model/yaml_value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato;
  if (size > 4096) return 0;
  const ClusterFile file = read_cluster_file(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.yaml");
  for (const Finding& one : file.findings) CHECK(!one.message.empty() && !one.where.empty());
  if (file.has(Severity::kError) || file.has(Severity::kUnfilled)) return 0;
  for (const auto& [name, type] : file.types) {
    commands_for(file, name, true);
    container_for(file, name, false);
  }
  const ClusterFile again = read_cluster_file(yaml_text(given_values(file)), "again.yaml");
  CHECK(!again.has(Severity::kError));
  CHECK(resolved_values(again) == resolved_values(file));
  return 0;
}

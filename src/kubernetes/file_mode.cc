#include "kubernetes/file_mode.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace rubato::kubernetes {
namespace {

using nlohmann::json;

std::optional<int> octal_in(const json& value) {
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.get_ref<const std::string&>();
  if (!text.starts_with('0')) return std::nullopt;
  int out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, 8);
  if (error != std::errc() || end != text.data() + text.size() || out > 0777) return std::nullopt;
  return out;
}

// In these, a value that is called `mode` is text of somebody else's.
bool is_foreign(const std::string& key) { return key == "csi" || key == "flexVolume" || key == "ephemeral"; }

void read_modes_of(json& volumes) {
  for (const auto& item : volumes.items()) {
    json& one = item.value();
    if (!one.is_structured() || is_foreign(item.key())) continue;
    for (const char* key : {"defaultMode", "mode"}) {
      if (!one.is_object() || !one.contains(key)) continue;
      if (const std::optional<int> mode = octal_in(one[key])) one[key] = *mode;
    }
    read_modes_of(one);
  }
}

}  // namespace

void read_file_modes(json& document) {
  if (!document.is_structured()) return;
  if (document.is_object() && document.contains("volumes") && document["volumes"].is_array())
    read_modes_of(document["volumes"]);
  for (json& one : document) read_file_modes(one);
}

}  // namespace rubato::kubernetes

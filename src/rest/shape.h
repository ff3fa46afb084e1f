// Shape: what a service's request may hold, as a table that a tool makes of the service's own published model.
#pragma once

#include <span>
#include <string_view>

namespace rubato::rest {

enum class ShapeKind { kText, kInteger, kNumber, kBoolean, kStructure, kTextMap, kAny };

struct ShapeMember {
  std::string_view owner;  // the structure it is in; "": the request itself
  std::string_view name;   // as people write it: "BlockDeviceMappings"
  std::string_view wire;   // as it travels, where that differs: "BlockDeviceMapping"
  ShapeKind kind;          // its own, or that of a list's items
  bool is_list;
  std::string_view structure;  // of kStructure: which
};

using Shape = std::span<const ShapeMember>;

}  // namespace rubato::rest

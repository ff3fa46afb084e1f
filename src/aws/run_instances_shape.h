// The parameters of EC2's RunInstances: by the names of AWS's SDKs, which people write in `node_config`, and by those
// of the query API. A table that tools/aws_shapes.py makes of botocore's model.
#pragma once

#include <span>
#include <string_view>

namespace rubato::aws {

enum class ShapeKind { kText, kInteger, kNumber, kBoolean, kStructure };

struct ShapeMember {
  std::string_view owner;  // the structure it is in; "": RunInstances itself
  std::string_view name;   // "BlockDeviceMappings"
  std::string_view wire;   // "BlockDeviceMapping"
  ShapeKind kind;          // its own, or that of a list's items
  bool is_list;
  std::string_view structure;  // of kStructure: which
};

std::span<const ShapeMember> run_instances_shape();

}  // namespace rubato::aws

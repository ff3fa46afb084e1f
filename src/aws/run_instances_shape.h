// The parameters of EC2's RunInstances: by the names of AWS's SDKs, which people write in `node_config`, and by those
// of the query API. A table that tools/aws_shapes.py makes of botocore's model.
#pragma once

#include "rest/shape.h"

namespace rubato::aws {

using rest::ShapeKind;
using rest::ShapeMember;

std::span<const ShapeMember> run_instances_shape();

}  // namespace rubato::aws

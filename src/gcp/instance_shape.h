// What Compute's instances.insert takes, which is what people write in `node_config`. A table that tools/gcp_shapes.py
// makes of Google's published schema.
#pragma once

#include "rest/shape.h"

namespace rubato::gcp {

rest::Shape instance_shape();

}  // namespace rubato::gcp

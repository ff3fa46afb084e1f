// Times as people and the API write them. Pure: "now" is given.
#pragma once

#include "core/time.h"
#include "terminal/flags.h"

namespace rubato::cli {

// A point in the past: RFC 3339, or a duration that ended now ("10m", "10m ago"). Throws a usage Error.
WallTime past_value(const Given& given, WallTime now);

}  // namespace rubato::cli

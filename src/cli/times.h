// Times as people and the API write them. Pure: "now" is given.
#pragma once

#include <optional>
#include <string_view>

#include "cli/flags.h"
#include "core/time.h"

namespace rubato::cli {

// RFC 3339: 2026-11-15T03:54:46.123Z, or with an offset, or with a space for the T; a date alone is its midnight UTC.
std::optional<WallTime> parse_time(std::string_view text);

// A point in the past: RFC 3339, or a duration that ended now ("10m"). Throws a usage Error.
WallTime past_value(const Given& given, WallTime now);

}  // namespace rubato::cli

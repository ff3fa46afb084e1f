// Timestamps as files, APIs and people write them.
#pragma once

#include <optional>
#include <string_view>

#include "core/time.h"

namespace rubato {

// RFC 3339 (section 5.6): 2026-11-15T03:54:46.123Z, or with an offset, or with a space for the T. A date alone is its
// midnight in UTC. nullopt when it is none of these.
std::optional<WallTime> parse_time(std::string_view text);

}  // namespace rubato

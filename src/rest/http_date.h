// The Date header of HTTP: "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110).
#pragma once

#include <optional>
#include <string_view>

#include "core/time.h"

namespace rubato::rest {

std::optional<WallTime> parse_http_date(std::string_view text);

}  // namespace rubato::rest

// Base64 (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rubato::rest {

std::string base64(std::string_view bytes);
std::optional<std::string> unbase64(std::string_view text);  // nullopt: not base64, padded

}  // namespace rubato::rest

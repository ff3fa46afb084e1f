// Values of flags: text to numbers, times and lists, with errors that name the flag.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "terminal/flags.h"

namespace rubato::cli {

// A whole decimal number that fits; nullopt otherwise. No sign but '-'.
std::optional<int> parse_int(std::string_view text);

// Throws a usage Error unless the value is a whole number in [min, max].
int int_value(const Given& given, int min, int max);

// Throws a usage Error unless the value is a time of at least `min`.
Duration duration_value(const Given& given, Duration min);

// "a, b" is {"a", "b"}. Throws a usage Error for an empty part.
std::vector<std::string> list_value(const Given& given);

}  // namespace rubato::cli

// check_json_bounds: looks at a JSON text before it is parsed, so that one that is all brackets or all names costs no
// more than reading it. Whether it is JSON at all is for the parser to say.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace rubato {

struct JsonBounds {
  size_t depth_max = 32;
  size_t entries_max = 20'000;  // of one list or object
  size_t values_max = 200'000;  // of the whole text
};

// What is too much of it: "a list or an object of more than 20000 entries". nullopt: nothing.
std::optional<std::string> beyond_bounds(std::string_view text, const JsonBounds& bounds);

// Throws a usage Error that names `what`: "the request's body".
void check_json_bounds(std::string_view text, const JsonBounds& bounds, std::string_view what);

}  // namespace rubato

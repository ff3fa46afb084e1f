#include "core/json_bounds.h"

#include <vector>

#include "core/error.h"

namespace rubato {

namespace {

// The position of the quote that ends the string which begins before `at`; the end of the text when there is none.
size_t end_of_string(std::string_view text, size_t at) {
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return at;
}

}  // namespace

std::optional<std::string> beyond_bounds(std::string_view text, const JsonBounds& bounds) {
  std::vector<size_t> commas;  // of each open list or object
  size_t values = 1;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      at = end_of_string(text, at + 1);
    } else if (c == '[' || c == '{') {
      ++values;
      commas.push_back(0);
      if (commas.size() > bounds.depth_max) return "nested deeper than " + std::to_string(bounds.depth_max);
    } else if (c == ']' || c == '}') {
      if (!commas.empty()) commas.pop_back();
    } else if (c == ',') {
      ++values;
      if (!commas.empty() && ++commas.back() >= bounds.entries_max) {
        return "a list or an object of more than " + std::to_string(bounds.entries_max) + " entries";
      }
    }
    if (values > bounds.values_max) return "more than " + std::to_string(bounds.values_max) + " values";
  }
  return std::nullopt;
}

void check_json_bounds(std::string_view text, const JsonBounds& bounds, std::string_view what) {
  const std::optional<std::string> beyond = beyond_bounds(text, bounds);
  if (beyond) {
    throw Error(ErrorCode::kUsage, std::string(what) + " is too much: " + *beyond, "",
                "src/model/limits.h has the limits");
  }
}

}  // namespace rubato

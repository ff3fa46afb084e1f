#include "terminal/values.h"

#include <fmt/format.h>

#include <charconv>

#include "core/text.h"

namespace rubato::cli {

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int int_value(const Given& given, int min, int max) {
  const std::optional<int> value = parse_int(trim(given.values.back()));
  if (!value) throw bad_value(given, "expected a whole number");
  if (*value < min) throw bad_value(given, fmt::format("must be at least {}", min));
  if (*value > max) throw bad_value(given, fmt::format("must be at most {}", max));
  return *value;
}

Duration duration_value(const Given& given, Duration min) {
  const std::optional<Duration> value = parse_duration(given.values.back());
  if (!value) throw bad_value(given, "expected a time", "write 30s, 250ms, 2m or a number of seconds");
  if (*value < min) throw bad_value(given, fmt::format("must be at least {}", format_duration(min)));
  return *value;
}

std::vector<std::string> list_value(const Given& given) {
  std::vector<std::string> parts;
  for (const std::string_view part : split(given.values.back(), ',')) {
    parts.emplace_back(trim(part));
    if (parts.back().empty()) throw bad_value(given, "a part between commas is empty");
  }
  return parts;
}

}  // namespace rubato::cli

#include "cli/times.h"

#include "core/text.h"
#include "core/timestamp.h"

namespace rubato::cli {

WallTime past_value(const Given& given, WallTime now) {
  const std::string& text = given.values.back();
  if (const auto ago = parse_duration(trim(strip_suffix(text, "ago").value_or(text)))) {
    return now - std::chrono::duration_cast<std::chrono::microseconds>(*ago);
  }
  if (const auto time = parse_time(text)) return *time;
  throw bad_value(given, "expected a time", "write 10m for ten minutes ago, or 2026-11-15T03:54:46Z");
}

}  // namespace rubato::cli

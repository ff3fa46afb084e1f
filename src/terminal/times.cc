#include "terminal/times.h"

#include "core/text.h"
#include "core/timestamp.h"

namespace rubato::cli {

WallTime past_value(const Given& given, WallTime now) {
  std::string_view text = given.values.back();
  // As the help writes it, and as people do.
  if (text.ends_with(" ago")) text = trim(text.substr(0, text.size() - 4));
  if (const auto ago = parse_duration(text)) {
    return now - std::chrono::duration_cast<std::chrono::microseconds>(*ago);
  }
  if (const auto time = parse_time(given.values.back())) return *time;
  throw bad_value(given, "expected a time", "write 10m for ten minutes ago, or 2026-11-15T03:54:46Z");
}

}  // namespace rubato::cli

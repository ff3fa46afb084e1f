#include "cli/times.h"

#include "core/timestamp.h"

namespace rubato::cli {

WallTime past_value(const Given& given, WallTime now) {
  if (const auto ago = parse_duration(given.values.back())) {
    return now - std::chrono::duration_cast<std::chrono::microseconds>(*ago);
  }
  if (const auto time = parse_time(given.values.back())) return *time;
  throw bad_value(given, "expected a time", "write 10m for ten minutes ago, or 2026-11-15T03:54:46Z");
}

}  // namespace rubato::cli

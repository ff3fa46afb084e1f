#include "core/time.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <ctime>

namespace rubato {

std::optional<Duration> parse_duration(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0 || !std::isfinite(value)) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  double scale = 0;
  if (unit.empty() || unit == "s") scale = 1;
  if (unit == "ms") scale = 1e-3;
  if (unit == "m" || unit == "min") scale = 60;
  if (unit == "h") scale = 3600;
  if (unit == "d") scale = 86400;
  // A century is more than anyone means, and keeps the arithmetic far from overflow.
  if (scale == 0 || value * scale > 3.2e9) return std::nullopt;
  return seconds(value * scale);
}

std::string format_duration(Duration d) {
  if (d < 0ns) return "-" + format_duration(-d);
  const double s = to_seconds(d);
  if (s < 0.9995) return fmt::format("{:.0f}ms", s * 1e3);
  if (s < 59.95) return fmt::format("{:.1f}s", s);
  const auto whole = static_cast<int64_t>(s + 0.5);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole / 3600 % 24);
}

std::string format_time(WallTime t) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(t);
  const auto rest = std::chrono::floor<std::chrono::milliseconds>(t - whole);
  const std::time_t seconds = whole.time_since_epoch().count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), rest.count());
}

}  // namespace rubato

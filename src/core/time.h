// Instant and Duration: strong types for monotonic time. Nothing here reads a clock; see world/clock.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rubato {

using Duration = std::chrono::nanoseconds;
using namespace std::chrono_literals;

// The tag of our monotonic time line: its zero has no meaning, in simulation it is the start.
struct Monotonic {
  using duration = Duration;
  using rep = Duration::rep;
  using period = Duration::period;
  using time_point = std::chrono::time_point<Monotonic>;
  static constexpr bool is_steady = true;
};
using Instant = Monotonic::time_point;

// Wall-clock time, for people and for files; never for decisions.
using WallTime = std::chrono::sys_time<std::chrono::microseconds>;

constexpr Duration seconds(double s) { return Duration(static_cast<Duration::rep>(s * 1e9 + (s < 0 ? -0.5 : 0.5))); }
constexpr double to_seconds(Duration d) { return static_cast<double>(d.count()) * 1e-9; }
constexpr int64_t to_ms(Duration d) { return d.count() / 1'000'000; }

// "90", "1.5s", "250ms", "2m" or "2min", "1h", "1d" (a bare number is seconds). nullopt when it is none of these or
// negative.
std::optional<Duration> parse_duration(std::string_view text);

// The two leading units, for people: "1h02m", "3m10s", "1.5s", "250ms".
std::string format_duration(Duration d);

// RFC 3339 in UTC with milliseconds: 2026-11-15T03:54:46.123Z.
std::string format_time(WallTime t);

}  // namespace rubato

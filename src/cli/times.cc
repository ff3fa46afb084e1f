#include "cli/times.h"

#include <charconv>
#include <chrono>

#include "core/text.h"

namespace rubato::cli {
namespace {

// Reads the fields of a time one after the other.
class TimeReader {
 public:
  explicit TimeReader(std::string_view text) : text_(text) {}

  // Exactly so many digits.
  bool digits(size_t count, int& out) {
    if (text_.size() < count) return false;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + count, out);
    if (error != std::errc{} || end != text_.data() + count || out < 0 || text_[0] == '-') return false;
    text_.remove_prefix(count);
    return true;
  }

  bool one_of(std::string_view set) {
    if (text_.empty() || set.find(text_[0]) == std::string_view::npos) return false;
    taken_ = text_[0];
    text_.remove_prefix(1);
    return true;
  }

  // ".123456789": to microseconds, the rest is dropped.
  bool fraction(int64_t& micros) {
    micros = 0;
    if (!one_of(".")) return true;
    int64_t scale = 100'000;
    size_t count = 0;
    for (; !text_.empty() && '0' <= text_[0] && text_[0] <= '9'; ++count) {
      micros += (text_[0] - '0') * scale;
      scale /= 10;
      text_.remove_prefix(1);
    }
    return count > 0;
  }

  // 'Z' or +hh:mm.
  bool offset(std::chrono::minutes& out) {
    if (one_of("Zz")) return true;
    int hours = 0, minutes = 0;
    if (!one_of("+-")) return false;
    const int sign = taken_ == '-' ? -1 : 1;
    if (!digits(2, hours) || !one_of(":") || !digits(2, minutes) || hours > 23 || minutes > 59) return false;
    out = std::chrono::minutes(sign * (hours * 60 + minutes));
    return true;
  }

  bool at_end() const { return text_.empty(); }

 private:
  std::string_view text_;
  char taken_ = 0;
};

}  // namespace

std::optional<WallTime> parse_time(std::string_view text) {
  TimeReader reader(trim(text));
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  int64_t micros = 0;
  std::chrono::minutes offset{0};
  if (!reader.digits(4, year) || !reader.one_of("-") || !reader.digits(2, month) || !reader.one_of("-") ||
      !reader.digits(2, day)) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  if (!reader.at_end()) {
    if (!reader.one_of("Tt ") || !reader.digits(2, hour) || !reader.one_of(":") || !reader.digits(2, minute) ||
        !reader.one_of(":") || !reader.digits(2, second) || !reader.fraction(micros) || !reader.offset(offset) ||
        !reader.at_end() || hour > 23 || minute > 59 || second > 60) {
      return std::nullopt;
    }
  }
  const auto midnight = std::chrono::sys_days(date);
  return WallTime(midnight) + std::chrono::hours(hour) + std::chrono::minutes(minute) + std::chrono::seconds(second) +
         std::chrono::microseconds(micros) - offset;
}

WallTime past_value(const Given& given, WallTime now) {
  if (const auto ago = parse_duration(given.values.back())) {
    return now - std::chrono::duration_cast<std::chrono::microseconds>(*ago);
  }
  if (const auto time = parse_time(given.values.back())) return *time;
  throw bad_value(given, "expected a time", "write 10m for ten minutes ago, or 2026-11-15T03:54:46Z");
}

}  // namespace rubato::cli

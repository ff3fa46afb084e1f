#include "core/timestamp.h"

#include <chrono>

namespace rubato {

namespace {

using std::chrono::microseconds;

// Takes the front of a text apart; once something was not as expected, it stays failed.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  int digits(size_t count) {
    int value = 0;
    for (size_t i = 0; i < count; ++i) value = value * 10 + (one_of("0123456789") - '0');
    return value;
  }
  char one_of(std::string_view allowed) {
    ok_ = ok_ && !rest_.empty() && allowed.find(rest_.front()) != std::string_view::npos;
    if (!ok_) return allowed.front();
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  bool next_is(char c) const { return ok_ && rest_.starts_with(c); }
  bool next_is_digit() const { return ok_ && !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9'; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

microseconds read_fraction(Reader& reader) {
  microseconds fraction{};
  microseconds place = 100ms;
  reader.one_of(".");
  do {
    fraction += place * reader.digits(1);
    place /= 10;
  } while (reader.next_is_digit());
  return fraction;
}

std::chrono::minutes read_offset(Reader& reader) {
  const char sign = reader.one_of("Zz+-");
  if (sign == 'Z' || sign == 'z') return 0min;
  const std::chrono::hours hours(reader.digits(2));
  reader.one_of(":");
  const std::chrono::minutes offset = hours + std::chrono::minutes(reader.digits(2));
  return sign == '-' ? -offset : offset;
}

}  // namespace

std::optional<WallTime> parse_time(std::string_view text) {
  Reader reader(text);
  const std::chrono::year year(reader.digits(4));
  reader.one_of("-");
  const std::chrono::month month(static_cast<unsigned>(reader.digits(2)));
  reader.one_of("-");
  const std::chrono::day day(static_cast<unsigned>(reader.digits(2)));
  const std::chrono::year_month_day date(year, month, day);
  if (reader.done()) return date.ok() ? std::optional<WallTime>(std::chrono::sys_days(date)) : std::nullopt;
  reader.one_of("Tt ");
  const int hour = reader.digits(2);
  reader.one_of(":");
  const int minute = reader.digits(2);
  reader.one_of(":");
  const int second = reader.digits(2);
  const microseconds fraction = reader.next_is('.') ? read_fraction(reader) : 0us;
  const std::chrono::minutes offset = read_offset(reader);
  // 60 is a leap second.
  if (!reader.done() || !date.ok() || hour > 23 || minute > 59 || second > 60) return std::nullopt;
  return std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
         std::chrono::seconds(second) + fraction - offset;
}

}  // namespace rubato

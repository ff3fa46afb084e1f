#include "rest/http_date.h"

#include <charconv>

namespace rubato::rest {
namespace {

std::optional<int> digits_at(std::string_view text, size_t from, size_t count) {
  int out = 0;
  const char* const begin = text.data() + from;
  const auto [end, error] = std::from_chars(begin, begin + count, out);
  if (error != std::errc() || end != begin + count || out < 0) return std::nullopt;
  return out;
}

}  // namespace

std::optional<WallTime> parse_http_date(std::string_view text) {
  constexpr std::string_view kShape = "Sun, 06 Nov 1994 08:49:37 GMT";
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  if (text.size() != kShape.size() || !text.ends_with(" GMT")) return std::nullopt;
  for (const size_t at : {4u, 7u, 11u, 16u, 19u, 22u}) {
    if (text[at] != kShape[at]) return std::nullopt;
  }
  const size_t month = kMonths.find(text.substr(8, 3));
  const auto day = digits_at(text, 5, 2), year = digits_at(text, 12, 4);
  const auto hour = digits_at(text, 17, 2), minute = digits_at(text, 20, 2), second = digits_at(text, 23, 2);
  if (month == std::string_view::npos || month % 3 != 0) return std::nullopt;
  if (!day || !year || !hour || !minute || !second) return std::nullopt;
  if (*hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  const std::chrono::year_month_day date(std::chrono::year{*year},
                                         std::chrono::month{static_cast<unsigned>(month / 3 + 1)},
                                         std::chrono::day{static_cast<unsigned>(*day)});
  if (!date.ok()) return std::nullopt;
  return std::chrono::sys_days(date) + std::chrono::hours(*hour) + std::chrono::minutes(*minute) +
         std::chrono::seconds(*second);
}

}  // namespace rubato::rest

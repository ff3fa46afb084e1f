#include "agent/notice.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "core/timestamp.h"

namespace rubato::agent {

namespace {

using Json = nlohmann::json;
using std::chrono::microseconds;

constexpr std::string_view kTimeForm = "a time such as 2026-11-15T12:00:30Z";
constexpr std::string_view kDurationForm = "a duration such as 90s";

Notice unclear(std::string problem) { return Notice{std::nullopt, std::move(problem)}; }

WallTime after(WallTime written, Duration duration) {
  return written + std::chrono::duration_cast<microseconds>(duration);
}

Notice read_object(const Json& object, WallTime written) {
  for (const char* name : {"deadline", "time"}) {
    if (!object.contains(name)) continue;
    const Json& value = object[name];
    const auto time = value.is_string() ? parse_time(value.get<std::string>()) : std::nullopt;
    return time ? Notice{time, ""} : unclear(fmt::format("its \"{}\" is not {}", name, kTimeForm));
  }
  if (object.contains("in")) {
    const Json& value = object["in"];
    const std::string text = value.is_string() ? value.get<std::string>() : value.is_number() ? value.dump() : "";
    const std::optional<Duration> duration = parse_duration(text);
    return duration ? Notice{after(written, *duration), ""}
                    : unclear(fmt::format("its \"in\" is not {}", kDurationForm));
  }
  if (object.contains("action")) return {};
  return unclear("it has none of \"deadline\", \"time\" and \"in\"");
}

}  // namespace

Notice parse_notice(std::string_view text, WallTime written) {
  text = trim(text);
  if (text.empty()) return {};
  if (text.starts_with('{')) {
    const Json object = Json::parse(text, nullptr, false);
    return object.is_object() ? read_object(object, written) : unclear("it is not whole as JSON");
  }
  // A day alone is no deadline.
  const auto time = text.find(':') == std::string_view::npos ? std::nullopt : parse_time(text);
  if (time) return {time, ""};
  if (const auto duration = parse_duration(text)) return {after(written, *duration), ""};
  return unclear(fmt::format("it holds neither {}, nor {}, nor JSON with one", kTimeForm, kDurationForm));
}

Duration time_left(const Notice& notice, WallTime now) {
  // Times of other centuries do not fit into nanoseconds.
  constexpr microseconds kLongest = std::chrono::hours(24 * 365);
  return std::clamp(*notice.deadline - now, 0us, kLongest);
}

Duration time_to_end(const Notice& notice, WallTime now, Duration grace) {
  if (!notice.deadline) return grace;
  return std::max<Duration>(time_left(notice, now) - kNoticeMargin, 0s);
}

std::string describe(const Notice& notice, WallTime now) {
  if (!notice.problem.empty()) return "this machine goes away, but it cannot be made out when: " + notice.problem;
  if (!notice.deadline) return "this machine goes away";
  const std::string time = format_time(*notice.deadline);
  const microseconds left = *notice.deadline - now;
  if (std::chrono::abs(left) >= 24h) return fmt::format("this machine goes away at {}", time);
  const std::string when = left < 0s ? format_duration(-left) + " ago" : "in " + format_duration(left);
  return fmt::format("this machine goes away at {} UTC ({})", time.substr(11, 8), when);
}

}  // namespace rubato::agent

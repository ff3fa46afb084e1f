// Notice: the word that this machine will be taken away (a spot instance's, or a person's), as a file holds it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/time.h"

namespace rubato::agent {

struct Notice {
  std::optional<WallTime> deadline;  // when the machine goes; nullopt: the notice does not say
  std::string problem;               // not empty: why the content could not be made out; there is no deadline then
};

// What is left of the time before the deadline for SIGKILL, the goodbye and the disk.
inline constexpr Duration kNoticeMargin = 2s;

// Never fails: whatever the file holds, it is there, so the machine goes away. It may hold
//   nothing;
//   a time as of RFC 3339, 2026-11-15T12:00:30Z, or a duration, 90s, which counts from `written`;
//   JSON: {"deadline": TIME}, {"in": DURATION}, or EC2's instance-action, {"action": "terminate", "time": TIME}.
Notice parse_notice(std::string_view text, WallTime written);

// Until the deadline, not below 0. There must be one.
Duration time_left(const Notice& notice, WallTime now);

// From SIGTERM to SIGKILL: until the deadline less the margin, not below 0; `grace` when there is no deadline.
Duration time_to_end(const Notice& notice, WallTime now, Duration grace);

// "this machine goes away at 12:00:30 UTC (in 1m28s)".
std::string describe(const Notice& notice, WallTime now);

}  // namespace rubato::agent

#include "elastic/restart.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>

namespace rubato::elastic {

std::string describe(const Failure& failure) {
  std::string how = fmt::format("exit code {}", failure.exit_code);
  if (failure.signal) {
    const char* name = sigabbrev_np(failure.signal);
    how = name ? fmt::format("killed by SIG{} (signal {})", name, failure.signal)
               : fmt::format("killed by signal {}", failure.signal);
  }
  return fmt::format("rank {} (local rank {}, pid {}) on {}: {}", failure.rank, failure.local_rank, failure.pid,
                     failure.host, how);
}

const Failure* root_cause(const std::vector<Failure>& failures) {
  const auto first = std::ranges::min_element(failures, {}, [](const Failure& f) { return std::pair(f.at, f.rank); });
  return first == failures.end() ? nullptr : &*first;
}

std::string describe_cause(const std::vector<Failure>& failures) {
  const Failure* first = root_cause(failures);
  return first ? describe(*first) : "a worker failed";
}

std::string crash_signature(const std::vector<Failure>& failures) {
  constexpr size_t kMessageBytesMax = 500;
  const Failure* first = root_cause(failures);
  if (!first || first->signal != 0 || first->message.empty()) return "";
  return fmt::format("exit code {}: {}", first->exit_code, first->message.substr(0, kMessageBytesMax));
}

std::optional<Duration> Restarts::charge(int most, Duration after) {
  if (used >= most) return std::nullopt;
  ++used;
  return back_off(after);
}

Duration Restarts::back_off(Duration after) {
  quick_crashes = after < kQuickCrash ? quick_crashes + 1 : 1;
  if (quick_crashes < 2) return 0ns;
  const int doublings = std::min(quick_crashes - 2, 20);
  return std::min<Duration>(kBackoffMax, kBackoffFirst * (1 << doublings));
}

Duration Restarts::note_break() {
  breaks = uptime < kQuickCrash ? breaks + 1 : 1;
  if (breaks < 2) return 0ns;
  return std::min<Duration>(kBreakPauseMax, kBreakPauseFirst * (1 << std::min(breaks - 2, 20)));
}

void Restarts::break_for_good() {
  breaks = 0;
  failures.clear();
  failure_pending = true;
}

}  // namespace rubato::elastic

// The restart rules: one budget for the job, back-off on crash loops, and who is to blame.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/time.h"
#include "model/ids.h"

namespace rubato::elastic {

// One worker that ended badly.
struct Failure {
  std::string host;
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  Generation generation = 0;
  int exit_code = 0;  // valid when signal is 0
  int signal = 0;
  Instant at{};            // on the clock of whoever holds the record
  std::string message;     // from the error file, or empty
  std::string traceback;   // from the error file, or empty
  std::string error_file;  // its path on that host, or empty
};
std::string describe(const Failure& failure);  // "rank 3 (local rank 1) on node7: killed by SIGKILL (signal 9)"

// AdaptDL's workers, and those of our library, save and leave with this exit code when they are told to, and when they
// want to be started anew: no failure.
inline constexpr int kSavedAndLeft = 143;
inline bool asks_for_a_restart(const Failure& failure) {
  return failure.signal == 0 && failure.exit_code == kSavedAndLeft;
}

// The failure that came first: the others are mostly its consequences. nullptr when there is none.
const Failure* root_cause(const std::vector<Failure>& failures);

// What two crashes at the start must have in common to be the same: how the first worker ended, and its last message.
// Empty for a crash that may well end otherwise the next time: a signal, or no message.
std::string crash_signature(const std::vector<Failure>& failures);

// Counts restarts that a failure cost. Changes of membership cost nothing.
class RestartBudget {
 public:
  explicit RestartBudget(int max_restarts, int used = 0, int quick_crashes = 0)
      : max_(max_restarts), used_(used), quick_crashes_(quick_crashes) {}

  int used() const { return used_; }
  int left() const { return max_ - used_; }
  int quick_crashes() const { return quick_crashes_; }  // in a row, for whoever keeps the budget elsewhere

  // A generation that ran for `uptime` failed. Returns how long to wait before the next start, or nullopt when the
  // budget is used up. The first crash restarts at once; crashes in a row after a short life back off.
  std::optional<Duration> charge(Duration uptime);

 private:
  int max_;
  int used_;
  int quick_crashes_;
};

// A generation that lived so long was no crash loop.
inline constexpr Duration kQuickCrash = 10s;
// One that did not live longer has done nothing yet: the interpreter started, and imports failed.
inline constexpr Duration kCrashAtStart = 5s;
inline constexpr Duration kBackoffFirst = 100ms;
inline constexpr Duration kBackoffMax = 30s;

}  // namespace rubato::elastic

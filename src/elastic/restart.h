// The restart rules: one budget for a group, back-off on crash loops, and who is to blame.
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
std::string describe_cause(const std::vector<Failure>& failures);  // of that one; "a worker failed" when there is none

// What two crashes at the start must have in common to be the same: how the first worker ended, and its last message.
// Empty for a crash that may well end otherwise the next time: a signal, or no message.
std::string crash_signature(const std::vector<Failure>& failures);

// A generation that lived so long was no crash loop.
inline constexpr Duration kQuickCrash = 10s;
// One that did not live longer has done nothing yet: the interpreter started, and imports failed.
inline constexpr Duration kCrashAtStart = 5s;
inline constexpr Duration kBackoffFirst = 100ms;
inline constexpr Duration kBackoffMax = 30s;
inline constexpr Duration kBreakPauseFirst = 100ms;
inline constexpr Duration kBreakPauseMax = 5s;
// A group that breaks again and again though nobody dies is formed again after a pause that grows, then restarted.
inline constexpr int kBreaksMax = 8;
inline constexpr size_t kFailuresMax = 64;

// What failures of a group's generations have cost, and what the last one still owes. Who forms the group (Rendezvous,
// the head's jobs) embeds it, keeps the time and says what happened; changes of membership cost nothing.
//
//            (1) start                          (2) stop: it failed, or its members change
//   GATHERING ─────────▶ RUNNING ──────────────────────────────────────────────▶ GATHERING
//
//   (3) add           a worker ended badly; the owner sets `failure_pending` where that is to be paid for
//   (4) lost          an agent went away too: that was the cause of the failure, and it is free
//   (5) charge        when all have answered and owes(): the back-off, or the budget is used up
//   (6) note_break    the group failed though nobody died; too often: break_for_good, and all start anew
struct Restarts {
  int used = 0;
  int quick_crashes = 0;  // in a row
  int breaks = 0;         // in a row
  bool failure_pending = false;
  bool lost = false;
  Duration uptime{};              // of the last generation
  std::vector<Failure> failures;  // of the last failed one, the first kFailuresMax

  void start() { failure_pending = lost = false; }
  void stop(Duration after) { uptime = after; }
  void add(const Failure& failure) {
    if (failures.size() < kFailuresMax) failures.push_back(failure);
  }
  bool owes() const { return failure_pending && !lost; }
  // A generation that ran for `after` failed. Returns how long to wait before the next start, or nullopt when `most`
  // are used up. The first crash restarts at once; crashes in a row after a short life back off.
  std::optional<Duration> charge(int most, Duration after);
  // The same for one that costs none of them: who asks to be started anew as soon as it starts is made to wait.
  Duration back_off(Duration after);
  // Returns the pause before the living meet again.
  Duration note_break();
  void break_for_good();
};

}  // namespace rubato::elastic

// Supervisor: keeps one daemon (world/daemons.h) alive. It starts the daemon, waits for its end, and starts it again.
//
//   starting --> watching --(it ended)--> waiting (0 s after a first end, then 0.2 s, doubled, 10 s at most)
//      ^                                     |
//      +-------------------------------------+    ended: no longer wanted, ended for good, SIGTERM
//
// It is the daemon's parent (it is a subreaper, so that what is forked twice comes back to it) and so knows how the
// daemon ended. One that runs already is watched all the same; only the cause of its end is then not known.
// Killed, it is replaced by the daemon, or by its stand-in where the daemon stands still or dies with it.
// The lock in the daemon's folder stays the one truth of whether it runs: a supervisor too many never starts a second
// daemon. It is a plain process without a loop, a thread or a Runtime, and needs little memory.
#pragma once

#include <functional>
#include <string>

#include "core/log.h"
#include "core/time.h"
#include "world/daemons.h"

namespace rubato::os {

// How long to wait before a start: none after the first end, then more and more, until one has lived long enough.
class RestartDelay {
 public:
  static constexpr Duration kFirst = 200ms;
  static constexpr Duration kMax = 10s;
  static constexpr Duration kHealthy = 60s;

  // After a daemon that has lived for so long.
  Duration next(Duration lived);
  int ends_in_a_row() const { return ends_; }

 private:
  int ends_ = 0;
};

// What a supervisor has seen so far.
struct Supervision {
  int restarts = 0;       // starts after an end, in all
  int ends_in_a_row = 0;  // none of those lived for RestartDelay::kHealthy
  std::string last_end;   // "signal 9", "exit code 1"; empty: none has ended
};

struct SupervisorSettings {
  std::string folder;  // the daemon's
  // How it is started. `after`: how the one before has ended; empty: this is the first.
  std::function<DaemonSpec(const std::string& after)> spec;
  std::function<bool()> is_wanted;               // asked before each start
  std::function<bool()> has_ended_for_good;      // asked after each end; true: it is not started again
  std::function<void(const Supervision&)> note;  // after each change
  // In a process of its own (stand_in.h) when the supervisor was killed: starts another one. Empty: nobody does.
  std::function<void()> replace;
  Supervision before;                            // of the supervisor before this one
};

// Returns when the daemon is not to be started any more, and it does not run; SIGTERM ends the daemon first. Blocks
// SIGTERM and SIGCHLD in this process, which is to do nothing else.
void supervise(const SupervisorSettings& settings, const Log& log);

}  // namespace rubato::os

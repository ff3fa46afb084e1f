// ListeningClock: the time in which this process listened. Silence of others is measured in it.
//
// A process that is stopped (SIGSTOP), swapped out, busy with one long turn, or on a paused machine does not hear what
// it is told meanwhile: such a stall proves nothing against anybody else, and does not count here. A lease that others
// have given *us* is measured by the plain clock: they did not stand still.
//
//   ListeningClock listening(loop.now());
//   scope.spawn(keep_listening(loop, listening));               // its turns show when the process stood still
//   const Instant give_up = listening.at(loop.now()) + heartbeat;
//   ... wait until listening.due(give_up, loop.now()), then:
//   if (listening.at(loop.now()) >= give_up) ...                // silent for a heartbeat, and we would have heard
//
// Only a turn of the loop shows that it turns: a question proves nothing. Whoever answers a flood of messages without
// giving way asks all the time, and listens to nobody else.
#pragma once

#include <optional>

#include "core/scope.h"
#include "core/time.h"

namespace rubato {

class ListeningClock {
 public:
  // The loop turns at least so often, by keep_listening(); of a longer pause only this much counts.
  static constexpr Duration kTurn = 250ms;
  static constexpr Duration kStall = 2 * kTurn;

  // A stall of `long_stall` or more may have ended our connections: the others gave us up.
  explicit ListeningClock(Instant now, Duration long_stall = Duration::max())
      : long_stall_(long_stall), last_(now), listened_(now) {}

  // The loop has come round: called by a timer, and by nobody else.
  void turn(Instant now);

  // `now` in listening time. It starts equal to the plain clock, and falls behind by what was not listened.
  Instant at(Instant now) const;

  // When, by the plain clock, the listening time `deadline` comes at the earliest: wait until then and ask again.
  Instant due(Instant deadline, Instant now) const { return now + (deadline - at(now)); }

  // When, in listening time, the last long stall ended; nullopt: there was none. Others may need some time from then
  // on to find us again. Whoever asks first after a stall sees it.
  std::optional<Instant> stalled(Instant now) const { return is_stall(now) ? at(now) : stalled_; }

 private:
  bool is_stall(Instant now) const { return now - last_ > kStall && now - last_ >= long_stall_; }

  Duration long_stall_;
  Instant last_;      // the last turn, by the plain clock
  Instant listened_;  // the same in listening time
  std::optional<Instant> stalled_;
};

// Turns the clock until cancelled.
Task<void> keep_listening(Loop& loop, ListeningClock& listening);

// As with_deadline(), for so much listening time: nullopt means that we listened for so long, and it did not end.
template <class T>
Task<std::optional<T>> within(Loop& loop, ListeningClock& listening, Duration most, Task<T> task) {
  const Instant end = listening.at(loop.now()) + most;
  Event done(loop);
  std::optional<T> value;
  std::exception_ptr error;
  Scope scope(loop);
  Task<void> settled = detail::settle(std::move(task), value, error, done);
  scope.spawn(std::move(settled));
  while (!value && !error && listening.at(loop.now()) < end) co_await done.wait_until(listening.due(end, loop.now()));
  if (error) std::rethrow_exception(error);
  co_return std::move(value);
}

}  // namespace rubato

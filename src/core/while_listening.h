// while_listening: a deadline for one call to somebody else, which a stall of our own does not bring nearer.
#pragma once

#include "core/listening_clock.h"

namespace rubato {

// As within(), for who has no ListeningClock at hand.
template <class T>
Task<std::optional<T>> while_listening(Loop& loop, Duration most, Task<T> task) {
  ListeningClock listening(loop.now());
  Scope scope(loop);
  scope.spawn(keep_listening(loop, listening));
  co_return co_await within(loop, listening, most, std::move(task));
}

}  // namespace rubato

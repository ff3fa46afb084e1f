#include "core/listening_clock.h"

#include <algorithm>

namespace rubato {

Instant ListeningClock::at(Instant now) const {
  return listened_ + std::clamp<Duration>(now - last_, Duration(0), kStall);
}

void ListeningClock::turn(Instant now) {
  if (is_stall(now)) stalled_ = at(now);
  listened_ = at(now);
  last_ = std::max(last_, now);
}

Task<void> keep_listening(Loop& loop, ListeningClock& listening) {
  while (true) {
    co_await Sleep(loop, loop.now() + ListeningClock::kTurn);
    listening.turn(loop.now());
  }
}

}  // namespace rubato

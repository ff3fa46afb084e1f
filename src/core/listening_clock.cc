#include "core/listening_clock.h"

#include <algorithm>

namespace rubato {

Instant ListeningClock::at(Instant now) {
  const Duration pause = std::max<Duration>(0s, now - last_);
  last_ = std::max(last_, now);
  listened_ += std::min(pause, kStall);
  if (pause > kStall && pause >= long_stall_) stalled_ = listened_;
  return listened_;
}

Task<void> keep_listening(Loop& loop, ListeningClock& listening) {
  while (true) {
    co_await Sleep(loop, loop.now() + ListeningClock::kTurn);
    listening.at(loop.now());
  }
}

}  // namespace rubato

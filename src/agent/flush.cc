#include "agent/flush.h"

#include <algorithm>

namespace rubato::agent {

namespace {
constexpr Duration kLook = 50ms;     // how often to ask whether to hurry
constexpr Duration kFlushMax = 60s;  // a reader who takes a byte now and then does not hold us for ever
}  // namespace

Task<size_t> flush(World& world, Outlets& outlets, Duration patience, std::function<bool()> hurry) {
  const Instant end = world.clock.now() + kFlushMax;
  Instant give_up = world.clock.now() + patience;
  size_t left = outlets.out().pending() + outlets.err().pending();
  while (left > 0 && world.clock.now() < std::min(give_up, end) && !hurry()) {
    const Instant look = std::min(give_up, world.clock.now() + kLook);
    Outlet& waited = outlets.out().pending() > 0 ? outlets.out() : outlets.err();
    co_await waited.drained(0, look);
    const size_t now_left = outlets.out().pending() + outlets.err().pending();
    if (now_left < left) give_up = world.clock.now() + patience;
    left = now_left;
  }
  co_return left;
}

}  // namespace rubato::agent

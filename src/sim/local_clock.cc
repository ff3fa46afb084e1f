#include "sim/local_clock.h"

#include <algorithm>

#include "core/error.h"

namespace rubato::sim {

namespace {
constexpr int64_t kBillion = 1'000'000'000;
// The wall-clock time at which every simulation begins; any date will do.
constexpr WallTime kWallStart = std::chrono::sys_days{std::chrono::year{2026} / 1 / 1};

Duration scaled(Duration span, int64_t numerator, int64_t denominator) {
  return Duration(static_cast<int64_t>(static_cast<__int128>(span.count()) * numerator / denominator));
}
}  // namespace

Instant LocalClock::to_local(Instant global) const {
  const Duration passed = global - global_base_;
  return local_base_ + passed + scaled(passed, rate_ppb_, kBillion);
}

Instant LocalClock::to_global(Instant local) const {
  // A deadline may be Instant::max(): "never" must not overflow.
  if (local - local_base_ > Duration::max() / 4) return Instant::max();
  Instant global = global_base_ + scaled(local - local_base_, kBillion, kBillion + rate_ppb_);
  while (to_local(global) < local) global += Duration(1);
  return global;
}

WallTime LocalClock::wall() const {
  const Duration since_start = simulator_.now().time_since_epoch() + wall_offset_;
  return kWallStart + std::chrono::duration_cast<std::chrono::microseconds>(since_start);
}

void LocalClock::set_rate(int64_t rate_ppb) {
  CHECK(rate_ppb > -kBillion);
  local_base_ = now();
  global_base_ = simulator_.now();
  rate_ppb_ = rate_ppb;
}

void LocalClock::restart(Instant start) {
  local_base_ = start;
  global_base_ = simulator_.now();
}

void LocalLoop::make_ready(Waiter& waiter) {
  if (held()) {
    waiting_.push(waiter);
  } else {
    simulator_.make_ready(waiter);
  }
}

void LocalLoop::arm(Timed& timed, Instant at) {
  Scheduler::arm(timed, at);
  if (held()) return;
  // A timer that was disarmed leaves its aim behind: waking early once costs less than aiming at every arm.
  if (!wake_.armed() || clock_.to_global(at) < aimed_at_) aim();
}

void LocalLoop::aim() {
  const std::optional<Instant> next = next_due();
  if (!next || held()) {
    wake_.disarm();
    return;
  }
  aimed_at_ = std::max(simulator_.now(), clock_.to_global(*next));
  simulator_.arm(wake_, aimed_at_);
}

void LocalLoop::wake() {
  if (held()) return;
  fire_due(now(), 1);
  aim();
}

void LocalLoop::release(bool timers_first) {
  CHECK(holds_ > 0);
  if (--holds_ > 0) return;
  if (timers_first) fire_due(now());
  while (Waiter* waiter = waiting_.pop()) simulator_.make_ready(*waiter);
  aim();
}

}  // namespace rubato::sim

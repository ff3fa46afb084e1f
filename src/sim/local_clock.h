// LocalClock: the time of one simulated machine. LocalLoop: the turn and the timers of one program on it.
#pragma once

#include "sim/simulator.h"
#include "world/clock.h"

namespace rubato::sim {

// local = local base + (global - global base) × (1 + rate / 10⁹).
class LocalClock {
 public:
  LocalClock(Simulator& simulator, Instant start, int64_t rate_ppb, Duration wall_offset)
      : simulator_(simulator), local_base_(start), rate_ppb_(rate_ppb), wall_offset_(wall_offset) {}

  Instant now() const { return to_local(simulator_.now()); }
  Instant to_local(Instant global) const;
  Instant to_global(Instant local) const;  // the first global instant at which this clock shows `local` or later
  WallTime wall() const;

  int64_t rate_ppb() const { return rate_ppb_; }

  // Loops that run on this clock must aim() again afterwards; SimMachine does.
  void set_rate(int64_t rate_ppb);
  void step_wall(Duration by) { wall_offset_ += by; }
  void restart(Instant start);  // a boot: the monotonic clock begins anew

 private:
  Simulator& simulator_;
  Instant local_base_;
  Instant global_base_{};
  int64_t rate_ppb_;
  Duration wall_offset_;
};

// Timers are kept in local time; one Timed of the simulator stands for the earliest of them. A held loop (a stopped
// process, a frozen machine) fires no timer and resumes nobody; what came due goes on, late, when it is released.
class LocalLoop final : public Scheduler, public Clock {
 public:
  LocalLoop(Simulator& simulator, LocalClock& clock)
      : simulator_(simulator), clock_(clock), wake_(*this, &LocalLoop::wake) {}

  Instant now() const override { return clock_.now(); }
  WallTime wall() const override { return clock_.wall(); }
  Loop& loop() override { return *this; }
  void make_ready(Waiter& waiter) override;
  void arm(Timed& timed, Instant at) override;

  void hold() { ++holds_; }
  // Whether it sees its overdue timers or its messages first when it wakes up is up to its kernel.
  void release(bool timers_first = false);
  bool held() const { return holds_ > 0; }

  void aim();  // after the clock's rate changed

 private:
  void wake();

  Simulator& simulator_;
  LocalClock& clock_;
  WaitList waiting_;  // ready, but held
  int holds_ = 0;
  Due<LocalLoop> wake_;
  Instant aimed_at_{};
};

}  // namespace rubato::sim

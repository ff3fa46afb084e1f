// Turns: long work on the loop, cut into pieces between which others go first.
//
//   Turns turns(loop);
//   for (...) { one piece; co_await turns.step(); }
//
// Sleep(loop, now + a little) is no substitute: on a real clock that instant has passed when it is asked for, and the
// coroutine goes on without a pause.
#pragma once

#include "core/loop.h"

namespace rubato {

class Turns {
 public:
  static constexpr int kStepsMax = 32;       // for clocks that stand still during a turn
  static constexpr Duration kTurnMax = 5ms;  // a step may wait for the disk: their number alone bounds nothing

  explicit Turns(Loop& loop) : loop_(loop), began_(loop.now()) {}

  class Step final : public Timed {
   public:
    explicit Step(Turns& turns) : turns_(turns) {}
    bool await_ready() { return ++turns_.steps_ < kStepsMax && turns_.loop_.now() - turns_.began_ < kTurnMax; }
    // A timer and not the queue of ready coroutines: that one is emptied before anybody looks at the network.
    void await_suspend(std::coroutine_handle<> handle) {
      waiter_.handle = handle;
      turns_.loop_.arm(*this, turns_.loop_.now());
    }
    void await_resume() {
      if (!waiter_.handle) return;
      turns_.steps_ = 0;
      turns_.began_ = turns_.loop_.now();
    }
    void due() override { turns_.loop_.make_ready(waiter_); }

   private:
    Turns& turns_;
    Waiter waiter_;
  };

  // After each piece of the work: goes on at once, or, when this turn was long enough, in another one.
  Step step() { return Step(*this); }

 private:
  Loop& loop_;
  Instant began_;
  int steps_ = 0;
};

}  // namespace rubato

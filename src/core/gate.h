// Gate: lets one coroutine pass at a time.
//
//   const Gate::Pass pass = co_await gate.enter();   // until `pass` goes
#pragma once

#include <utility>

#include "core/channel.h"
#include "core/task.h"

namespace rubato {

class Gate {
 public:
  explicit Gate(Loop& loop) : opened_(loop) {}

  class Pass {
   public:
    explicit Pass(Gate& gate) : gate_(&gate) {}
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass() {
      if (gate_) gate_->leave();
    }

   private:
    Gate* gate_;
  };

  Task<Pass> enter() {
    while (taken_) co_await opened_.wait();
    taken_ = true;
    co_return Pass(*this);
  }

 private:
  void leave() {
    taken_ = false;
    opened_.notify();
  }

  Event opened_;
  bool taken_ = false;
};

}  // namespace rubato

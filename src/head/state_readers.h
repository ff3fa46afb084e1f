// StateReaders: long looks at the state beside the loop. The state stands still while somebody looks, so a turn waits
// for those who do; whoever comes while a turn waits or runs looks after it. Nobody starves.
//
//   readers: read() ──▶ no turn is under way ──▶ work beside the loop ──▶ done
//   turn:    pause() ─▶ nobody reads ──▶ changes the state ──▶ ~Pause
#pragma once

#include <memory>

#include "cluster/state.h"
#include "head/offload.h"

namespace rubato::head {

class StateReaders {
 public:
  StateReaders(Loop& loop, Offload offload, std::shared_ptr<const cluster::State> state)
      : state_(std::move(state)), changed_(loop), work_(loop, std::move(offload)) {}

  // Throws what the work throws, which owns what it touches.
  Task<void> read(std::function<void(const cluster::State&)> look) {
    while (paused_ > 0) co_await changed_.wait();
    ++reading_;
    std::function<void()> work = [state = state_, look = std::move(look)] { look(*state); };
    std::function<void()> after = [this] {
      --reading_;
      changed_.notify();
    };
    co_await work_.run(next_++, std::move(work), std::move(after));
  }

  // While it is there nobody reads.
  class Pause {
   public:
    explicit Pause(StateReaders& readers) : readers_(readers) { ++readers_.paused_; }
    Pause(const Pause&) = delete;
    ~Pause() {
      --readers_.paused_;
      readers_.changed_.notify();
    }
    Task<void> begun() {
      while (readers_.reading_ > 0) co_await readers_.changed_.wait();
    }

   private:
    StateReaders& readers_;
  };

 private:
  const std::shared_ptr<const cluster::State> state_;
  int paused_ = 0;
  int reading_ = 0;
  uint64_t next_ = 0;
  Event changed_;
  Chores<uint64_t> work_;
};

}  // namespace rubato::head

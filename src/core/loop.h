// Loop: the one thread's queue of coroutines that may go on, and of timers.
//
// Cancel = destroy: a coroutine frame may be destroyed while it waits. Each wait is a Waiter (or Timed) object
// inside the frame that takes itself off whatever list it is on, so that nothing ever resumes a dead frame.
// Not thread-safe: everything happens on the loop's thread.
#pragma once

#include <coroutine>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>

#include "core/time.h"

namespace rubato {

class WaitList;

// One suspended coroutine on at most one list.
class Waiter {
 public:
  Waiter() = default;
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  ~Waiter() { unlink(); }

  void unlink();
  bool linked() const { return list_ != nullptr; }

  std::coroutine_handle<> handle;

 private:
  friend class WaitList;
  WaitList* list_ = nullptr;
  Waiter* previous_ = nullptr;
  Waiter* next_ = nullptr;
};

// An intrusive FIFO of Waiters.
class WaitList {
 public:
  WaitList() = default;
  WaitList(const WaitList&) = delete;
  WaitList& operator=(const WaitList&) = delete;
  ~WaitList();

  bool empty() const { return head_ == nullptr; }
  void push(Waiter& waiter);  // takes it off any other list first
  Waiter* pop();              // nullptr when empty

 private:
  friend class Waiter;
  Waiter* head_ = nullptr;
  Waiter* tail_ = nullptr;
};

class Loop;
class Scheduler;

// Something due at an instant. Destruction or disarm() takes it off the loop.
class Timed {
 public:
  Timed() = default;
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  virtual ~Timed() { disarm(); }

  void disarm();
  bool armed() const { return scheduler_ != nullptr; }
  virtual void due() = 0;

 private:
  friend class Scheduler;
  Scheduler* scheduler_ = nullptr;
  Instant at_{};
  uint64_t sequence_ = 0;
};

// What a coroutine needs to wait: a time, timers, and its turn. Clocks of simulated machines are facades of one
// Scheduler with their own rate.
class Loop {
 public:
  virtual ~Loop() = default;
  virtual Instant now() const = 0;

  // The coroutine goes on in a later turn, in the order of these calls.
  virtual void make_ready(Waiter& waiter) = 0;

  // Timers fire in the order of (instant, arming). Arming again moves it.
  virtual void arm(Timed& timed, Instant at) = 0;
};

// The queues themselves; os/ and sim/ derive from it and turn it.
class Scheduler : public Loop {
 public:
  ~Scheduler() override;  // disarms the timers that are left: they may outlive it

  void make_ready(Waiter& waiter) override { ready_.push(waiter); }
  void arm(Timed& timed, Instant at) override;

  // Resumes what is ready until nothing is. True if anything ran.
  bool drain();

  std::optional<Instant> next_due() const;

  // Fires the timers due at or before `now`; `most` bounds how many. True if any fired.
  bool fire_due(Instant now, size_t most = SIZE_MAX);

 private:
  friend class Timed;
  struct Earlier {
    bool operator()(const Timed* a, const Timed* b) const {
      return a->at_ != b->at_ ? a->at_ < b->at_ : a->sequence_ < b->sequence_;
    }
  };
  WaitList ready_;
  std::set<Timed*, Earlier> timers_;
  uint64_t next_sequence_ = 0;
};

// co_await Sleep(loop, at): suspends until the instant.
class Sleep final : public Timed {
 public:
  Sleep(Loop& loop, Instant at) : loop_(loop), at_(at) {}
  bool await_ready() const { return at_ <= loop_.now(); }
  void await_suspend(std::coroutine_handle<> handle) {
    waiter_.handle = handle;
    loop_.arm(*this, at_);
  }
  void await_resume() const {}
  void due() override { loop_.make_ready(waiter_); }

 private:
  Loop& loop_;
  Instant at_;
  Waiter waiter_;
};

// Calls a function at an instant; arming again moves it. The function may destroy the Alarm's owner.
class Alarm final : public Timed {
 public:
  Alarm(Loop& loop, std::function<void()> call) : loop_(loop), call_(std::move(call)) {}
  void set(Instant at) { loop_.arm(*this, at); }
  void due() override { call_(); }

 private:
  Loop& loop_;
  std::function<void()> call_;
};

}  // namespace rubato

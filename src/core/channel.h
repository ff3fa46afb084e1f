// Event, Channel: how coroutines on one loop wait for each other. Waiting is cancel-safe: a frame that is
// destroyed while it waits takes itself off, and no item is lost with it.
#pragma once

#include <deque>
#include <optional>

#include "core/loop.h"
#include "core/task.h"

namespace rubato {

// Wakes every waiter, at notify or at a deadline. It keeps no memory: check your condition, then wait.
class Event {
 public:
  explicit Event(Loop& loop) : loop_(loop) {}

  void notify() {
    while (Waiter* waiter = waiters_.pop()) loop_.make_ready(*waiter);
  }

  class Wait final : public Timed {
   public:
    Wait(Event& event, std::optional<Instant> deadline) : event_(event), deadline_(deadline) {}
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
      waiter_.handle = handle;
      event_.waiters_.push(waiter_);
      if (deadline_) event_.loop_.arm(*this, *deadline_);
    }
    void await_resume() const {}
    void due() override { event_.loop_.make_ready(waiter_); }

   private:
    Event& event_;
    std::optional<Instant> deadline_;
    Waiter waiter_;
  };

  Wait wait() { return Wait(*this, std::nullopt); }
  Wait wait_until(Instant deadline) { return Wait(*this, deadline); }

  Loop& loop() const { return loop_; }

 private:
  Loop& loop_;
  WaitList waiters_;
};

// An unbounded queue with close. Several producers, one consumer at a time. Bounds belong to the producer,
// who alone knows whether to drop, wait or break off.
template <class T>
class Channel {
 public:
  explicit Channel(Loop& loop) : changed_(loop) {}

  void push(T item) {
    if (closed_) return;
    items_.push_back(std::move(item));
    changed_.notify();
  }

  // After the items that are already there, pop() answers nullopt.
  void close() {
    closed_ = true;
    changed_.notify();
  }

  bool closed() const { return closed_; }
  size_t size() const { return items_.size(); }

  std::optional<T> try_pop() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  // nullopt: closed and empty.
  Task<std::optional<T>> pop() {
    while (items_.empty() && !closed_) co_await changed_.wait();
    co_return try_pop();
  }

  // nullopt: closed and empty, or the deadline came first.
  Task<std::optional<T>> pop_until(Instant deadline) {
    while (items_.empty() && !closed_ && changed_.loop().now() < deadline) co_await changed_.wait_until(deadline);
    co_return try_pop();
  }

 private:
  Event changed_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace rubato

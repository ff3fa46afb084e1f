// Scope: owns child tasks. No task is detached: when a Scope goes, its children are cancelled.
#pragma once

#include <exception>
#include <list>
#include <memory>
#include <variant>

#include "core/channel.h"
#include "core/task.h"

namespace rubato {

class Scope {
 public:
  explicit Scope(Loop& loop) : changed_(loop) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { cancel(); }

  // The child runs at once, up to its first wait. Not to be called from a destructor.
  void spawn(Task<void> task);

  // Waits until every child is done. The first child to throw cancels the others, and its error is thrown here.
  Task<void> join();

  // Destroys the children. Must not be called from inside one of them.
  void cancel();

  size_t running() const;

 private:
  struct Runner;
  struct Child {
    std::coroutine_handle<> runner;
    bool done = false;
    ~Child() {
      if (runner) runner.destroy();
    }
  };
  static Runner run(Scope& scope, Child& child, Task<void> task);
  void sweep();

  Event changed_;
  std::list<std::unique_ptr<Child>> children_;
  std::exception_ptr error_;
};

// The result of the task, or nullopt when the deadline came first (the task is then cancelled).
template <class T>
Task<std::optional<T>> with_deadline(Loop& loop, Instant deadline, Task<T> task);

// The first of the two to end wins; the other is cancelled in that moment, so that it takes nothing more.
template <class A, class B>
Task<std::variant<A, B>> race(Loop& loop, Task<A> a, Task<B> b);

namespace detail {

// Runs the task to its end and keeps the value or the error for whoever waits on `done`.
template <class T>
Task<void> settle(Task<T> task, std::optional<T>& value, std::exception_ptr& error, Event& done) {
  try {
    value.emplace(co_await std::move(task));
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  done.notify();
}

// Settles and cancels the rival at once: in the same turn it could end too, and its result would be lost.
template <class T>
Task<void> settle_first(Task<T> task, std::optional<T>& value, std::exception_ptr& error, Event& done, Scope& rival) {
  Task<void> settled = settle(std::move(task), value, error, done);
  co_await std::move(settled);
  rival.cancel();
}

}  // namespace detail

template <class T>
Task<std::optional<T>> with_deadline(Loop& loop, Instant deadline, Task<T> task) {
  Event done(loop);
  std::optional<T> value;
  std::exception_ptr error;
  Scope scope(loop);
  Task<void> settled = detail::settle(std::move(task), value, error, done);
  scope.spawn(std::move(settled));
  while (!value && !error && loop.now() < deadline) co_await done.wait_until(deadline);
  if (error) std::rethrow_exception(error);
  co_return std::move(value);
}

template <class A, class B>
Task<std::variant<A, B>> race(Loop& loop, Task<A> a, Task<B> b) {
  Event done(loop);
  std::optional<A> first;
  std::optional<B> second;
  std::exception_ptr error;
  Scope left(loop), right(loop);
  Task<void> settled_first = detail::settle_first(std::move(a), first, error, done, right);
  left.spawn(std::move(settled_first));
  if (!first && !error) {
    Task<void> settled_second = detail::settle_first(std::move(b), second, error, done, left);
    right.spawn(std::move(settled_second));
  }
  while (!first && !second && !error) co_await done.wait();
  if (error) std::rethrow_exception(error);
  if (first) co_return std::variant<A, B>(std::in_place_index<0>, std::move(*first));
  co_return std::variant<A, B>(std::in_place_index<1>, std::move(*second));
}

}  // namespace rubato

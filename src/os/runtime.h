// Runtime: the loop of a real process. One thread runs coroutines, timers and Asio handlers.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>

#include "core/scope.h"
#include "world/clock.h"

namespace rubato::os {

class Runtime final : public Scheduler, public Clock {
 public:
  Runtime();
  ~Runtime() override;

  Instant now() const override;  // CLOCK_MONOTONIC
  WallTime wall() const override;
  Loop& loop() override { return *this; }

  boost::asio::io_context& io() { return io_; }

  // Runs the task to its end on this thread and returns what it returned, or throws what it threw.
  template <class T>
  T run(Task<T> task);

  // Runs a blocking function (getaddrinfo, fsync) on another thread. The function must own what it touches:
  // the awaiting coroutine may be cancelled before it ends.
  template <class T>
  Task<T> offload(std::function<T()> work);

 private:
  void turn();
  static Task<bool> with_value(Task<void> task);

  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> keep_;
  std::unique_ptr<boost::asio::thread_pool> pool_;  // made at first use: most runs need no second thread
  void post_to_pool(std::function<void()> work);
};

template <class T>
T Runtime::run(Task<T> task) {
  // Of a task without a value only the end counts.
  using Kept = std::conditional_t<std::is_void_v<T>, bool, T>;
  std::optional<Kept> result;
  std::exception_ptr error;
  Event done(*this);
  Scope scope(*this);
  if constexpr (std::is_void_v<T>) {
    scope.spawn(detail::settle(with_value(std::move(task)), result, error, done));
  } else {
    scope.spawn(detail::settle(std::move(task), result, error, done));
  }
  while (!result && !error) turn();
  if (error) std::rethrow_exception(error);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

template <class T>
Task<T> Runtime::offload(std::function<T()> work) {
  struct Shared {
    explicit Shared(Loop& loop) : done(loop) {}
    Event done;
    std::optional<T> value;
    std::exception_ptr error;
  };
  auto shared = std::make_shared<Shared>(*this);
  std::function<void()> job = [this, shared, work = std::move(work)] {
    std::optional<T> value;
    std::exception_ptr error;
    try {
      value.emplace(work());
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    boost::asio::post(io_, [shared, value = std::move(value), error]() mutable {
      shared->value = std::move(value);
      shared->error = error;
      shared->done.notify();
    });
  };
  post_to_pool(std::move(job));
  while (!shared->value && !shared->error) co_await shared->done.wait();
  if (shared->error) std::rethrow_exception(shared->error);
  co_return std::move(*shared->value);
}

}  // namespace rubato::os

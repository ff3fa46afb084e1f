// Task<T>: a lazy coroutine with one awaiter. Destroying a Task cancels it: its frame, and with it every
// wait and every child it owns, is gone when the destructor returns.
//
// g++ 12 miscompiles aggregate temporaries and capturing lambdas inside a co_await expression: build the
// argument as a named local first (tools/tidy.py finds the bad shapes).
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "core/error.h"

namespace rubato {

template <class T>
class Task;

namespace detail {

struct PromiseBase {
  std::coroutine_handle<> continuation = std::noop_coroutine();
  std::exception_ptr error;

  std::suspend_always initial_suspend() noexcept { return {}; }
  struct Final {
    bool await_ready() noexcept { return false; }
    template <class P>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<P> self) noexcept {
      return self.promise().continuation;
    }
    void await_resume() noexcept {}
  };
  Final final_suspend() noexcept { return {}; }
  void unhandled_exception() { error = std::current_exception(); }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  void return_value(T v) { value.emplace(std::move(v)); }
  T take() {
    if (error) std::rethrow_exception(error);
    return std::move(*value);
  }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() {}
  void take() {
    if (error) std::rethrow_exception(error);
  }
};

}  // namespace detail

template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  ~Task() { reset(); }

  explicit operator bool() const { return static_cast<bool>(handle_); }

  // Cancels: destroys the frame if there is one.
  void reset() {
    if (handle_) std::exchange(handle_, {}).destroy();
  }

  struct Awaiter {
    Handle handle;
    bool await_ready() const { return false; }
    // A plain resume, no symmetric transfer: g++ makes that a nested call in builds without -O2, so that a loop of
    // awaits that need no wait would use up the stack. The continuation counts only after a real wait.
    bool await_suspend(std::coroutine_handle<> awaiting) {
      handle.resume();
      if (handle.done()) return false;
      handle.promise().continuation = awaiting;
      return true;
    }
    T await_resume() { return handle.promise().take(); }
  };
  Awaiter operator co_await() && {
    CHECK(handle_);
    return Awaiter{handle_};
  }

 private:
  Handle handle_;
};

namespace detail {
template <class T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}
}  // namespace detail

}  // namespace rubato

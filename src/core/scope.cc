#include "core/scope.h"

namespace rubato {

// The coroutine around a child: starts at once, and after its end waits to be destroyed by the Scope.
struct Scope::Runner {
  struct promise_type {
    Runner get_return_object() { return Runner{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

Scope::Runner Scope::run(Scope& scope, Child& child, Task<void> task) {
  try {
    co_await std::move(task);
  } catch (const std::exception&) {
    if (!scope.error_) scope.error_ = std::current_exception();
  }
  // What it was given (a connection, say) goes now, not when somebody looks at the scope the next time.
  task.reset();
  child.done = true;
  scope.changed_.notify();
}

void Scope::spawn(Task<void> task) {
  // Thousands of children are not looked through for each new one.
  constexpr size_t kFew = 16;
  if (children_.size() <= kFew || children_.size() % kFew == 0) sweep();
  children_.push_back(std::make_unique<Child>());
  Child& child = *children_.back();
  child.runner = run(*this, child, std::move(task)).handle;
}

Task<void> Scope::join() {
  while (running() > 0 && !error_) co_await changed_.wait();
  cancel();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Scope::cancel() {
  // A child's destructors may look at the scope: take each off the list before it goes.
  while (!children_.empty()) {
    std::unique_ptr<Child> child = std::move(children_.back());
    children_.pop_back();
  }
}

size_t Scope::running() const {
  size_t count = 0;
  for (const auto& child : children_) count += child->done ? 0 : 1;
  return count;
}

void Scope::sweep() {
  children_.remove_if([](const std::unique_ptr<Child>& child) { return child->done; });
}

}  // namespace rubato

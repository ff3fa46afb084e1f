// Offload: work that takes long, beside the loop. A loop that hashes a gigabyte is taken for dead by its agents.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/channel.h"
#include "core/error.h"
#include "core/scope.h"
#include "core/task.h"

namespace rubato::head {

// The work owns what it touches, or that outlives everything: whoever waits may be gone before it has ended.
using Offload = std::function<Task<void>(std::function<void()> work)>;

// Unset: on the loop, as in simulation.
inline Task<void> run_beside(const Offload& offload, std::function<void()> work) {
  if (!offload) {
    work();
    co_return;
  }
  Task<void> beside = offload(std::move(work));
  co_await std::move(beside);
}

// Frees what may be large: a state of 50,000 jobs takes longer than a turn may.
template <class T>
Task<void> free_beside(const Offload& offload, std::shared_ptr<T> value) {
  const auto holder = std::make_shared<std::shared_ptr<T>>(std::move(value));
  std::function<void()> work = [holder] { holder->reset(); };
  co_await run_beside(offload, std::move(work));
}

// Work beside the loop, one piece at a time for each key. It comes to its end though whoever asked for it is gone: the
// next one who asks, on another connection, must find it done.
template <class Key>
class Chores {
 public:
  Chores(Loop& loop, Offload offload) : loop_(loop), offload_(std::move(offload)), scope_(loop) {}

  // Until nothing is under way for this key.
  Task<void> idle(Key key) {
    while (true) {
      const auto found = chores_.find(key);
      if (found == chores_.end()) co_return;
      const std::shared_ptr<Chore> chore = found->second;
      while (!chore->done) co_await chore->ended.wait();
    }
  }

  // Throws what the work throws. `after` runs on the loop, in any case.
  Task<void> run(Key key, std::function<void()> work, std::function<void()> after) {
    const auto chore = std::make_shared<Chore>(loop_);
    chores_[key] = chore;
    scope_.spawn(carry_out(std::move(key), chore, std::move(work), std::move(after)));
    while (!chore->done) co_await chore->ended.wait();
    if (chore->error) throw Error(*chore->error);
  }

 private:
  struct Chore {
    explicit Chore(Loop& loop) : ended(loop) {}
    Event ended;
    bool done = false;
    std::optional<Error> error;
  };

  Task<void> carry_out(Key key, std::shared_ptr<Chore> chore, std::function<void()> work, std::function<void()> after) {
    try {
      co_await run_beside(offload_, std::move(work));
    } catch (const Error& error) {
      chore->error = error;
    } catch (const std::exception& error) {
      chore->error = Error(ErrorCode::kFailed, error.what());
    }
    try {
      after();
    } catch (const Error& error) {
      if (!chore->error) chore->error = error;
    }
    chores_.erase(key);
    chore->done = true;
    chore->ended.notify();
  }

  Loop& loop_;
  const Offload offload_;
  std::map<Key, std::shared_ptr<Chore>> chores_;
  Scope scope_;
};

}  // namespace rubato::head

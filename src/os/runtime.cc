#include "os/runtime.h"

#include <time.h>

#include <boost/asio/post.hpp>

#include "os/turn_watch.h"

namespace rubato::os {

namespace {
Instant read_clock() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant(std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec));
}
}  // namespace

Runtime::Runtime() : io_(1), keep_(io_.get_executor()) {}

Runtime::~Runtime() {
  if (pool_) pool_->stop();
}

Instant Runtime::now() const { return read_clock(); }

WallTime Runtime::wall() const {
  return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
}

void Runtime::turn() {
  TurnWatch::begin_turn();
  const bool ran = drain();
  TurnWatch::end_turn();
  TurnWatch::begin_turn();
  // What ran may have been the end of run()'s task: look before blocking.
  if (ran) {
    // It may have taken long. What came meanwhile counts before the deadlines that passed meanwhile: whoever is late
    // ourselves must not call others silent.
    io_.poll();
    drain();
    fire_due(now());
    TurnWatch::end_turn();
    return;
  }
  const std::optional<Instant> due = next_due();
  if (due) {
    const Instant current = now();
    if (*due <= current) {
      fire_due(current);
    } else {
      io_.run_one_for(*due - current);  // waiting takes no CPU time
    }
  } else {
    io_.run_one();
  }
  io_.poll();
  TurnWatch::end_turn();
}

Task<bool> Runtime::with_value(Task<void> task) {
  co_await std::move(task);
  co_return true;
}

void Runtime::post_to_pool(std::function<void()> work) {
  if (!pool_) pool_ = std::make_unique<boost::asio::thread_pool>(1);
  boost::asio::post(*pool_, std::move(work));
}

}  // namespace rubato::os

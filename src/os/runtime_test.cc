#include "os/runtime.h"

#include <gtest/gtest.h>

#include "core/channel.h"

namespace rubato::os {
namespace {

Task<int> take(Channel<int>& channel) {
  const std::optional<int> value = co_await channel.pop();
  co_return value.value_or(-1);
}

Task<void> wait_until(Runtime& runtime, Channel<int>& channel, Instant deadline, int& result) {
  Task<int> taken = take(channel);
  const std::optional<int> value = co_await with_deadline(runtime, deadline, std::move(taken));
  result = value.value_or(0);
}

// Something arrives, but this thread is busy until the deadline has passed.
Task<int> be_late(Runtime& runtime) {
  Channel<int> channel(runtime);
  const Instant deadline = runtime.now() + 20ms;
  int result = -1;
  Scope scope(runtime);
  scope.spawn(wait_until(runtime, channel, deadline, result));
  co_await Sleep(runtime, runtime.now() + 1ms);
  boost::asio::post(runtime.io(), [&channel] { channel.push(7); });
  while (runtime.now() < deadline + 1ms) {
  }
  co_await scope.join();
  co_return result;
}

TEST(Runtime, WhatHasArrivedCountsBeforeADeadlineThatPassedWhileItWasBusy) {
  Runtime runtime;
  EXPECT_EQ(runtime.run(be_late(runtime)), 7);
}

}  // namespace
}  // namespace rubato::os

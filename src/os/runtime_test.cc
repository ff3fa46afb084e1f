#include "os/runtime.h"

#include <gtest/gtest.h>

#include "core/channel.h"
#include "core/turns.h"

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
  co_await Sleep(runtime, runtime.now() + 1ms);  // all that follows is one turn of the loop
  Channel<int> channel(runtime);
  const Instant deadline = runtime.now() + 400ms;
  int result = -1;
  Scope scope(runtime);
  scope.spawn(wait_until(runtime, channel, deadline, result));
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

Task<void> work_in_turns(Runtime& runtime, int pieces, int& done) {
  Turns turns(runtime);
  for (; done < pieces; ++done) co_await turns.step();
}

// How much of the work was done when something that came right at its beginning was looked at.
Task<int> hear_while_working(Runtime& runtime, int pieces) {
  int done = 0;
  int heard_at = -1;
  Scope scope(runtime);
  boost::asio::post(runtime.io(), [&] { heard_at = done; });
  scope.spawn(work_in_turns(runtime, pieces, done));
  co_await scope.join();
  co_return heard_at;
}

// With Sleep(now + 1ns) between the pieces this was `pieces`: on a real clock that instant is over when it is asked
// for.
TEST(Runtime, OthersGetTheirTurnWhileLongWorkGoesOn) {
  Runtime runtime;
  const int heard_at = runtime.run(hear_while_working(runtime, 1000));
  EXPECT_GE(heard_at, 0);
  EXPECT_LE(heard_at, Turns::kStepsMax);
}

}  // namespace
}  // namespace rubato::os

#include "os/turn_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "os/runtime.h"

namespace rubato::os {
namespace {

Task<int> burn(Loop& loop, Duration span) {
  co_await Sleep(loop, loop.now() + 1ms);  // the first steps of a task are no turn of the loop
  timespec t{};
  const auto cpu = [&t] {
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return Duration(std::chrono::seconds(t.tv_sec)) + Duration(t.tv_nsec);
  };
  for (const Duration end = cpu() + span; cpu() < end;) {
  }
  co_return 0;
}

// The watchdog itself: it sees a long turn, and not one that waits.
TEST(TurnWatch, ReportsWhatTakesCpuTimeAndWhereItWas) {
  Runtime runtime;
  TurnWatch watch(TurnWatchSettings::from({{"RUBATO_TURN_LIMIT_MS", "20"}}));
  std::vector<LongTurn> turns;
  Duration longest{};
  watch.report = [&](const LongTurn& turn) { turns.push_back(turn); };
  watch.observe = [&](Duration cpu) { longest = std::max(longest, cpu); };
  watch.start();
  runtime.run(burn(runtime.loop(), 5ms));
  EXPECT_TRUE(turns.empty());
  runtime.run(burn(runtime.loop(), 60ms));
  ASSERT_EQ(turns.size(), 1u);
  EXPECT_GE(turns[0].cpu, 60ms);
  EXPECT_GE(longest, 60ms);
  EXPECT_TRUE(turns[0].stack.starts_with("0x")) << turns[0].stack;
}

}  // namespace
}  // namespace rubato::os

#include "agent/file_timer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace rubato::agent {
namespace {

std::string request(int pid, const std::string& scope, double expires, int signal) {
  return fmt::format(R"({{"version": 1, "pid": {}, "scope_id": "{}", "expiration_time": {}, "signal": {}}})", pid,
                     scope, expires, signal);
}

WallTime at(int seconds) { return WallTime(std::chrono::seconds(seconds)); }

TEST(TimerTable, ExpiresOnceAndOnlyWhatWasNotReleased) {
  TimerTable table;
  EXPECT_FALSE(table.next());
  table.take(request(7, "a", 100.5, 9));
  table.take(request(8, "b", 101, 15));
  EXPECT_EQ(table.next(), at(100) + 500ms);
  EXPECT_TRUE(table.expire(at(100)).empty());
  table.take(request(7, "a", -1, 0));
  EXPECT_EQ(table.next(), at(101));
  const auto expired = table.expire(at(102));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].pid, 8);
  EXPECT_EQ(expired[0].signal, 15);
  EXPECT_TRUE(table.expire(at(200)).empty());
}

TEST(TimerTable, OfSeveralTheEarliestWithASignalCounts) {
  TimerTable table;
  table.take(request(7, "c", 12, 9));
  table.take(request(7, "a", 10, 0));
  table.take(request(7, "b", 11, 15));
  table.take(request(7, "later", 99, 2));
  const auto expired = table.expire(at(20));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].signal, 15);
  EXPECT_EQ(expired[0].scope, "b");
  EXPECT_FALSE(table.next());  // a process that is signalled has no timers any more
}

TEST(TimerTable, AnAcquisitionAgainIsTheNewTime) {
  TimerTable table;
  table.take(request(7, "a", 10, 9));
  table.take(request(7, "a", 30, 9));
  EXPECT_TRUE(table.expire(at(20)).empty());
  EXPECT_EQ(table.expire(at(30)).size(), 1u);
}

TEST(TimerTable, IgnoresWhatIsNoRequest) {
  TimerTable table;
  for (const char* line :
       {"", "{", "[]", "7", R"({"pid": 7})", R"({"pid": "x", "scope_id": "a", "expiration_time": 1, "signal": 9})",
        R"({"pid": 7, "scope_id": 1, "expiration_time": 1, "signal": 9})"}) {
    table.take(line);
  }
  EXPECT_FALSE(table.next());
}

}  // namespace
}  // namespace rubato::agent

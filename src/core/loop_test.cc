#include "core/loop.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>

#include "core/loop_testing.h"

namespace rubato {
namespace {

TEST(WaitList, IsFirstInFirstOut) {
  WaitList list;
  Waiter a, b;
  list.push(a);
  list.push(b);
  EXPECT_EQ(list.pop(), &a);
  EXPECT_EQ(list.pop(), &b);
  EXPECT_EQ(list.pop(), nullptr);
}

TEST(WaitList, AWaiterThatIsDestroyedTakesItselfOffFromAnyPlace) {
  for (int place = 0; place < 3; ++place) {
    WaitList list;
    auto waiters = std::make_unique<std::optional<Waiter>[]>(3);
    for (int i = 0; i < 3; ++i) list.push(waiters[i].emplace());
    waiters[place].reset();
    for (int i = 0; i < 3; ++i) {
      if (i == place) continue;
      EXPECT_EQ(list.pop(), &*waiters[i]);
    }
    EXPECT_TRUE(list.empty());
  }
}

TEST(WaitList, PushingMovesAWaiterFromItsOtherList) {
  WaitList first, second;
  Waiter waiter;
  first.push(waiter);
  second.push(waiter);
  EXPECT_TRUE(first.empty());
  second.push(waiter);
  EXPECT_EQ(second.pop(), &waiter);
  EXPECT_FALSE(waiter.linked());
}

TEST(WaitList, MayGoBeforeItsWaiters) {
  Waiter waiter;
  {
    WaitList list;
    list.push(waiter);
  }
  EXPECT_FALSE(waiter.linked());
}

class NamedTimer final : public Timed {
 public:
  NamedTimer(Trace& trace, std::string name) : trace_(trace), name_(std::move(name)) {}
  void due() override { trace_.push_back(name_); }

 private:
  Trace& trace_;
  std::string name_;
};

TEST(Scheduler, FiresInTheOrderOfInstantAndArming) {
  ManualLoop loop;
  Trace trace;
  NamedTimer a(trace, "a"), b(trace, "b"), c(trace, "c");
  loop.arm(a, Instant(2s));
  loop.arm(b, Instant(1s));
  loop.arm(c, Instant(2s));
  loop.arm(a, Instant(2s));  // armed again: behind c now
  EXPECT_EQ(loop.next_due(), Instant(1s));
  EXPECT_TRUE(loop.fire_due(Instant(5s)));
  EXPECT_EQ(trace, (Trace{"b", "c", "a"}));
  EXPECT_EQ(loop.next_due(), std::nullopt);
}

TEST(Scheduler, FiresNothingEarlyAndNoMoreThanAsked) {
  ManualLoop loop;
  Trace trace;
  NamedTimer a(trace, "a"), b(trace, "b");
  loop.arm(a, Instant(1s));
  loop.arm(b, Instant(1s));
  EXPECT_FALSE(loop.fire_due(Instant(1s) - 1ns));
  EXPECT_TRUE(loop.fire_due(Instant(1s), 1));
  EXPECT_EQ(trace, (Trace{"a"}));
  EXPECT_TRUE(b.armed());
}

TEST(Scheduler, ADisarmedOrDestroyedTimerNeverFires) {
  ManualLoop loop;
  Trace trace;
  NamedTimer a(trace, "a");
  auto b = std::make_unique<NamedTimer>(trace, "b");
  loop.arm(a, Instant(1s));
  loop.arm(*b, Instant(1s));
  a.disarm();
  b.reset();
  EXPECT_FALSE(loop.fire_due(Instant(2s)));
  EXPECT_TRUE(trace.empty());
}

TEST(Scheduler, MayGoBeforeItsTimersAndWaiters) {
  Trace trace;
  NamedTimer timer(trace, "timer");
  Waiter waiter;
  {
    ManualLoop loop;
    loop.arm(timer, Instant(1s));
    loop.make_ready(waiter);
  }
  EXPECT_FALSE(timer.armed());
  EXPECT_FALSE(waiter.linked());
}

TEST(Alarm, MayDestroyItself) {
  ManualLoop loop;
  int calls = 0;
  std::unique_ptr<Alarm> alarm;
  alarm = std::make_unique<Alarm>(loop, [&] {
    ++calls;
    alarm.reset();
  });
  alarm->set(Instant(1s));
  loop.advance(10s);
  EXPECT_EQ(calls, 1);
}

TEST(Alarm, MayDestroyAnotherThatIsDueAtTheSameInstant) {
  ManualLoop loop;
  Trace trace;
  auto victim = std::make_unique<NamedTimer>(trace, "victim");
  Alarm killer(loop, [&] { victim.reset(); });
  killer.set(Instant(1s));
  loop.arm(*victim, Instant(1s));
  loop.advance(10s);
  EXPECT_TRUE(trace.empty());
}

TEST(Alarm, MaySetItselfAgain) {
  ManualLoop loop;
  std::vector<Instant> calls;
  std::unique_ptr<Alarm> alarm;
  alarm = std::make_unique<Alarm>(loop, [&] {
    calls.push_back(loop.now());
    alarm->set(loop.now() + 2s);
  });
  alarm->set(Instant(1s));
  loop.advance(5s);
  EXPECT_EQ(calls, (std::vector{Instant(1s), Instant(3s), Instant(5s)}));
}

Task<void> sleep_then_note(Loop& loop, Instant at, Trace& trace, std::string name) {
  const Mark mark(trace, name);
  co_await Sleep(loop, at);
  trace.push_back(name);
}

TEST(Sleep, WakesAtTheInstantAndNotBefore) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(sleep_then_note(loop, Instant(2s), trace, "a"));
  loop.advance(2s - 1ns);
  EXPECT_TRUE(trace.empty());
  loop.advance(1ns);
  EXPECT_EQ(trace, (Trace{"a", "~a"}));
}

TEST(Sleep, InThePastDoesNotWait) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(sleep_then_note(loop, loop.now(), trace, "a"));
  EXPECT_EQ(trace, (Trace{"a", "~a"}));
}

TEST(Sleep, DestroyedWhileItSleepsIsNeverResumed) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(sleep_then_note(loop, Instant(1s), trace, "a"));
  scope.cancel();
  EXPECT_EQ(trace, (Trace{"~a"}));
  loop.advance(10s);
  EXPECT_EQ(trace, (Trace{"~a"}));
}

TEST(Sleep, DestroyedBetweenItsTimerAndItsTurnIsNeverResumed) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(sleep_then_note(loop, Instant(1s), trace, "a"));
  loop.fire_due(Instant(1s));  // ready, but not yet resumed
  scope.cancel();
  EXPECT_FALSE(loop.drain());
  EXPECT_EQ(trace, (Trace{"~a"}));
}

Task<void> cancel_at(Loop& loop, Instant at, Scope& victim) {
  co_await Sleep(loop, at);
  victim.cancel();
}

TEST(Sleep, DestroyedByACoroutineOfTheSameTurnIsNeverResumed) {
  ManualLoop loop;
  Trace trace;
  Scope killers(loop), victims(loop);
  killers.spawn(cancel_at(loop, Instant(1s), victims));
  victims.spawn(sleep_then_note(loop, Instant(1s), trace, "victim"));
  loop.advance(5s);
  EXPECT_EQ(trace, (Trace{"~victim"}));
}

RC_GTEST_PROP(Sleep, SleepersWakeInTheOrderOfTheirInstants, ()) {
  const auto delays = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 20));
  ManualLoop loop;
  Trace trace, expected;
  Scope scope(loop);
  for (const int ms : delays) scope.spawn(sleep_then_note(loop, Instant(ms * 1ms + 1ms), trace, std::to_string(ms)));
  loop.advance(1s);
  std::erase_if(trace, [](const std::string& line) { return line.starts_with("~"); });
  std::vector<int> sorted = delays;
  std::sort(sorted.begin(), sorted.end());
  for (const int ms : sorted) expected.push_back(std::to_string(ms));
  RC_ASSERT(trace == expected);
}

}  // namespace
}  // namespace rubato

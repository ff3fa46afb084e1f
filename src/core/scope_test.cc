#include "core/scope.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>

#include "core/loop_testing.h"

namespace rubato {
namespace {

Task<void> child(Loop& loop, Instant at, Trace& trace, std::string name) {
  const Mark mark(trace, name);
  co_await Sleep(loop, at);
  trace.push_back(name);
}

Task<void> failing_child(Loop& loop, Instant at, std::string message) {
  co_await Sleep(loop, at);
  throw Error(ErrorCode::kFailed, message);
}

Task<void> join_into(Scope& scope, Trace& trace) {
  try {
    Task<void> joined = scope.join();
    co_await std::move(joined);
    trace.push_back("joined");
  } catch (const Error& error) {
    trace.push_back("threw " + error.message);
  }
}

TEST(Scope, AChildRunsAtOnceUpToItsFirstWait) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(child(loop, loop.now(), trace, "ready"));
  scope.spawn(child(loop, Instant(1s), trace, "waiting"));
  EXPECT_EQ(trace, (Trace{"ready", "~ready"}));
  EXPECT_EQ(scope.running(), 1u);
}

TEST(Scope, JoinWaitsForEveryChild) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop), outer(loop);
  scope.spawn(child(loop, Instant(2s), trace, "b"));
  scope.spawn(child(loop, Instant(1s), trace, "a"));
  outer.spawn(join_into(scope, trace));
  loop.advance(5s);
  EXPECT_EQ(trace, (Trace{"a", "~a", "b", "~b", "joined"}));
}

TEST(Scope, JoinOfNoChildrenReturnsAtOnce) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop), outer(loop);
  outer.spawn(join_into(scope, trace));
  EXPECT_EQ(trace, (Trace{"joined"}));
}

TEST(Scope, TheFirstErrorCancelsTheOthersAndIsThrownByJoin) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop), outer(loop);
  scope.spawn(child(loop, Instant(5s), trace, "slow"));
  scope.spawn(failing_child(loop, Instant(1s), "one"));
  scope.spawn(failing_child(loop, Instant(1s), "two"));
  outer.spawn(join_into(scope, trace));
  loop.advance(10s);
  EXPECT_EQ(trace, (Trace{"~slow", "threw one"}));
  EXPECT_EQ(scope.running(), 0u);
}

TEST(Scope, AnErrorBeforeJoinIsKeptForIt) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop), outer(loop);
  scope.spawn(failing_child(loop, loop.now(), "early"));
  scope.spawn(child(loop, Instant(1s), trace, "other"));
  outer.spawn(join_into(scope, trace));
  EXPECT_EQ(trace, (Trace{"~other", "threw early"}));
  outer.spawn(join_into(scope, trace));
  EXPECT_EQ(trace.back(), "joined") << "an error is thrown once";
}

TEST(Scope, GoingAwayCancelsTheChildrenInReverse) {
  ManualLoop loop;
  Trace trace;
  {
    Scope scope(loop);
    scope.spawn(child(loop, Instant(1s), trace, "first"));
    scope.spawn(child(loop, Instant(1s), trace, "second"));
  }
  EXPECT_EQ(trace, (Trace{"~second", "~first"}));
  loop.advance(5s);
  EXPECT_EQ(trace.size(), 2u);
}

TEST(Scope, MayGoWhileSomebodyWaitsForItsChildren) {
  ManualLoop loop;
  Trace trace;
  auto scope = std::make_unique<Scope>(loop);
  Scope outer(loop);
  scope->spawn(child(loop, Instant(1s), trace, "child"));
  outer.spawn(join_into(*scope, trace));
  outer.cancel();
  scope.reset();
  loop.advance(5s);
  EXPECT_EQ(trace, (Trace{"~child"}));
}

Task<void> parent(Loop& loop, Trace& trace, std::string name) {
  const Mark mark(trace, name);
  Scope scope(loop);
  scope.spawn(child(loop, Instant(1s), trace, name + ".1"));
  scope.spawn(child(loop, Instant(2s), trace, name + ".2"));
  Task<void> joined = scope.join();
  co_await std::move(joined);
  trace.push_back(name);
}

TEST(Scope, InsideAFrameCancelsItsChildrenWithTheFrame) {
  ManualLoop loop;
  Trace trace;
  Scope outer(loop);
  outer.spawn(parent(loop, trace, "p"));
  loop.advance(1s);
  EXPECT_EQ(trace, (Trace{"p.1", "~p.1"}));
  outer.cancel();
  EXPECT_EQ(trace, (Trace{"p.1", "~p.1", "~p.2", "~p"}));
  loop.advance(5s);
  EXPECT_EQ(trace.size(), 4u);
}

Task<void> failing_parent(Loop& loop, Trace& trace) {
  Scope scope(loop);
  scope.spawn(child(loop, Instant(9s), trace, "grandchild"));
  scope.spawn(failing_child(loop, Instant(1s), "from the grandchild"));
  Task<void> joined = scope.join();
  co_await std::move(joined);
}

TEST(Scope, AGrandchildsErrorGoesUpThroughItsParent) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop), outer(loop);
  scope.spawn(failing_parent(loop, trace));
  scope.spawn(child(loop, Instant(9s), trace, "uncle"));
  outer.spawn(join_into(scope, trace));
  loop.advance(5s);
  EXPECT_EQ(trace, (Trace{"~grandchild", "~uncle", "threw from the grandchild"}));
}

Task<void> spawn_sibling(Loop& loop, Scope& scope, Trace& trace, int generations) {
  const Mark mark(trace, std::to_string(generations));
  if (generations > 0) scope.spawn(spawn_sibling(loop, scope, trace, generations - 1));
  co_await Sleep(loop, loop.now() + 1s);
  if (generations > 0) scope.spawn(child(loop, loop.now(), trace, "late" + std::to_string(generations)));
}

TEST(Scope, AChildMaySpawnSiblingsBeforeAndAfterItsWaits) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop), outer(loop);
  scope.spawn(spawn_sibling(loop, scope, trace, 2));
  EXPECT_EQ(scope.running(), 3u);
  outer.spawn(join_into(scope, trace));
  loop.advance(5s);
  EXPECT_EQ(trace, (Trace{"~0", "late1", "~late1", "~1", "late2", "~late2", "~2", "joined"}));
}

Task<void> holds_until(Loop& loop, Instant at, std::shared_ptr<int> given) {
  co_await Sleep(loop, at);
  (void)given;
}

TEST(Scope, WhatAChildWasGivenGoesWithItsEnd) {
  ManualLoop loop;
  Scope scope(loop);
  auto given = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = given;
  scope.spawn(holds_until(loop, Instant(1s), std::move(given)));
  EXPECT_FALSE(seen.expired());
  loop.advance(2s);
  EXPECT_TRUE(seen.expired());
}

TEST(Scope, AFinishedChildIsFreedAtTheNextSpawn) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  for (int i = 0; i < 10'000; ++i) scope.spawn(child(loop, loop.now(), trace, "x"));
  EXPECT_EQ(scope.running(), 0u);
  scope.cancel();
  EXPECT_EQ(trace.size(), 20'000u);
}

Task<int> value_at(Loop& loop, Instant at, int value, Trace& trace) {
  const Mark mark(trace, std::to_string(value));
  co_await Sleep(loop, at);
  co_return value;
}

Task<int> fail_at(Loop& loop, Instant at) {
  co_await Sleep(loop, at);
  throw Error(ErrorCode::kUnavailable, "broke");
}

Task<void> deadline_into(Loop& loop, Instant deadline, Task<int> task, Trace& trace) {
  try {
    Task<std::optional<int>> bounded = with_deadline(loop, deadline, std::move(task));
    const std::optional<int> value = co_await std::move(bounded);
    trace.push_back(value ? "value " + std::to_string(*value) : "deadline");
  } catch (const Error& error) {
    trace.push_back("threw " + error.message);
  }
}

TEST(WithDeadline, GivesTheValueThatComesInTime) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(deadline_into(loop, Instant(2s), value_at(loop, Instant(1s), 7, trace), trace));
  loop.advance(1s);
  EXPECT_EQ(trace, (Trace{"~7", "value 7"}));
  EXPECT_EQ(loop.next_due(), std::nullopt) << "no timer is left behind";
}

TEST(WithDeadline, CancelsTheTaskAtTheDeadline) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(deadline_into(loop, Instant(2s), value_at(loop, Instant(3s), 7, trace), trace));
  loop.advance(2s - 1ns);
  EXPECT_TRUE(trace.empty());
  loop.advance(1ns);
  EXPECT_EQ(trace, (Trace{"~7", "deadline"}));
  EXPECT_EQ(loop.next_due(), std::nullopt);
}

TEST(WithDeadline, AValueAtTheVeryDeadlineIsNotThrownAway) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(deadline_into(loop, Instant(2s), value_at(loop, Instant(2s), 7, trace), trace));
  loop.advance(2s);
  EXPECT_EQ(trace, (Trace{"~7", "value 7"}));
}

TEST(WithDeadline, TheTasksErrorIsThrown) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(deadline_into(loop, Instant(2s), fail_at(loop, Instant(1s)), trace));
  scope.spawn(deadline_into(loop, Instant(2s), fail_at(loop, loop.now()), trace));
  loop.advance(5s);
  EXPECT_EQ(trace, (Trace{"threw broke", "threw broke"}));
}

TEST(WithDeadline, CancelledFromOutsideCancelsTheTask) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(deadline_into(loop, Instant(2s), value_at(loop, Instant(1s), 7, trace), trace));
  scope.cancel();
  loop.advance(5s);
  EXPECT_EQ(trace, (Trace{"~7"}));
}

Task<void> race_into(Loop& loop, Task<int> a, Task<int> b, Trace& trace) {
  try {
    Task<std::variant<int, int>> raced = race(loop, std::move(a), std::move(b));
    const std::variant<int, int> winner = co_await std::move(raced);
    const int value = winner.index() == 0 ? std::get<0>(winner) : std::get<1>(winner);
    trace.push_back("winner " + std::to_string(value));
  } catch (const Error& error) {
    trace.push_back("threw " + error.message);
  }
}

TEST(Race, TheFirstToEndWinsAndTheOtherIsCancelled) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(race_into(loop, value_at(loop, Instant(2s), 1, trace), value_at(loop, Instant(1s), 2, trace), trace));
  loop.advance(5s);
  EXPECT_EQ(trace, (Trace{"~2", "~1", "winner 2"}));
  EXPECT_EQ(loop.next_due(), std::nullopt);
}

TEST(Race, IsOverBeforeTheSecondStartsWhenTheFirstNeedsNoWait) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(race_into(loop, value_at(loop, loop.now(), 1, trace), value_at(loop, loop.now(), 2, trace), trace));
  EXPECT_EQ(trace, (Trace{"~1", "winner 1"}));
}

TEST(Race, TheFirstErrorEndsIt) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(race_into(loop, value_at(loop, Instant(2s), 1, trace), fail_at(loop, Instant(1s)), trace));
  loop.advance(5s);
  EXPECT_EQ(trace, (Trace{"~1", "threw broke"}));
}

TEST(Race, CancelledFromOutsideCancelsBoth) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(race_into(loop, value_at(loop, Instant(2s), 1, trace), value_at(loop, Instant(1s), 2, trace), trace));
  scope.cancel();
  loop.advance(5s);
  EXPECT_EQ(trace, (Trace{"~2", "~1"}));
}

TEST(Race, AnErrorInTheSameTurnDoesNotUndoAWin) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(race_into(loop, value_at(loop, Instant(1s), 1, trace), fail_at(loop, Instant(1s)), trace));
  loop.advance(5s);
  EXPECT_EQ(trace, (Trace{"~1", "winner 1"}));
}

Task<int> take(Channel<int>& channel) {
  const std::optional<int> item = co_await channel.pop();
  co_return item.value_or(-1);
}

TEST(Race, WhenBothCouldEndInOneTurnTheFirstToEndWinsAndTheLoserTakesNoItem) {
  ManualLoop loop;
  Trace trace;
  Channel<int> a(loop), b(loop);
  Scope scope(loop);
  scope.spawn(race_into(loop, take(a), take(b), trace));
  b.push(2);
  a.push(1);
  loop.drain();
  EXPECT_EQ(trace, (Trace{"winner 2"}));
  EXPECT_EQ(a.size(), 1u);
}

// Scopes within scopes, cancelled at any time: what was made is destroyed once, and nothing dead runs (the
// sanitizers would tell).
Task<void> tree(Loop& loop, int depth, std::vector<int> delays, int& alive) {
  ++alive;
  const std::shared_ptr<int> guard(&alive, [](int* count) { --*count; });
  Scope scope(loop);
  for (size_t i = 0; depth > 0 && i < delays.size(); ++i) {
    scope.spawn(tree(loop, depth - 1, delays, alive));
    co_await Sleep(loop, loop.now() + delays[i] * 1ms);
  }
  Event never(loop);
  const int wait_ms = delays.empty() ? 1 : delays[0];
  if (wait_ms % 2 == 0) co_await never.wait_until(loop.now() + wait_ms * 1ms);
  if (wait_ms % 5 == 4) throw Error(ErrorCode::kFailed, "by chance");
  Task<void> joined = scope.join();
  co_await std::move(joined);
}

RC_GTEST_PROP(Scope, ATreeOfTasksCancelledAtAnyTimeLeavesNothing, ()) {
  const auto delays = *rc::gen::resize(4, rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 7)));
  const int cancel_ms = *rc::gen::inRange(0, 40);
  const bool turn_left = *rc::gen::arbitrary<bool>();
  ManualLoop loop;
  int alive = 0;
  Scope scope(loop);
  scope.spawn(tree(loop, 3, delays, alive));
  loop.advance(cancel_ms * 1ms);
  if (turn_left && loop.next_due()) loop.fire_due(*loop.next_due());  // some are ready when the end comes
  scope.cancel();
  RC_ASSERT(alive == 0);
  RC_ASSERT(!loop.next_due());
  RC_ASSERT(!loop.drain());
}

}  // namespace
}  // namespace rubato

#include "core/task.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "core/loop_testing.h"

namespace rubato {
namespace {

Task<int> answer() { co_return 42; }

Task<void> store(Task<int> task, int& out) { out = co_await std::move(task); }

TEST(Task, IsLazyUntilSomebodyAwaitsIt) {
  ManualLoop loop;
  int out = 0;
  Task<void> task = store(answer(), out);
  EXPECT_EQ(out, 0);
  Scope scope(loop);
  scope.spawn(std::move(task));
  EXPECT_EQ(out, 42);
}

Task<void> noted(Trace& trace, [[maybe_unused]] std::unique_ptr<Mark> parameter) {
  trace.push_back("ran");
  co_return;
}

TEST(Task, ThatIsNeverAwaitedNeverRunsButFreesItsParameters) {
  Trace trace;
  {
    auto parameter = std::make_unique<Mark>(trace, "parameter");
    const Task<void> task = noted(trace, std::move(parameter));
    EXPECT_TRUE(task);
  }
  EXPECT_EQ(trace, (Trace{"~parameter"}));
}

Task<std::unique_ptr<int>> make_box(int value) { co_return std::make_unique<int>(value); }

Task<void> open_box(int& out) {
  Task<std::unique_ptr<int>> box = make_box(7);
  const std::unique_ptr<int> opened = co_await std::move(box);
  out = *opened;
}

TEST(Task, ReturnsValuesThatOnlyMove) {
  ManualLoop loop;
  int out = 0;
  Scope scope(loop);
  scope.spawn(open_box(out));
  EXPECT_EQ(out, 7);
}

// A chain of awaits that ends in a sleep, or in an error after it; each level has a local to destroy.
Task<int> nest(Loop& loop, Trace& trace, int depth, bool fail) {
  const Mark mark(trace, std::to_string(depth));
  if (depth > 0) {
    Task<int> inner = nest(loop, trace, depth - 1, fail);
    co_return co_await std::move(inner) + 1;
  }
  co_await Sleep(loop, Instant(1s));
  if (fail) throw Error(ErrorCode::kConflict, "deep", "here", "fix");
  co_return 0;
}

Task<void> catch_into(Task<int> task, int& value, std::string& caught) {
  try {
    value = co_await std::move(task);
  } catch (const Error& error) {
    caught = error.message + "@" + error.where;
  }
}

TEST(Task, AValueCrossesSeveralAwaits) {
  ManualLoop loop;
  Trace trace;
  int value = 0;
  std::string caught;
  Scope scope(loop);
  scope.spawn(catch_into(nest(loop, trace, 3, false), value, caught));
  loop.advance(1s);
  EXPECT_EQ(value, 3);
  EXPECT_EQ(trace, (Trace{"~0", "~1", "~2", "~3"}));
}

TEST(Task, AnErrorCrossesSeveralAwaitsAndRunsTheDestructorsOnItsWay) {
  ManualLoop loop;
  Trace trace;
  int value = -1;
  std::string caught;
  Scope scope(loop);
  scope.spawn(catch_into(nest(loop, trace, 3, true), value, caught));
  loop.advance(1s);
  EXPECT_EQ(value, -1);
  EXPECT_EQ(caught, "deep@here");
  EXPECT_EQ(trace, (Trace{"~0", "~1", "~2", "~3"}));
}

TEST(Task, DestroyingTheOutermostDestroysTheChainFromTheInside) {
  ManualLoop loop;
  Trace trace;
  int value = -1;
  std::string caught;
  Scope scope(loop);
  scope.spawn(catch_into(nest(loop, trace, 3, false), value, caught));
  scope.cancel();
  EXPECT_EQ(trace, (Trace{"~0", "~1", "~2", "~3"}));
  loop.advance(10s);
  EXPECT_EQ(value, -1);
  EXPECT_EQ(caught, "");
}

TEST(Task, ALongChainIsDestroyedWhole) {
  ManualLoop loop;
  Trace trace;
  int value = -1;
  std::string caught;
  Scope scope(loop);
  scope.spawn(catch_into(nest(loop, trace, 300, false), value, caught));
  EXPECT_TRUE(trace.empty());
  scope.cancel();
  EXPECT_EQ(trace.size(), 301u);
}

Task<void> wait_with_locals(Loop& loop, Trace& trace, [[maybe_unused]] std::unique_ptr<Mark> parameter) {
  const Mark first(trace, "first");
  const Mark second(trace, "second");
  co_await Sleep(loop, Instant(1s));
  trace.push_back("went on");
}

TEST(Task, DestroyedAtAWaitDestroysLocalsInReverseAndParametersLast) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  auto parameter = std::make_unique<Mark>(trace, "parameter");
  scope.spawn(wait_with_locals(loop, trace, std::move(parameter)));
  scope.cancel();
  EXPECT_EQ(trace, (Trace{"~second", "~first", "~parameter"}));
}

Task<void> assign_over_a_waiting_task(Loop& loop, Trace& trace) {
  // A task that has not been started is replaced, and reset: both free what they hold.
  auto one = std::make_unique<Mark>(trace, "one");
  auto two = std::make_unique<Mark>(trace, "two");
  Task<void> task = wait_with_locals(loop, trace, std::move(one));
  task = wait_with_locals(loop, trace, std::move(two));
  trace.push_back("assigned");
  task.reset();
  trace.push_back("reset");
  EXPECT_FALSE(task);
  co_return;
}

TEST(Task, AssigningAndResettingCancelWhatWasThere) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  scope.spawn(assign_over_a_waiting_task(loop, trace));
  EXPECT_EQ(trace, (Trace{"~one", "assigned", "~two", "reset"}));
}

Task<void> rethrow_later(Loop& loop, std::string& out) {
  int value = 0;
  std::string caught;
  Trace trace;
  for (int i = 0; i < 3; ++i) {
    Task<void> attempt = catch_into(nest(loop, trace, 1, true), value, caught);
    co_await std::move(attempt);
    out += caught + ";";
  }
}

TEST(Task, GoesOnAfterErrorsItCaught) {
  ManualLoop loop;
  std::string out;
  Scope scope(loop);
  scope.spawn(rethrow_later(loop, out));
  loop.advance(10s);
  EXPECT_EQ(out, "deep@here;deep@here;deep@here;");
}

Task<void> throw_at_once(bool fail) {
  if (fail) throw std::runtime_error("plain");
  co_return;
}

Task<void> catch_plain(std::string& out) {
  try {
    Task<void> task = throw_at_once(true);
    co_await std::move(task);
  } catch (const std::exception& error) {
    out = error.what();
  }
}

TEST(Task, AnErrorBeforeTheFirstWaitCrossesTheAwaitToo) {
  ManualLoop loop;
  std::string out;
  Scope scope(loop);
  scope.spawn(catch_plain(out));
  EXPECT_EQ(out, "plain");
}

Task<void> sum_of(int count, int64_t& sum) {
  for (int i = 0; i < count; ++i) {
    Task<int> one = answer();
    sum += co_await std::move(one);
  }
}

TEST(Task, ALoopOfAwaitsThatNeedNoWaitDoesNotGrowTheStack) {
  ManualLoop loop;
  int64_t sum = 0;
  Scope scope(loop);
  scope.spawn(sum_of(200'000, sum));
  EXPECT_EQ(sum, 42 * 200'000);
}

Task<void> await_nothing() {
  Task<void> empty;
  co_await std::move(empty);
}

TEST(TaskDeathTest, AwaitingAnEmptyTaskIsABug) {
  ManualLoop loop;
  EXPECT_DEATH(
      {
        Scope scope(loop);
        scope.spawn(await_nothing());
      },
      "CHECK");
}

}  // namespace
}  // namespace rubato

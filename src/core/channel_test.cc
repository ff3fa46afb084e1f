#include "core/channel.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>

#include "core/loop_testing.h"

namespace rubato {
namespace {

Task<void> note_wake(Event& event, std::optional<Instant> deadline, Trace& trace, std::string name) {
  const Mark mark(trace, name);
  if (deadline) {
    co_await event.wait_until(*deadline);
  } else {
    co_await event.wait();
  }
  trace.push_back(name);
}

TEST(Event, NotifyWakesEveryWaiterInOrder) {
  ManualLoop loop;
  Trace trace;
  Event event(loop);
  Scope scope(loop);
  for (const char* name : {"a", "b"}) scope.spawn(note_wake(event, std::nullopt, trace, name));
  event.notify();
  EXPECT_TRUE(trace.empty()) << "in a later turn";
  loop.drain();
  EXPECT_EQ(trace, (Trace{"a", "~a", "b", "~b"}));
}

TEST(Event, KeepsNoMemory) {
  ManualLoop loop;
  Trace trace;
  Event event(loop);
  event.notify();
  Scope scope(loop);
  scope.spawn(note_wake(event, std::nullopt, trace, "a"));
  loop.advance(10s);
  EXPECT_TRUE(trace.empty());
}

TEST(Event, TheDeadlineWakesToo) {
  ManualLoop loop;
  Trace trace;
  Event event(loop);
  Scope scope(loop);
  scope.spawn(note_wake(event, Instant(1s), trace, "a"));
  loop.advance(1s);
  EXPECT_EQ(trace, (Trace{"a", "~a"}));
  event.notify();
  EXPECT_FALSE(loop.drain());
}

TEST(Event, NotifyAndDeadlineInOneTurnWakeOnce) {
  ManualLoop loop;
  Trace trace;
  Event event(loop);
  Scope scope(loop);
  scope.spawn(note_wake(event, Instant(1s), trace, "a"));
  event.notify();
  loop.fire_due(Instant(1s));
  event.notify();
  loop.drain();
  EXPECT_EQ(trace, (Trace{"a", "~a"}));
  EXPECT_EQ(loop.next_due(), std::nullopt);
}

TEST(Event, AWaiterDestroyedInEachStateIsNeverResumed) {
  const std::vector<void (*)(ManualLoop&, Event&)> states = {
      [](ManualLoop&, Event&) {},
      [](ManualLoop&, Event& event) { event.notify(); },
      [](ManualLoop& loop, Event&) { loop.fire_due(Instant(1s)); },
  };
  for (const auto& enter : states) {
    ManualLoop loop;
    Trace trace;
    Event event(loop);
    Scope scope(loop);
    scope.spawn(note_wake(event, Instant(1s), trace, "a"));
    enter(loop, event);
    scope.cancel();
    event.notify();
    loop.advance(5s);
    EXPECT_EQ(trace, (Trace{"~a"}));
  }
}

TEST(Event, MayGoBeforeWaitersThatAreOnlyDestroyed) {
  ManualLoop loop;
  Trace trace;
  Scope scope(loop);
  auto event = std::make_unique<Event>(loop);
  scope.spawn(note_wake(*event, std::nullopt, trace, "a"));
  event.reset();
  scope.cancel();
  EXPECT_EQ(trace, (Trace{"~a"}));
}

Task<void> collect(Channel<int>& channel, std::vector<int>& out, bool& ended) {
  while (const std::optional<int> item = co_await channel.pop()) out.push_back(*item);
  ended = true;
}

TEST(Channel, GivesItemsInOrderAndThenTheEnd) {
  ManualLoop loop;
  Channel<int> channel(loop);
  std::vector<int> out;
  bool ended = false;
  Scope scope(loop);
  channel.push(1);
  scope.spawn(collect(channel, out, ended));
  EXPECT_EQ(out, (std::vector{1}));
  channel.push(2);
  channel.push(3);
  channel.close();
  channel.push(4);
  loop.drain();
  EXPECT_EQ(out, (std::vector{1, 2, 3})) << "what comes after close() is dropped";
  EXPECT_TRUE(ended);
}

Task<void> pop_one(Channel<int>& channel, std::optional<int>& out, bool& done) {
  out = co_await channel.pop();
  done = true;
}

TEST(Channel, AConsumerCancelledAfterItWasWokenLosesNoItem) {
  ManualLoop loop;
  Channel<int> channel(loop);
  std::optional<int> first, second;
  bool first_done = false, second_done = false;
  Scope scope(loop);
  scope.spawn(pop_one(channel, first, first_done));
  channel.push(7);
  scope.cancel();
  loop.drain();
  EXPECT_FALSE(first_done);
  EXPECT_EQ(channel.size(), 1u);
  scope.spawn(pop_one(channel, second, second_done));
  EXPECT_EQ(second, 7);
}

TEST(Channel, AnotherWaitingConsumerGetsTheItemOfACancelledOne) {
  ManualLoop loop;
  Channel<int> channel(loop);
  std::optional<int> first, second;
  bool first_done = false, second_done = false;
  Scope cancelled(loop), kept(loop);
  cancelled.spawn(pop_one(channel, first, first_done));
  kept.spawn(pop_one(channel, second, second_done));
  channel.push(7);
  cancelled.cancel();
  loop.drain();
  EXPECT_EQ(second, 7);
}

TEST(Channel, OneItemServesOneConsumerAndTheOtherWaitsOn) {
  ManualLoop loop;
  Channel<int> channel(loop);
  std::optional<int> first, second;
  bool first_done = false, second_done = false;
  Scope scope(loop);
  scope.spawn(pop_one(channel, first, first_done));
  scope.spawn(pop_one(channel, second, second_done));
  channel.push(1);
  loop.drain();
  EXPECT_EQ(first, 1);
  EXPECT_FALSE(second_done);
  channel.push(2);
  loop.drain();
  EXPECT_EQ(second, 2);
}

Task<void> pop_by(Channel<int>& channel, Instant deadline, std::optional<int>& out, bool& done) {
  out = co_await channel.pop_until(deadline);
  done = true;
}

TEST(Channel, PopUntilGivesUpAtTheDeadline) {
  ManualLoop loop;
  Channel<int> channel(loop);
  std::optional<int> out;
  bool done = false;
  Scope scope(loop);
  scope.spawn(pop_by(channel, Instant(2s), out, done));
  loop.advance(2s - 1ns);
  EXPECT_FALSE(done);
  loop.advance(1ns);
  EXPECT_TRUE(done);
  EXPECT_EQ(out, std::nullopt);
}

TEST(Channel, PopUntilTakesAnItemThatComesWithTheDeadline) {
  ManualLoop loop;
  Channel<int> channel(loop);
  std::optional<int> out;
  bool done = false;
  Scope scope(loop);
  scope.spawn(pop_by(channel, Instant(1s), out, done));
  loop.fire_due(Instant(1s));
  channel.push(5);
  loop.advance(1s);
  EXPECT_EQ(out, 5);
}

TEST(Channel, PopUntilEndsWhenTheChannelCloses) {
  ManualLoop loop;
  Channel<int> channel(loop);
  std::optional<int> out;
  bool done = false;
  Scope scope(loop);
  scope.spawn(pop_by(channel, Instant(1h), out, done));
  channel.close();
  loop.drain();
  EXPECT_TRUE(done);
  EXPECT_EQ(loop.next_due(), std::nullopt) << "its timer is gone with it";
}

TEST(Channel, CarriesThingsThatOnlyMove) {
  ManualLoop loop;
  Channel<std::unique_ptr<int>> channel(loop);
  channel.push(std::make_unique<int>(3));
  EXPECT_EQ(**channel.try_pop(), 3);
  EXPECT_FALSE(channel.try_pop());
}

// Consumers come and are cancelled at random while items are pushed: none is lost, doubled or out of order.
RC_GTEST_PROP(Channel, NoItemIsLostWhateverIsCancelled, ()) {
  const auto steps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 4));
  ManualLoop loop;
  Channel<int> channel(loop);
  std::vector<int> out;
  bool ended = false;
  int pushed = 0;
  {
    Scope scope(loop);
    for (const int step : steps) {
      if (step == 0) channel.push(pushed++);
      if (step == 1) scope.spawn(collect(channel, out, ended));
      if (step == 2) scope.cancel();
      if (step == 3) loop.drain();
    }
  }
  while (const std::optional<int> item = channel.try_pop()) out.push_back(*item);
  RC_ASSERT(out.size() == static_cast<size_t>(pushed));
  for (int i = 0; i < pushed; ++i) RC_ASSERT(out[i] == i);
}

}  // namespace
}  // namespace rubato

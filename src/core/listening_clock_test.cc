#include "core/listening_clock.h"

#include <gtest/gtest.h>

#include "core/scope.h"
#include "core/while_listening.h"

namespace rubato {
namespace {

// A loop of a process that can be stopped: its timers wait, the time does not.
class StoppableLoop final : public Scheduler {
 public:
  Instant now() const override { return now_; }
  void advance(Duration d) {
    for (const Instant end = now_ + d; now_ < end; now_ += 10ms) turn();
  }
  void stop_for(Duration d) {
    now_ += d;
    turn();
  }

 private:
  void turn() {
    drain();
    fire_due(now_);
    drain();
  }
  Instant now_ = Instant{} + 100s;
};

TEST(ListeningClock, IsThePlainClockWhileTheLoopTurns) {
  StoppableLoop loop;
  ListeningClock listening(loop.now());
  Scope scope(loop);
  scope.spawn(keep_listening(loop, listening));
  loop.advance(60s);
  EXPECT_EQ(listening.at(loop.now()), loop.now());
  EXPECT_EQ(listening.due(loop.now() + 3s, loop.now()), loop.now() + 3s);
}

TEST(ListeningClock, AStallCountsForLittle) {
  StoppableLoop loop;
  ListeningClock listening(loop.now());
  Scope scope(loop);
  scope.spawn(keep_listening(loop, listening));
  const Instant deadline = listening.at(loop.now()) + 3s;
  loop.advance(1s);
  loop.stop_for(16s);
  EXPECT_LT(listening.at(loop.now()), deadline);
  EXPECT_GE(listening.due(deadline, loop.now()) - loop.now(), 1s);
  loop.advance(2s);
  EXPECT_GE(listening.at(loop.now()), deadline);
}

TEST(ListeningClock, WhoeverAsksFirstAfterAStallSeesIt) {
  ListeningClock listening(Instant{});
  EXPECT_EQ(listening.at(Instant{} + 100s), Instant{} + ListeningClock::kStall);
  EXPECT_EQ(listening.at(Instant{} + 100s), Instant{} + ListeningClock::kStall);
}

// As a session does that answers a flood of messages and never gives the loop its turn.
TEST(ListeningClock, QuestionsDoNotProveThatTheLoopTurns) {
  ListeningClock listening(Instant{}, 3s);
  Instant now{};
  for (; now < Instant{} + 5s; now += 10ms) (void)listening.at(now);
  ASSERT_TRUE(listening.stalled(now));
  const Instant ended = *listening.stalled(now);
  listening.turn(now);
  EXPECT_EQ(listening.stalled(now), ended);
  EXPECT_EQ(listening.at(now), Instant{} + ListeningClock::kStall);
}

TEST(ListeningClock, NeverGoesBack) {
  ListeningClock listening(Instant{} + 10s);
  EXPECT_EQ(listening.at(Instant{} + 9s), Instant{} + 10s);
  EXPECT_EQ(listening.at(Instant{} + 10s + 100ms), Instant{} + 10s + 100ms);
}

TEST(ListeningClock, RemembersOnlyStallsThatMayHaveEndedConnections) {
  ListeningClock listening(Instant{}, 3s);
  EXPECT_FALSE(listening.stalled(Instant{} + 2s));
  const auto ended = listening.stalled(Instant{} + 10s);
  ASSERT_TRUE(ended);
  EXPECT_EQ(*ended, listening.at(Instant{} + 10s));
  EXPECT_EQ(listening.stalled(Instant{} + 12s), ended);
}

Task<int> answer_at(Loop& loop, Instant when) {
  co_await Sleep(loop, when);
  co_return 42;
}

Task<void> call(Loop& loop, Instant answered, std::optional<std::optional<int>>& result) {
  result = co_await while_listening(loop, 10s, answer_at(loop, answered));
}

TEST(WhileListening, AStallOfOurOwnEndsNoCall) {
  StoppableLoop loop;
  std::optional<std::optional<int>> result;
  Scope scope(loop);
  scope.spawn(call(loop, loop.now() + 25s, result));
  loop.advance(1s);
  loop.stop_for(20s);
  EXPECT_FALSE(result) << "it was not listened to for ten seconds";
  loop.advance(5s);
  EXPECT_EQ(result, std::optional<int>(42));
}

TEST(WhileListening, ACallThatTakesTooLongIsGivenUp) {
  StoppableLoop loop;
  std::optional<std::optional<int>> result;
  Scope scope(loop);
  scope.spawn(call(loop, loop.now() + 25s, result));
  loop.advance(9s);
  EXPECT_FALSE(result);
  loop.advance(2s);
  ASSERT_TRUE(result);
  EXPECT_FALSE(*result);
}

}  // namespace
}  // namespace rubato

#include "core/turns.h"

#include <gtest/gtest.h>

#include "core/loop_testing.h"

namespace rubato {
namespace {

Task<void> work(Loop& loop, int pieces, int& done) {
  Turns turns(loop);
  for (; done < pieces; ++done) co_await turns.step();
}

// A clock that stands still while something runs: only the number of pieces ends a turn.
TEST(Turns, EndAfterSomePieces) {
  ManualLoop loop;
  int done = 0;
  Scope scope(loop);
  scope.spawn(work(loop, 100, done));
  loop.drain();
  EXPECT_EQ(done, Turns::kStepsMax - 1);
  loop.fire_due(loop.now());
  loop.drain();
  EXPECT_EQ(done, 2 * Turns::kStepsMax - 1);
  loop.advance(1ms);
  EXPECT_EQ(done, 100);
}

class SlowLoop final : public Scheduler {
 public:
  Instant now() const override { return now_ += 2ms; }  // each look at it
  mutable Instant now_{};
};

TEST(Turns, EndWhenTheyHaveTakenLong) {
  SlowLoop loop;
  int done = 0;
  Scope scope(loop);
  scope.spawn(work(loop, 100, done));
  loop.drain();
  EXPECT_LT(done, 4);
}

TEST(Turns, CanBeCancelledBetweenTheirPieces) {
  ManualLoop loop;
  int done = 0;
  {
    Scope scope(loop);
    scope.spawn(work(loop, 100, done));
    loop.drain();
  }
  loop.advance(1s);
  EXPECT_EQ(done, Turns::kStepsMax - 1);
}

}  // namespace
}  // namespace rubato

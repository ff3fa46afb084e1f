#include "node/checkpoint_tracker.h"

#include <gtest/gtest.h>

namespace rubato::node {
namespace {

using Kind = FolderWatch::Kind;
using Names = std::vector<std::string>;

struct Tracked : testing::Test {
  void happen(Kind kind, const std::string& name) { tracker.apply(kind, name, generation, now, wall); }

  CheckpointTracker tracker;
  Generation generation = 3;
  Instant now = Instant{} + 1h;
  WallTime wall{1'000'000us};
};

TEST_F(Tracked, WhatIsRenamedIntoPlaceIsFinishedTheNewestFirst) {
  happen(Kind::kWritten, "model.pt.tmp");
  happen(Kind::kGone, "model.pt.tmp");
  happen(Kind::kPlaced, "model.pt");
  happen(Kind::kPlaced, "adaptdl/checkpoint-1");  // in the same microsecond
  EXPECT_EQ(tracker.finished(), (Names{"adaptdl/checkpoint-1", "model.pt"}));
  EXPECT_EQ(tracker.ledger().at("model.pt").generation, 3u);
  tracker.kept("model.pt", tracker.version("model.pt"), "hash");
  EXPECT_EQ(tracker.finished(), (Names{"adaptdl/checkpoint-1"}));
}

TEST_F(Tracked, WhatIsReplacedWhileItIsSentIsSentAgain) {
  happen(Kind::kPlaced, "model.pt");
  const uint64_t version = tracker.version("model.pt");
  happen(Kind::kPlaced, "model.pt");
  tracker.kept("model.pt", version, "hash of the first");
  EXPECT_EQ(tracker.finished(), (Names{"model.pt"}));
}

TEST_F(Tracked, WhatIsWrittenInPlaceIsNamedOnceAndNeverFinished) {
  happen(Kind::kWritten, "model.pt");
  EXPECT_TRUE(tracker.take_warnings(now + 1s, false).empty());
  EXPECT_EQ(tracker.take_warnings(now + 11s, false), (Names{"model.pt"}));
  happen(Kind::kWritten, "model.pt");
  EXPECT_TRUE(tracker.take_warnings(now + 60s, true).empty());
  EXPECT_TRUE(tracker.finished().empty());
}

TEST_F(Tracked, WhatIsWrittenAndThenRenamedIsNotNamed) {
  happen(Kind::kWritten, "draft");
  happen(Kind::kGone, "draft");
  happen(Kind::kPlaced, "model.pt");
  EXPECT_TRUE(tracker.take_warnings(now + 60s, true).empty());
}

TEST_F(Tracked, AFinishedFileThatIsWrittenToIsNotFinishedAnyMore) {
  happen(Kind::kPlaced, "log.txt");
  happen(Kind::kWritten, "log.txt");
  EXPECT_TRUE(tracker.finished().empty());
  EXPECT_EQ(tracker.take_warnings(now, true), (Names{"log.txt"}));
}

TEST_F(Tracked, WhatTheScriptRemovesIsRememberedOnceItWasKept) {
  happen(Kind::kPlaced, "e1");
  happen(Kind::kGone, "e1");
  EXPECT_TRUE(tracker.ledger().empty());
  happen(Kind::kPlaced, "e1");
  tracker.kept("e1", tracker.version("e1"), "hash");
  happen(Kind::kGone, "e1");
  EXPECT_EQ(tracker.ledger().at("e1").hash, "hash");
}

TEST_F(Tracked, AClockThatIsSetBackMakesNothingOlder) {
  happen(Kind::kPlaced, "e1");
  wall -= 1h;
  happen(Kind::kPlaced, "e2");
  EXPECT_GT(tracker.ledger().at("e2").saved_us, tracker.ledger().at("e1").saved_us);
}

TEST_F(Tracked, NamesThatCannotTravelAreNotTracked) {
  for (const char* name : {"..", ".x", "_checkpoint", "x.tmp", "adaptdl"}) happen(Kind::kPlaced, name);
  EXPECT_TRUE(tracker.finished().empty());
}

TEST_F(Tracked, AScriptThatMakesNamesWithoutEndIsBounded) {
  for (int i = 0; i < 70'000; ++i) {
    happen(Kind::kPlaced, "n" + std::to_string(i));
    happen(Kind::kWritten, "w" + std::to_string(i));
  }
  EXPECT_LE(tracker.ledger().size(), CheckpointTracker::kLedgerMax);
  EXPECT_LE(tracker.take_warnings(now, true).size(), 16u);
}

// One each minute, for two months: the script keeps three of them.
TEST_F(Tracked, ALongTrainingsNewestCheckpointsGoOnTravelling) {
  happen(Kind::kPlaced, "best.pt");
  tracker.kept("best.pt", tracker.version("best.pt"), "hash");
  constexpr int kMany = 90'000;
  const auto name = [](int i) { return "step-" + std::to_string(i) + ".pt"; };
  for (int i = 0; i < kMany; ++i) {
    happen(Kind::kPlaced, name(i));
    ASSERT_EQ(tracker.finished(), (Names{name(i)}));
    tracker.kept(name(i), tracker.version(name(i)), "hash");
    if (i >= 3) happen(Kind::kGone, name(i - 3));
  }
  EXPECT_LE(tracker.ledger().size(), CheckpointTracker::kLedgerMax);
  // What a head would still have is known here, so that it is not brought back.
  for (int i = kMany - 3; i < kMany; ++i) EXPECT_TRUE(tracker.ledger().contains(name(i)));
  EXPECT_TRUE(tracker.ledger().contains("best.pt"));
}

TEST_F(Tracked, WhatIsReplacedAfterItWasForgottenIsAnotherVersion) {
  happen(Kind::kPlaced, "step-1");
  const uint64_t version = tracker.version("step-1");
  for (int i = 2; i < 2000; ++i) happen(Kind::kPlaced, "step-" + std::to_string(i));
  EXPECT_FALSE(tracker.ledger().contains("step-1"));
  happen(Kind::kPlaced, "step-1");
  EXPECT_NE(tracker.version("step-1"), version);
  tracker.kept("step-1", version, "hash of the first");
  EXPECT_EQ(tracker.ledger().at("step-1").hash, "");
}

// Of an agent before this one: its names have versions, so that a file that is torn meanwhile is not sent.
TEST(LedgerOfBefore, KnowsWhenANameChanges) {
  CheckpointTracker tracker(elastic::CheckpointLedger{{"e1", {"", 1, 1}}});
  const uint64_t version = tracker.version("e1");
  EXPECT_NE(version, 0u);
  tracker.apply(Kind::kWritten, "e1", 1, Instant{}, WallTime{});
  EXPECT_NE(tracker.version("e1"), version);
}

}  // namespace
}  // namespace rubato::node

#include "world/group_commit.h"

#include <gtest/gtest.h>

#include "core/loop_testing.h"
#include "world/journal_trim.h"

namespace rubato {
namespace {

// A disk whose commits end when the test says so.
struct Disk {
  explicit Disk(const CommitLimits& limits)
      : changed(loop),
        group(loop, limits, [this](std::vector<std::string> records) { return commit(*this, std::move(records)); }) {}

  static Task<uint64_t> commit(Disk& disk, std::vector<std::string> records) {
    disk.batches.push_back(records);
    EXPECT_FALSE(std::exchange(disk.busy, true)) << "two commits at once";
    while (disk.permits == 0) co_await disk.changed.wait();
    --disk.permits;
    disk.busy = false;
    if (disk.error) throw Error(*disk.error);
    disk.records.insert(disk.records.end(), records.begin(), records.end());
    co_return disk.records.size();
  }
  void finish_commit() {
    ++permits;
    changed.notify();
    loop.drain();
  }

  static Task<void> append_one(Disk& disk, std::string name, std::vector<std::string> records) {
    std::string answer;
    try {
      const uint64_t offset = co_await disk.group.append(std::move(records));
      answer = name + "=" + std::to_string(offset);
    } catch (const Error& error) {
      answer = name + ":" + std::string(to_string(error.code));
    }
    disk.answers.push_back(std::move(answer));
  }
  void append(std::string name, std::vector<std::string> records) {
    scope.spawn(append_one(*this, std::move(name), std::move(records)));
    loop.drain();
  }

  ManualLoop loop;
  Event changed;
  int permits = 0;
  bool busy = false;
  std::optional<Error> error;
  std::vector<std::string> records;
  std::vector<std::vector<std::string>> batches;
  std::vector<std::string> answers;
  GroupCommit group;
  Scope scope{loop};
};

using Words = std::vector<std::string>;

CommitLimits limits(size_t records_max, size_t bytes_max) {
  CommitLimits limits;
  limits.records_max = records_max;
  limits.bytes_max = limits.record_bytes_max = bytes_max;
  return limits;
}

TEST(GroupCommit, SharesTheNextCommitAndAnswersInOrder) {
  Disk disk(limits(100, 1000));
  disk.append("a", {"1"});
  disk.append("b", {"2", "3"});
  disk.append("none", {});
  disk.append("c", {"4"});
  EXPECT_EQ(disk.batches, (std::vector<Words>{{"1"}}));
  disk.finish_commit();
  EXPECT_EQ(disk.answers, (Words{"a=1"}));
  EXPECT_EQ(disk.batches.back(), (Words{"2", "3", "4"}));
  disk.append("d", {"5"});
  disk.finish_commit();
  EXPECT_EQ(disk.answers, (Words{"a=1", "b=3", "none=3", "c=4"}));
  disk.finish_commit();
  EXPECT_EQ(disk.answers.back(), "d=5");
  EXPECT_EQ(disk.records, (Words{"1", "2", "3", "4", "5"}));
  EXPECT_EQ(disk.group.commits(), 3u);
}

TEST(GroupCommit, SharesTheFirstCommitWithTheSameTurn) {
  Disk disk(limits(100, 1000));
  disk.scope.spawn(Disk::append_one(disk, "a", {"1"}));
  disk.scope.spawn(Disk::append_one(disk, "b", {"2"}));
  disk.finish_commit();
  EXPECT_EQ(disk.batches, (std::vector<Words>{{"1", "2"}}));
  EXPECT_EQ(disk.answers, (Words{"a=1", "b=2"}));
}

TEST(GroupCommit, CutsOnlyAnAppendThatAloneIsTooLarge) {
  Disk disk(limits(3, 10));
  disk.append("a", {"1"});
  disk.append("b", {"2", "3"});
  disk.append("c", {"4", "5"});
  disk.append("d", {"6", "7", "8", "9", "10"});
  disk.append("e", {"0123456789", "x"});
  for (int i = 0; i < 8; ++i) disk.finish_commit();
  EXPECT_EQ(disk.batches,
            (std::vector<Words>{{"1"}, {"2", "3"}, {"4", "5"}, {"6", "7", "8"}, {"9", "10"}, {"0123456789"}, {"x"}}));
  EXPECT_EQ(disk.answers, (Words{"a=1", "b=3", "c=5", "d=10", "e=12"}));
}

TEST(GroupCommit, RefusesARecordThatIsTooLargeAndWritesNothingOfIt) {
  Disk disk(limits(3, 10));
  disk.append("a", {"fine", "01234567890"});
  EXPECT_EQ(disk.answers, (Words{"a:" + std::string(to_string(ErrorCode::kFailed))}));
  EXPECT_TRUE(disk.batches.empty());
}

TEST(GroupCommit, FailsWhatIsQueuedBehindAFailureAndThenGoesOn) {
  Disk disk(limits(100, 1000));
  disk.append("a", {"1"});
  disk.append("b", {"2"});
  disk.error = Error(ErrorCode::kUnavailable, "disk full");
  disk.finish_commit();
  const std::string unavailable(to_string(ErrorCode::kUnavailable));
  EXPECT_EQ(disk.answers, (Words{"a:" + unavailable, "b:" + unavailable}));
  EXPECT_EQ(disk.batches.size(), 1u);
  disk.error.reset();
  disk.append("c", {"3"});
  disk.finish_commit();
  EXPECT_EQ(disk.answers.back(), "c=1");
}

TEST(GroupCommit, NeverWritesAgainAfterAConflict) {
  Disk disk(limits(100, 1000));
  disk.append("a", {"1"});
  disk.error = Error(ErrorCode::kConflict, "taken over");
  disk.finish_commit();
  disk.error.reset();
  disk.append("b", {"2"});
  const std::string conflict(to_string(ErrorCode::kConflict));
  EXPECT_EQ(disk.answers, (Words{"a:" + conflict, "b:" + conflict}));
  EXPECT_EQ(disk.batches.size(), 1u);
}

TEST(GroupCommit, ACancelledCallerLeavesTheOthersAlone) {
  Disk disk(limits(100, 1000));
  disk.append("a", {"1"});
  auto doomed = std::make_unique<Scope>(disk.loop);
  doomed->spawn(Disk::append_one(disk, "doomed", {"2"}));
  disk.append("b", {"3"});
  doomed.reset();
  disk.finish_commit();
  disk.finish_commit();
  EXPECT_EQ(disk.answers, (Words{"a=1", "b=3"}));
}

TEST(JournalTrim, KeepsASnapshotFromWhichTheKeptRecordsCanBeReplayed) {
  JournalTrim trim = plan_trim({5000}, 5000, 1000);
  EXPECT_LE(trim.records_below, 1u) << "no base: all records are needed";
  trim = plan_trim({5000, 5500, 6200}, 6200, 1000);
  EXPECT_EQ(trim.records_below, 5001u);
  EXPECT_EQ(trim.snapshots_below, 5000u);
  trim = plan_trim({5000, 5200, 6200}, 6200, 1000);
  EXPECT_EQ(trim.records_below, 5200u) << "5200 is not more than 1000 before";
  EXPECT_EQ(trim.snapshots_below, 5200u);
  trim = plan_trim({3, 7}, 7, 0);
  EXPECT_EQ(trim.records_below, 7u);
  EXPECT_EQ(trim.snapshots_below, 7u);
  trim = plan_trim({7}, 7, 8);
  EXPECT_LE(trim.records_below, 1u);
}

}  // namespace
}  // namespace rubato

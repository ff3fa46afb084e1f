// For tests: what every Journal must do, whatever keeps it. Each case is a coroutine on an open, empty journal.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/scope.h"
#include "world/journal.h"

namespace rubato::journal_cases {

inline std::vector<std::string> one_record(std::string one) { return std::vector<std::string>{std::move(one)}; }

inline std::vector<std::string> numbered(int from, int to) {
  std::vector<std::string> records;
  for (int i = from; i <= to; ++i) records.push_back("record " + std::to_string(i));
  return records;
}

inline Task<int> is_empty_at_first(Journal& journal) {
  const std::vector<JournalRecord> none = co_await journal.read(0, 10);
  EXPECT_TRUE(none.empty());
  const std::optional<JournalSnapshot> snapshot = co_await journal.snapshot();
  EXPECT_FALSE(snapshot);
  const uint64_t end = co_await journal.append(std::vector<std::string>());
  EXPECT_EQ(end, 0u);
  co_return 0;
}

inline Task<int> keeps_order_and_bytes(Journal& journal) {
  std::string binary("\0\xff\n\"'\x80", 6);
  for (int i = 0; i < 256; ++i) binary.push_back(static_cast<char>(i));
  std::vector<std::string> batch{"first", "", binary};
  uint64_t end = co_await journal.append(batch);
  EXPECT_EQ(end, 3u);
  end = co_await journal.append(one_record(std::string(300'000, 'x')));
  EXPECT_EQ(end, 4u);
  const std::vector<JournalRecord> all = co_await journal.read(0, 100);
  EXPECT_EQ(all.size(), 4u);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].offset, i + 1);
  EXPECT_EQ(all[0].bytes, "first");
  EXPECT_EQ(all[1].bytes, "");
  EXPECT_EQ(all[2].bytes, binary);
  EXPECT_EQ(all[3].bytes, std::string(300'000, 'x'));
  const std::vector<JournalRecord> some = co_await journal.read(1, 2);
  EXPECT_EQ(some.size(), 2u);
  EXPECT_EQ(some.front().offset, 2u);
  const std::vector<JournalRecord> none = co_await journal.read(4, 2);
  EXPECT_TRUE(none.empty());
  co_return 0;
}

// Like a head's clients: each appends one record after the other and notes the offset that it was told.
inline Task<void> append_many(Journal& journal, std::string name, int count, std::vector<std::string>& told) {
  for (int i = 1; i <= count; ++i) {
    const std::string record = name + " " + std::to_string(i);
    const uint64_t offset = co_await journal.append(one_record(record));
    told.resize(std::max(told.size(), static_cast<size_t>(offset)));
    told[offset - 1] = record;
  }
}

inline Task<int> answers_overlapping_appends(Journal& journal, Loop& loop, int appenders, int count) {
  std::vector<std::string> told;
  Scope scope(loop);
  for (int i = 0; i < appenders; ++i) scope.spawn(append_many(journal, std::string(1, 'a' + i), count, told));
  co_await scope.join();
  const std::vector<JournalRecord> all = co_await journal.read(0, 100'000);
  EXPECT_EQ(all.size(), static_cast<size_t>(appenders * count));
  EXPECT_EQ(told.size(), all.size());
  for (size_t i = 0; i < std::min(all.size(), told.size()); ++i) {
    EXPECT_EQ(all[i].offset, i + 1);
    EXPECT_EQ(all[i].bytes, told[i]);
  }
  co_return 0;
}

inline Task<void> write_snapshot_at(Journal& journal, uint64_t offset, uint64_t keep_records, size_t size = 0) {
  JournalSnapshot snapshot;
  snapshot.offset = offset;
  snapshot.bytes = "state at " + std::to_string(offset) + std::string(size, 's');
  co_await journal.write_snapshot(std::move(snapshot), keep_records);
}

inline Task<uint64_t> newest_snapshot(Journal& journal, uint64_t offset_max = UINT64_MAX) {
  std::optional<JournalSnapshot> snapshot = co_await journal.snapshot(offset_max);
  if (!snapshot) co_return 0;
  EXPECT_TRUE(snapshot->bytes.starts_with("state at " + std::to_string(snapshot->offset)));
  co_return snapshot->offset;
}

inline Task<uint64_t> first_offset(Journal& journal) {
  const std::vector<JournalRecord> records = co_await journal.read(0, 1);
  co_return records.empty() ? 0 : records.front().offset;
}

inline Task<int> trims_behind_snapshots(Journal& journal) {
  co_await journal.append(numbered(1, 20));
  co_await write_snapshot_at(journal, 10, 5);
  uint64_t first = co_await first_offset(journal);
  EXPECT_EQ(first, 1u) << "there is no snapshot from which record 5 could be replayed";
  co_await write_snapshot_at(journal, 16, 5);
  first = co_await first_offset(journal);
  EXPECT_EQ(first, 11u) << "records since the snapshot at 10 are needed";
  uint64_t newest = co_await newest_snapshot(journal);
  EXPECT_EQ(newest, 16u);
  newest = co_await newest_snapshot(journal, 15);
  EXPECT_EQ(newest, 10u);
  newest = co_await newest_snapshot(journal, 9);
  EXPECT_EQ(newest, 0u);

  co_await write_snapshot_at(journal, 20, 0);
  first = co_await first_offset(journal);
  EXPECT_EQ(first, 20u);
  newest = co_await newest_snapshot(journal, 19);
  EXPECT_EQ(newest, 0u);
  const uint64_t end = co_await journal.append(one_record("next"));
  EXPECT_EQ(end, 21u);
  const std::vector<JournalRecord> rest = co_await journal.read(20, 10);
  EXPECT_EQ(rest.size(), 1u);
  co_return 0;
}

inline Task<int> refuses_a_snapshot_of_the_future(Journal& journal) {
  co_await journal.append(numbered(1, 3));
  bool refused = false;
  try {
    co_await write_snapshot_at(journal, 4, 0);
  } catch (const Error& error) {
    refused = error.code == ErrorCode::kFailed;
  }
  EXPECT_TRUE(refused);
  const uint64_t newest = co_await newest_snapshot(journal);
  EXPECT_EQ(newest, 0u);
  co_return 0;
}

// The code of the error that the task ends with.
template <class T>
Task<std::optional<ErrorCode>> code_of(Task<T> task) {
  try {
    co_await std::move(task);
  } catch (const Error& error) {
    co_return error.code;
  }
  co_return std::nullopt;
}

// `old_one` was open when `new_one` took over.
inline Task<int> fences_the_older_writer(Journal& old_one, Journal& new_one) {
  const uint64_t end = co_await new_one.append(one_record("new"));
  std::optional<ErrorCode> code = co_await code_of(old_one.append(one_record("old")));
  EXPECT_EQ(code, ErrorCode::kConflict);
  code = co_await code_of(old_one.append(one_record("old again")));
  EXPECT_EQ(code, ErrorCode::kConflict);
  code = co_await code_of(old_one.read(0, 10));
  EXPECT_EQ(code, ErrorCode::kConflict);
  code = co_await code_of(old_one.snapshot());
  EXPECT_EQ(code, ErrorCode::kConflict);
  code = co_await code_of(write_snapshot_at(old_one, 1, 0));
  EXPECT_EQ(code, ErrorCode::kConflict);
  const uint64_t next = co_await new_one.append(one_record("newer"));
  EXPECT_EQ(next, end + 1);
  co_return 0;
}

}  // namespace rubato::journal_cases

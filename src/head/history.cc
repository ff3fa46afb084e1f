#include "head/history.h"

#include <fmt/format.h>

#include "cluster/apply.h"
#include "core/timestamp.h"

namespace rubato::head {

using cluster::Record;
using cluster::State;

namespace {

constexpr size_t kRecentMax = 5000;
constexpr size_t kReadBatch = 2000;
// A snapshot costs as much as the state is large; in between, replay costs this many records.
constexpr uint64_t kSnapshotEvery = 20'000;
// About a month of a busy small cluster: what `rubato replay` reaches back to.
constexpr uint64_t kKeepRecords = 1'000'000;

}  // namespace

void History::remember(const Record& record) {
  recent_.push_back(record);
  if (recent_.size() > kRecentMax) recent_.pop_front();
  last_ = record.offset;
}

Task<State> History::recover() {
  State state;
  const std::optional<JournalSnapshot> snapshot = co_await journal_.snapshot();
  if (snapshot) {
    state = cluster::decode_snapshot(snapshot->bytes);
    snapshot_at_ = last_ = snapshot->offset;
  }
  while (true) {
    const std::vector<JournalRecord> batch = co_await journal_.read(state.offset, kReadBatch);
    for (const JournalRecord& bytes : batch) {
      const Record record = cluster::decode(bytes.offset, bytes.bytes);
      cluster::apply(state, record);
      remember(record);
    }
    if (batch.size() < kReadBatch) break;
  }
  co_return state;
}

Task<void> History::append(const std::vector<Record>& records) {
  std::vector<std::string> bytes;
  bytes.reserve(records.size());
  for (const Record& record : records) bytes.push_back(cluster::encode(record.time, record.event));
  const uint64_t last = co_await journal_.append(std::move(bytes));
  CHECK(last == records.back().offset);
  for (const Record& record : records) remember(record);
  grown_.notify();
}

Task<void> History::snapshot_if_due(const State& state) {
  if (state.offset < snapshot_at_ + std::max<uint64_t>(kSnapshotEvery, 2 * state.jobs.size())) co_return;
  snapshot_at_ = state.offset;
  JournalSnapshot snapshot;
  snapshot.offset = state.offset;
  snapshot.bytes = cluster::encode_snapshot(state);
  try {
    co_await journal_.write_snapshot(std::move(snapshot), kKeepRecords);
  } catch (const Error& error) {
    if (error.code == ErrorCode::kConflict) throw;
    log_.warning("snapshot not written", {{"error", error.message}});
  }
}

Task<State> History::replay(std::optional<WallTime> time, std::optional<uint64_t> offset) {
  // Snapshots know offsets only: go back from the newest until one is old enough.
  uint64_t bound = offset.value_or(last_);
  State state;
  while (true) {
    const std::optional<JournalSnapshot> snapshot = co_await journal_.snapshot(bound);
    state = snapshot ? cluster::decode_snapshot(snapshot->bytes) : State{};
    if (!snapshot || !time || state.time <= *time) break;
    bound = snapshot->offset - 1;
  }
  const std::vector<JournalRecord> first = co_await journal_.read(state.offset, 1);
  if (!first.empty() && first.front().offset != state.offset + 1) {
    throw Error(ErrorCode::kNotFound, fmt::format("the journal begins at record {}", first.front().offset), "",
                "ask for a later time");
  }
  if (state.offset == 0 && !first.empty()) {
    const WallTime begin = cluster::decode(first.front().offset, first.front().bytes).time;
    if (bound == 0 || (time && *time < begin)) {
      throw Error(ErrorCode::kNotFound, fmt::format("the journal begins at {}", format_time(begin)), "",
                  "ask for a later time");
    }
  }
  while (state.offset < bound) {
    const std::vector<JournalRecord> batch = co_await journal_.read(state.offset, kReadBatch);
    if (batch.empty()) break;
    for (const JournalRecord& bytes : batch) {
      const Record record = cluster::decode(bytes.offset, bytes.bytes);
      if (record.offset > bound || (time && record.time > *time)) co_return state;
      cluster::apply(state, record);
    }
  }
  co_return state;
}

Task<std::vector<Record>> History::records(uint64_t after, size_t count) {
  std::vector<Record> out;
  if (!recent_.empty() && after + 1 >= recent_.front().offset) {
    for (size_t i = after + 1 - recent_.front().offset; i < recent_.size() && out.size() < count; ++i)
      out.push_back(recent_[i]);
    co_return out;
  }
  for (const JournalRecord& bytes : co_await journal_.read(after, count))
    out.push_back(cluster::decode(bytes.offset, bytes.bytes));
  co_return out;
}

}  // namespace rubato::head

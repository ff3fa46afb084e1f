#include "head/history.h"

#include <fmt/format.h>

#include "cluster/apply.h"
#include "core/timestamp.h"
#include "core/turns.h"

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

void History::remember(std::shared_ptr<const Record> record) {
  last_ = record->offset;
  recent_.push_back(std::move(record));
  if (recent_.size() > kRecentMax) recent_.pop_front();
}

Task<std::shared_ptr<State>> History::decode_snapshot(std::string bytes) {
  const auto state = std::make_shared<State>();
  std::function<void()> work = [state, bytes = std::move(bytes)] { *state = cluster::decode_snapshot(bytes); };
  co_await run_beside(offload_, std::move(work));
  co_return state;
}

Task<State> History::recover() {
  State state;
  const std::optional<JournalSnapshot> snapshot = co_await journal_.snapshot();
  if (snapshot) {
    state = std::move(*co_await decode_snapshot(snapshot->bytes));
    snapshot_at_ = last_ = snapshot->offset;
  }
  Turns turns(grown_.loop());
  while (true) {
    const std::vector<JournalRecord> batch = co_await journal_.read(state.offset, kReadBatch);
    for (const JournalRecord& bytes : batch) {
      const auto record = std::make_shared<const Record>(cluster::decode(bytes.offset, bytes.bytes));
      cluster::apply(state, *record);
      remember(record);
      co_await turns.step();
    }
    if (batch.size() < kReadBatch) break;
  }
  co_return state;
}

Task<void> History::append(std::shared_ptr<const std::vector<Record>> records) {
  // In slices, on the loop: beside it, a commit would stand behind the hashes of whole checkpoints.
  std::vector<std::string> bytes;
  bytes.reserve(records->size());
  Turns turns(grown_.loop());
  for (const Record& record : *records) {
    bytes.push_back(cluster::encode(record.time, record.event));
    co_await turns.step();
  }
  const uint64_t last = co_await journal_.append(std::move(bytes));
  CHECK(last == records->back().offset);
  for (const Record& record : *records) remember(std::shared_ptr<const Record>(records, &record));
  grown_.notify();
}

Task<void> History::snapshot_if_due(std::shared_ptr<const State> state) {
  if (state->offset < snapshot_at_ + std::max<uint64_t>(kSnapshotEvery, 2 * state->jobs.size())) co_return;
  snapshot_at_ = state->offset;
  const auto encoded = std::make_shared<std::string>();
  std::function<void()> work = [state, encoded] { *encoded = cluster::encode_snapshot(*state); };
  co_await run_beside(offload_, std::move(work));
  JournalSnapshot snapshot;
  snapshot.offset = state->offset;
  snapshot.bytes = std::move(*encoded);
  try {
    co_await journal_.write_snapshot(std::move(snapshot), kKeepRecords);
  } catch (const Error& error) {
    if (error.code == ErrorCode::kConflict) throw;
    log_.warning("snapshot not written", {{"error", error.message}});
  }
}

void check_offset(uint64_t offset, uint64_t last) {
  if (offset <= last) return;
  throw Error(ErrorCode::kNotFound, fmt::format("there is no record {}: the journal ends at record {}", offset, last),
              "", "rubato events shows the last ones");
}

Task<std::shared_ptr<State>> History::replay(std::optional<WallTime> time, std::optional<uint64_t> offset) {
  if (offset) check_offset(*offset, last_);
  // Snapshots know offsets only: go back from the newest until one is old enough.
  uint64_t bound = offset.value_or(last_);
  auto state = std::make_shared<State>();
  while (true) {
    const std::optional<JournalSnapshot> snapshot = co_await journal_.snapshot(bound);
    co_await free_beside(offload_, std::exchange(state, std::make_shared<State>()));
    if (snapshot) state = co_await decode_snapshot(snapshot->bytes);
    if (!snapshot || !time || state->time <= *time) break;
    bound = snapshot->offset - 1;
  }
  const std::vector<JournalRecord> first = co_await journal_.read(state->offset, 1);
  if (!first.empty() && first.front().offset != state->offset + 1) {
    throw Error(ErrorCode::kNotFound, fmt::format("the journal begins at record {}", first.front().offset), "",
                "ask for a later time");
  }
  if (state->offset == 0 && !first.empty()) {
    const WallTime begin = cluster::decode(first.front().offset, first.front().bytes).time;
    if (bound == 0 || (time && *time < begin)) {
      throw Error(ErrorCode::kNotFound, fmt::format("the journal begins at {}", format_time(begin)), "",
                  "ask for a later time");
    }
  }
  const auto done = std::make_shared<bool>(false);
  while (state->offset < bound && !*done) {
    const auto batch = std::make_shared<std::vector<JournalRecord>>();
    *batch = co_await journal_.read(state->offset, kReadBatch);
    if (batch->empty()) break;
    std::function<void()> work = [state, batch, bound, time, done] {
      for (const JournalRecord& bytes : *batch) {
        const Record record = cluster::decode(bytes.offset, bytes.bytes);
        *done = record.offset > bound || (time && record.time > *time);
        if (*done) return;
        cluster::apply(*state, record);
      }
    };
    co_await run_beside(offload_, std::move(work));
  }
  co_return state;
}

Task<SharedRecords> History::records(uint64_t after, size_t count) {
  const auto out = std::make_shared<SharedRecords>();
  if (!recent_.empty() && after + 1 >= recent_.front()->offset) {
    for (size_t i = after + 1 - recent_.front()->offset; i < recent_.size() && out->size() < count; ++i)
      out->push_back(recent_[i]);
    co_return std::move(*out);
  }
  const auto read = std::make_shared<std::vector<JournalRecord>>();
  *read = co_await journal_.read(after, count);
  std::function<void()> work = [read, out] {
    for (const JournalRecord& bytes : *read)
      out->push_back(std::make_shared<const Record>(cluster::decode(bytes.offset, bytes.bytes)));
  };
  co_await run_beside(offload_, std::move(work));
  co_return std::move(*out);
}

}  // namespace rubato::head

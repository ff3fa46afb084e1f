// Journal: an ordered, durable list of records, and snapshots that bound how much of it must be read again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/task.h"
#include "core/time.h"

namespace rubato {

struct JournalRecord {
  uint64_t offset = 0;  // 1, 2, 3, ... without gaps
  std::string bytes;
};
struct JournalSnapshot {
  uint64_t offset = 0;  // of the last record that it covers
  std::string bytes;
};

// One writer at a time: opening takes the journal over. Every call throws kUnavailable when the store does not answer,
// kConflict when another process has taken the journal over since, or what holds it was deleted, replaced or cut (this
// process must then stop), and DamagedError (journal_chain.h) when records are missing or damaged.
class Journal {
 public:
  virtual ~Journal() = default;

  // Appends in order; returns the offset of the last one once all are durable. Calls that overlap share a commit and
  // end in the order of their beginning. A caller that is cancelled does not know whether its records are in.
  virtual Task<uint64_t> append(std::vector<std::string> records) = 0;

  // Records after `after`, at most `count_max`; fewer only at the end.
  virtual Task<std::vector<JournalRecord>> read(uint64_t after, size_t count_max) = 0;

  // The newest snapshot that covers no record beyond `offset_max`.
  virtual Task<std::optional<JournalSnapshot>> snapshot(uint64_t offset_max = UINT64_MAX) = 0;

  // Keeps the snapshot; then forgets records and snapshots that lie more than `keep_records` before it (always keeping
  // one snapshot from which the kept records can be replayed).
  virtual Task<void> write_snapshot(JournalSnapshot snapshot, uint64_t keep_records) = 0;

  // Throws what an append would throw now; for times in which nothing is appended.
  virtual Task<void> check() = 0;
};

}  // namespace rubato

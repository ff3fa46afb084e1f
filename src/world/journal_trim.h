// What a Journal forgets when it has a new snapshot: the rule of Journal::write_snapshot, for all implementations.
#pragma once

#include <cstdint>
#include <vector>

namespace rubato {

struct JournalTrim {
  uint64_t records_below = 0;    // records with a lower offset go
  uint64_t snapshots_below = 0;  // likewise snapshots
};

// `snapshots`: the offsets of all snapshots, the new one among them; `newest`: the new one's. The base is the newest
// snapshot at or before `newest - keep_records`; what lies after it can be replayed from it, so all of that stays.
// Without a base the records since the beginning are needed.
inline JournalTrim plan_trim(const std::vector<uint64_t>& snapshots, uint64_t newest, uint64_t keep_records) {
  JournalTrim trim;
  if (newest < keep_records) return trim;
  const uint64_t horizon = newest - keep_records;
  for (const uint64_t offset : snapshots) {
    if (offset <= horizon && offset >= trim.snapshots_below) trim.snapshots_below = offset;
  }
  // A record that the base covers may still lie inside the span to keep.
  trim.records_below = trim.snapshots_below < horizon ? trim.snapshots_below + 1 : trim.snapshots_below;
  return trim;
}

}  // namespace rubato

// History: the journal as states. Recovery, snapshots, replay to a time, and the recent records for those who watch.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "cluster/state.h"
#include "core/channel.h"
#include "core/log.h"
#include "head/offload.h"
#include "head/shared_records.h"
#include "world/journal.h"

namespace rubato::head {

// Throws kNotFound for a record that is not written yet.
void check_offset(uint64_t offset, uint64_t last);

class History {
 public:
  // Records and snapshots are encoded and decoded beside the loop.
  History(Loop& loop, Journal& journal, Log log, Offload offload = {})
      : journal_(journal), log_(std::move(log)), offload_(std::move(offload)), grown_(loop) {}

  // The state after the last record. Throws an Error that names the record that cannot be read.
  Task<cluster::State> recover();

  // Durable when it returns. The records' offsets must follow the last one. They are shared, never copied: those who
  // watch may hold them for long.
  Task<void> append(std::shared_ptr<const std::vector<cluster::Record>> records);

  // Writes a snapshot when enough has been appended since the last one. A failure is logged: the journal is whole
  // without it.
  // Nobody changes the state meanwhile.
  Task<void> snapshot_if_due(std::shared_ptr<const cluster::State> state);

  // The state as it was: after the last record not later than `time`, or after record `offset`. Throws kNotFound when
  // the journal does not reach back so far, or has no such record yet.
  Task<std::shared_ptr<cluster::State>> replay(std::optional<WallTime> time, std::optional<uint64_t> offset);

  // Records after an offset, at most `count`; the recent ones from memory.
  Task<SharedRecords> records(uint64_t after, size_t count);
  uint64_t last() const { return last_; }
  Event& grown() { return grown_; }  // notified after each append

 private:
  void remember(std::shared_ptr<const cluster::Record> record);
  Task<std::shared_ptr<cluster::State>> decode_snapshot(std::string bytes);

  Journal& journal_;
  Log log_;
  Offload offload_;
  Event grown_;
  std::deque<std::shared_ptr<const cluster::Record>> recent_;
  uint64_t last_ = 0;
  uint64_t snapshot_at_ = 0;
};

}  // namespace rubato::head

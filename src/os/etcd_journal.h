// EtcdJournal: the Journal in a Store (etcd), for heads that must outlive their machine.
//
//   PREFIX/writer               "TOKEN": its created revision is the epoch, and a condition of every commit
//   PREFIX/end, PREFIX/begin    the last offset given; the first record that is not trimmed
//   PREFIX/journal/OFFSET       a record, with its chain (journal_chain.h) in front (older ones: without); offsets have
//   20 digits, so that
//                               their order is that of the keys
//   PREFIX/snapshot/OFFSET      "GROUP PARTS BYTES CHAIN": where the snapshot's bytes are
//   PREFIX/part/GROUP/NUMBER    up to 512 KiB of a snapshot
//   PREFIX/garbage/GROUP        "PARTS": a group that is being written, or that no snapshot needs any more
//
// Taking over deletes PREFIX/writer and creates it anew, so that commits of the older writer fail: kConflict.
// When no server answers a commit (kUnavailable), nobody knows whether it is in, or will yet be. The next commit then
// begins by taking the journal over from itself: that fences the straggler; and by reading the end again.
//
// etcd is durable by itself; what can go is its data as a whole, or its newest part, when somebody restores a backup.
// So the head's machine keeps the note of the end; a head on another machine has none, and believes etcd.
//
// etcd's defaults allow 128 operations and 1.5 MiB a transaction; we use 101 and little more than 1 MiB (the Store adds
// its marker). etcd keeps what is deleted until it is compacted: run it with --auto-compaction-retention.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/gate.h"
#include "world/clock.h"
#include "world/group_commit.h"
#include "world/journal.h"
#include "world/journal_chain.h"
#include "world/store.h"

namespace rubato::os {

// The note of an EtcdJournal: what it was before, and how to write it.
struct EtcdJournalNote {
  std::optional<JournalNote> before;
  std::function<Task<void>(JournalNote note)> write;  // ends when whoever starts next reads it
  EncodeLoss accept_loss;                             // if set, a journal that lacks its tail is gone on with
};

class EtcdJournal final : public Journal {
 public:
  // Takes the journal over; the writer before gets kConflict from then on. `token` tells this writer from all others
  // (random, without spaces). The store and the clock outlive the journal, the journal its tasks.
  // Throws DamagedError when it lacks what the note knows of. Without a note that is not checked.
  static Task<std::unique_ptr<EtcdJournal>> open(Store& store, Clock& clock, std::string prefix, std::string token,
                                                 EtcdJournalNote note = {});
  // Only for reading: disturbs no writer. What is trimmed meanwhile may be missed.
  static std::unique_ptr<EtcdJournal> view(Store& store, Clock& clock, std::string prefix);

  Task<uint64_t> append(std::vector<std::string> records) override;
  Task<std::vector<JournalRecord>> read(uint64_t after, size_t count_max) override;
  Task<std::optional<JournalSnapshot>> snapshot(uint64_t offset_max = UINT64_MAX) override;
  Task<void> write_snapshot(JournalSnapshot snapshot, uint64_t keep_records) override;
  Task<void> check() override;

  uint64_t epoch() const { return static_cast<uint64_t>(writer_created_); }  // grows with each takeover
  uint64_t commits() const { return group_.commits(); }                      // of appends, so far
  static constexpr size_t kRecordBytesMax = size_t{1} << 20;
  static constexpr size_t kPartBytes = size_t{512} << 10;

 private:
  struct Manifest {
    std::string group;
    uint64_t parts = 0, bytes = 0;
    std::string chain;  // empty: older than the chain
  };
  using Manifests = std::map<uint64_t, Manifest>;

  EtcdJournal(Store& store, Clock& clock, std::string prefix, std::string token, EtcdJournalNote note);
  Task<void> check_note();
  Task<void> write_note();
  Task<std::string> chain_at(uint64_t offset);
  static Task<uint64_t> commit_records(EtcdJournal& self, std::vector<std::string> records);
  Task<void> commit(std::vector<StoreWrite> writes);
  Task<void> commit_in_pieces(std::vector<StoreWrite> writes);
  Task<void> hold_writer();
  Task<void> take_over(bool from_anybody);
  Task<void> check_writer();
  Task<uint64_t> number_at(std::string key);
  Task<Manifests> manifests();
  Task<std::optional<std::string>> read_parts(Manifest manifest);
  Task<Manifest> write_parts(const JournalSnapshot& snapshot);
  Task<void> sweep_garbage();
  Task<void> trim_records(uint64_t below);

  std::string record_key(uint64_t offset) const;
  std::string snapshot_key(uint64_t offset) const;
  std::string part_key(const std::string& group, uint64_t number) const;
  Instant deadline() const;
  Error taken_over();
  [[noreturn]] void damaged(const std::string& key, const std::string& text) const;

  Store& store_;
  Clock& clock_;
  const std::string prefix_, token_;
  int64_t writer_created_ = 0;
  bool uncertain_ = true;  // whether a commit is in, or writer_created_ is still right
  bool lost_ = false;      // taken over by another: for good
  bool is_view_ = false;
  uint64_t end_ = 0;
  std::string chain_;  // at the end; empty: it is older than the chain
  EtcdJournalNote note_;
  uint64_t next_group_ = 1;
  Gate writing_, snapshotting_;
  GroupCommit group_;
};

}  // namespace rubato::os

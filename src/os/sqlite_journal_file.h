// SqliteJournalFile: the journal in one SQLite file, without coroutines: what SqliteJournal does off the loop.
//
//   meta(version, epoch)                     one row; whoever opens the file adds 1 to the epoch and is then its writer
//   records(offset, bytes, crc32, chain)     crc32 over offset and bytes; chain: world/journal_chain.h
//   snapshots(offset, bytes, crc32, chain)   chain: that of the record at the offset, which may be trimmed
//
// WAL, synchronous=FULL: a commit is on the disk when it returns. Every transaction first checks that the epoch is
// still this writer's, else kConflict. That is why no lock is held between transactions: a new head can take over from
// one that hangs. Within a transaction SQLite's own file lock holds.
//
// With a note (a file elsewhere, so that whoever deletes the journal does not delete it too), opening refuses a file
// that lacks anything the note knows of, and leaves it as it was: nothing is written before all is found to be there.
// A commit is answered only if the path still leads to the file that was written, and the note has it.
//
// kUnavailable: the disk is full or fails, or the file is held by a process that is stopped inside a transaction.
// kConflict: another has taken it over, or it was deleted, replaced or cut while in use: this writer must stop.
// DamagedError: records are missing, or the file is damaged or not a journal; the message says which, and which record.
// kFailed: it is of a newer Rubato.
// Thread-safe by one mutex. Every call may block.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "os/journal_note.h"
#include "os/sqlite.h"
#include "world/journal.h"

namespace rubato::os {

class SqliteJournalFile {
 public:
  static constexpr uint64_t kVersion = 3;  // 2: checksums; 3: the chain

  // Creates the file (0600) if it is not there and the note knows of no records, brings an older one up to date, takes
  // it over. `note`: the path of the note; empty: none, as for a copy.
  explicit SqliteJournalFile(const std::string& path, std::string note = "");

  uint64_t append(const std::vector<std::string>& records);  // all or none
  std::vector<JournalRecord> read(uint64_t after, size_t count_max);
  std::optional<JournalSnapshot> snapshot(uint64_t offset_max);
  void write_snapshot(const JournalSnapshot& snapshot, uint64_t keep_records);

  // Throws kConflict when the file is not this writer's any more, or not in its place. Syncs the note.
  void check();

  uint64_t epoch() const { return epoch_; }
  const std::string& path() const { return database_.path(); }

 private:
  uint64_t version();
  void create();
  void migrate(uint64_t from);
  void add_checksums(const std::string& table);
  void verify(uint64_t version);
  void verify_tail(uint64_t version, uint64_t end);
  void check_epoch();
  void check_files();
  Error with_copy(Error error);
  uint64_t find_end();
  std::string chain_at(uint64_t offset);
  std::vector<uint64_t> snapshot_offsets();
  JournalNote note_now() const;
  DamagedError lost(uint64_t first, uint64_t end, const std::string& cause) const;

  std::mutex mutex_;
  const std::string note_path_;
  const std::optional<JournalNote> noted_;  // before we opened it
  Sqlite database_;
  uint64_t epoch_ = 0;
  uint64_t end_ = 0;   // the last offset that was ever given
  std::string chain_;  // at it; empty: it is older than the chain
  std::unique_ptr<JournalNoteFile> note_;
  std::optional<Error> gone_;  // once it is, it stays so: what it held is saved once
};

}  // namespace rubato::os

// SqliteJournalFile: the journal in one SQLite file, without coroutines: what SqliteJournal does off the loop.
//
//   meta(version, epoch)              one row; whoever opens the file adds 1 to the epoch and is then its writer
//   records(offset, bytes, crc32)     crc32 over offset and bytes
//   snapshots(offset, bytes, crc32)
//
// WAL, synchronous=FULL: a commit is on the disk when it returns. Every transaction first checks that the epoch is
// still this writer's, else kConflict. That is why no lock is held between transactions: a new head can take over from
// one that hangs. Within a transaction SQLite's own file lock holds.
//
// kUnavailable: the disk is full or fails, or the file is held by a process that is stopped inside a transaction.
// kFailed: the file is damaged, of a newer Rubato, or not a journal; the words say which, and which record.
// Thread-safe by one mutex. Every call may block.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "os/sqlite.h"
#include "world/journal.h"

namespace rubato::os {

class SqliteJournalFile {
 public:
  static constexpr uint64_t kVersion = 2;  // 2: checksums

  // Creates the file (0600) if it is not there, brings an older one up to date, takes it over.
  explicit SqliteJournalFile(const std::string& path);

  uint64_t append(const std::vector<std::string>& records);  // all or none
  std::vector<JournalRecord> read(uint64_t after, size_t count_max);
  std::optional<JournalSnapshot> snapshot(uint64_t offset_max);
  void write_snapshot(const JournalSnapshot& snapshot, uint64_t keep_records);

  uint64_t epoch() const { return epoch_; }
  const std::string& path() const { return database_.path(); }

 private:
  using Schema = std::map<std::string, std::string>;  // a table's name and the words that made it
  Schema schema();
  uint64_t version();
  void create();
  void migrate(uint64_t from);
  void add_checksums(const std::string& table);
  void check_epoch();
  uint64_t find_end();
  std::vector<uint64_t> snapshot_offsets();

  std::mutex mutex_;
  Sqlite database_;
  uint64_t epoch_ = 0;
  uint64_t end_ = 0;  // the last offset that was ever given
};

}  // namespace rubato::os

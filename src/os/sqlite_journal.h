// SqliteJournal: the Journal in one SQLite file on this machine. sqlite_journal_file.h says what the file guarantees.
//
// All work on the file is offloaded; appends that come while a commit is under way share the next one.
#pragma once

#include <memory>
#include <string>

#include "os/runtime.h"
#include "os/sqlite_journal_file.h"
#include "world/group_commit.h"
#include "world/journal.h"

namespace rubato::os {

class SqliteJournal final : public Journal {
 public:
  // Opens or creates the file and takes it over: the writer before gets kConflict from then on.
  // The folders must be there. `runtime` outlives the journal, the journal its tasks. `note`: as SqliteJournalFile's.
  // With `accept_loss`, one that is damaged (DamagedError) is gone on with, as sqlite_journal_rescue.h says.
  static Task<std::unique_ptr<SqliteJournal>> open(Runtime& runtime, std::string path, std::string note = "",
                                                   EncodeLoss accept_loss = nullptr);

  Task<uint64_t> append(std::vector<std::string> records) override;
  Task<std::vector<JournalRecord>> read(uint64_t after, size_t count_max) override;
  Task<std::optional<JournalSnapshot>> snapshot(uint64_t offset_max = UINT64_MAX) override;
  Task<void> write_snapshot(JournalSnapshot snapshot, uint64_t keep_records) override;
  Task<void> check() override;

  uint64_t epoch() const { return file_->epoch(); }            // of this writer; grows with each opening
  uint64_t commits() const { return group_.commits(); }        // of appends, so far
  static constexpr size_t kRecordBytesMax = size_t{16} << 20;  // a larger record is refused

 private:
  SqliteJournal(Runtime& runtime, std::shared_ptr<SqliteJournalFile> file);
  template <class T>
  Task<T> work(std::function<T()> call);
  static Task<uint64_t> commit(SqliteJournal& self, std::vector<std::string> records);

  Runtime& runtime_;
  std::shared_ptr<SqliteJournalFile> file_;  // shared with work that may outlive us
  GroupCommit group_;
};

}  // namespace rubato::os

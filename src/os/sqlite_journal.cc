#include "os/sqlite_journal.h"

#include "os/sqlite_journal_rescue.h"

namespace rubato::os {

namespace {

// A disk that hangs is told apart from one that is slow: SQLite itself may wait for a lock for 10 s.
constexpr Duration kPatience = 90s;

CommitLimits sqlite_limits() {
  CommitLimits limits;
  limits.records_max = 10'000;
  limits.bytes_max = size_t{32} << 20;
  limits.record_bytes_max = SqliteJournal::kRecordBytesMax;
  return limits;
}

template <class T>
Task<T> offload_until(Runtime& runtime, std::function<T()> call, std::string path) {
  Task<T> work = runtime.offload<T>(std::move(call));
  std::optional<T> done = co_await with_deadline(runtime, runtime.now() + kPatience, std::move(work));
  if (!done) throw Error(ErrorCode::kUnavailable, "the disk does not answer", path, "look at the disk's health");
  co_return std::move(*done);
}

}  // namespace

SqliteJournal::SqliteJournal(Runtime& runtime, std::shared_ptr<SqliteJournalFile> file)
    : runtime_(runtime),
      file_(std::move(file)),
      group_(runtime, sqlite_limits(),
             [this](std::vector<std::string> records) { return commit(*this, std::move(records)); }) {}

namespace {

std::shared_ptr<SqliteJournalFile> open_file(const std::string& path, const std::string& note,
                                             const EncodeLoss& accept_loss) {
  finish_rescue(path, note);
  try {
    return std::make_shared<SqliteJournalFile>(path, note);
  } catch (const DamagedError&) {
    if (!accept_loss) throw;
  }
  rescue_journal(path, note, accept_loss);
  return std::make_shared<SqliteJournalFile>(path, note);
}

}  // namespace

Task<std::unique_ptr<SqliteJournal>> SqliteJournal::open(Runtime& runtime, std::string path, std::string note,
                                                         EncodeLoss accept_loss) {
  std::function<std::shared_ptr<SqliteJournalFile>()> call = [path, note = std::move(note),
                                                              accept_loss = std::move(accept_loss)] {
    return open_file(path, note, accept_loss);
  };
  std::shared_ptr<SqliteJournalFile> file = co_await offload_until(runtime, std::move(call), path);
  co_return std::unique_ptr<SqliteJournal>(new SqliteJournal(runtime, std::move(file)));
}

template <class T>
Task<T> SqliteJournal::work(std::function<T()> call) {
  return offload_until(runtime_, std::move(call), file_->path());
}

Task<uint64_t> SqliteJournal::commit(SqliteJournal& self, std::vector<std::string> records) {
  std::function<uint64_t()> call = [file = self.file_, records = std::move(records)] { return file->append(records); };
  return self.work(std::move(call));
}

Task<uint64_t> SqliteJournal::append(std::vector<std::string> records) { return group_.append(std::move(records)); }

Task<std::vector<JournalRecord>> SqliteJournal::read(uint64_t after, size_t count_max) {
  std::function<std::vector<JournalRecord>()> call = [file = file_, after, count_max] {
    return file->read(after, count_max);
  };
  return work(std::move(call));
}

Task<std::optional<JournalSnapshot>> SqliteJournal::snapshot(uint64_t offset_max) {
  std::function<std::optional<JournalSnapshot>()> call = [file = file_, offset_max] {
    return file->snapshot(offset_max);
  };
  return work(std::move(call));
}

Task<void> SqliteJournal::write_snapshot(JournalSnapshot snapshot, uint64_t keep_records) {
  std::function<int()> call = [file = file_, snapshot = std::move(snapshot), keep_records] {
    file->write_snapshot(snapshot, keep_records);
    return 0;
  };
  co_await work(std::move(call));
}

Task<void> SqliteJournal::check() {
  std::function<int()> call = [file = file_] {
    file->check();
    return 0;
  };
  co_await work(std::move(call));
}

}  // namespace rubato::os

#include "os/sqlite_journal_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "os/fd.h"
#include "os/sqlite_journal_schema.h"
#include "world/journal_trim.h"

namespace rubato::os {

namespace {

using Kind = SqliteTransaction::Kind;

constexpr const char* kNoJournal = "its tables are not those of a journal";

[[noreturn]] void fail_file(const std::string& doing, const std::string& path) {
  const int code = errno;
  throw Error(ErrorCode::kFailed, fmt::format("cannot {} '{}': {}", doing, path, strerror(code)), path,
              code == ENOSPC ? "free some space on that disk" : "check the permissions of that folder");
}

void sync_folder(const std::string& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) fail_file("sync the folder", folder);
}

std::optional<JournalNote> read_note(const std::string& path) {
  return path.empty() ? std::nullopt : JournalNoteFile::read(path);
}

// Returns the path. SQLite would create the file with the umask's mode; and it gives the files beside it the same mode.
// An existing file is not opened here: closing it would drop the locks of another connection of this process.
const std::string& prepare_file(const std::string& path, const std::optional<JournalNote>& noted) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0) {
    if (!S_ISREG(facts.st_mode)) throw Error(ErrorCode::kFailed, "the journal '" + path + "' is not a file", path);
    if ((facts.st_mode & 07777) != kJournalMode && ::chmod(path.c_str(), kJournalMode) != 0)
      fail_file("set the mode of", path);
    return path;
  }
  if (noted && noted->offset > 0) {
    JournalLoss loss;
    loss.first = 1;
    loss.last = noted->offset;
    loss.cause = "the file is gone";
    throw loss_error(loss, path);
  }
  // A log that was left behind belongs to no file; SQLite would take it for the new one's.
  for (const char* suffix : {"-wal", "-shm"}) ::unlink((path + suffix).c_str());
  const Fd created(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kJournalMode));
  if (!created && errno != EEXIST) fail_file("create", path);
  const std::string folder = std::filesystem::path(path).parent_path();
  sync_folder(folder.empty() ? "." : folder);
  return path;
}

}  // namespace

// The note is read first: what it knows of was durable before, so the file must have it.
SqliteJournalFile::SqliteJournalFile(const std::string& path, std::string note)
    : note_path_(std::move(note)), noted_(read_note(note_path_)), database_(prepare_file(path, noted_)) {
  database_.keep_log_on_close(true);  // one that is refused stays as it is
  verify(version());                  // and a file that is not ours must not be written to
  database_.keep_log_on_close(false);
  database_.execute("PRAGMA journal_mode=WAL");
  database_.execute("PRAGMA synchronous=FULL");
  database_.execute("PRAGMA cell_size_check=ON");
  database_.execute("PRAGMA journal_size_limit=16777216");  // the -wal file shrinks again after a burst

  SqliteTransaction transaction(database_, Kind::kWrite);
  // Again: another process may have created or migrated it meanwhile.
  const uint64_t current = version();
  if (current == 0) create();
  end_ = find_end();
  if (current == 1 || current == 2) {
    // Before the version that says that there is a note: a crash in between must not look like a note that was lost.
    if (!note_path_.empty()) note_ = std::make_unique<JournalNoteFile>(note_path_, note_now());
    migrate(current);
  }
  if (database_.schema() != journal_schema(kVersion)) database_.damaged(kNoJournal);
  Sqlite::Query(database_, "UPDATE meta SET epoch = epoch + 1").step();
  {
    Sqlite::Query meta(database_, "SELECT version, epoch FROM meta");
    if (!meta.step()) database_.damaged("it does not say its version");
    epoch_ = meta.number(1);
    if (meta.step()) database_.damaged("it says its version twice");
  }
  chain_ = chain_at(end_);
  transaction.commit();
  // From here on nobody else commits: the end is the end.
  if (!note_path_.empty()) note_ = std::make_unique<JournalNoteFile>(note_path_, note_now());
}

JournalNote SqliteJournalFile::note_now() const {
  JournalNote note;
  note.offset = end_;
  note.chain = chain_;
  note.epoch = std::max(epoch_, noted_ ? noted_->epoch : 0);
  return note;
}

DamagedError SqliteJournalFile::lost(uint64_t first, uint64_t end, const std::string& cause) const {
  JournalLoss loss;
  loss.first = first;
  loss.last = std::max(end, noted_ ? noted_->offset : 0);
  loss.cause = cause;
  return loss_error(loss, path());
}

// Throws DamagedError unless all is there that the note knows of and that a head reads when it starts: the newest
// snapshot and the records after it. Older records are checked when they are read.
void SqliteJournalFile::verify(uint64_t version) {
  if (version == 0) {
    if (noted_ && noted_->offset > 0) throw lost(1, 0, "the file is empty");
    return;
  }
  SqliteTransaction transaction(database_, Kind::kRead);
  const uint64_t end = find_end();
  if (!noted_ && !note_path_.empty() && version >= 3 && end > 0) {
    throw DamagedError(
        fmt::format("'{}' is gone: it says how far the journal goes, so nobody knows whether the journal is "
                    "whole",
                    note_path_),
        note_path_, "put it back from a copy; or go on with the journal as it is: rubato up --accept-journal-loss");
  }
  if (version >= 2) verify_tail(version, end);
  const std::string there = noted_ && version >= 3 ? chain_at(noted_->offset) : "";
  const auto loss = noted_ ? find_loss(*noted_, end, there) : std::nullopt;
  if (loss) throw loss_error(*loss, path());
  transaction.commit();
}

void SqliteJournalFile::verify_tail(uint64_t version, uint64_t end) {
  const std::string chain_column = version >= 3 ? "chain" : "x''";
  uint64_t last = 0;
  std::string chain;
  {
    Sqlite::Query newest(
        database_, "SELECT offset, bytes, crc32, " + chain_column + " FROM snapshots ORDER BY offset DESC LIMIT 1");
    if (newest.step()) {
      last = newest.number(0);
      chain = newest.bytes(3);
      if (newest.number(2) != journal_checksum(last, newest.bytes(1))) {
        throw lost(last, end, fmt::format("the checksum of the snapshot at {} is wrong", last));
      }
    }
  }
  Sqlite::Query query(
      database_, "SELECT offset, bytes, crc32, " + chain_column + " FROM records WHERE offset > ? ORDER BY offset");
  query.bind(last);
  while (query.step()) {
    const uint64_t offset = query.number(0);
    const std::string bytes = query.bytes(1), said = query.bytes(3);
    if (offset != last + 1) {
      throw lost(last + 1, end, fmt::format("record {} is missing", last + 1));
    }
    if (query.number(2) != journal_checksum(offset, bytes)) {
      throw lost(offset, end, fmt::format("the checksum of record {} is wrong", offset));
    }
    if (said.empty() ? !chain.empty() : said != chain_next(chain, offset, bytes)) {
      throw lost(offset, end, fmt::format("record {} does not follow from the one before", offset));
    }
    last = offset;
    chain = said;
  }
}

// 0: an empty file. Throws for what is no journal of a known version.
uint64_t SqliteJournalFile::version() {
  uint64_t id = 0;
  {
    Sqlite::Query query(database_, "PRAGMA application_id");
    if (query.step()) id = query.number(0);
  }
  const JournalSchema found = database_.schema();
  if (found.empty() && id == 0) return 0;
  if (id != kJournalApplicationId) {
    throw DamagedError(fmt::format("'{}' is a database, but not a journal of Rubato", path()), path(),
                       "put the journal back from a copy; or go on without it, keeping this file aside: rubato up "
                       "--accept-journal-loss");
  }
  // This table is the same in all versions.
  const auto meta = found.find("meta");
  if (meta == found.end() || meta->second != journal_schema(1).at("meta")) database_.damaged(kNoJournal);
  std::optional<uint64_t> version;
  {
    Sqlite::Query query(database_, "SELECT version FROM meta");
    if (query.step()) version = query.number(0);
  }
  if (!version || *version == 0) database_.damaged("it does not say its version");
  if (*version > kVersion) {
    throw Error(ErrorCode::kFailed,
                fmt::format("the journal '{}' is of a newer Rubato (version {}; this one knows {})", path(), *version,
                            kVersion),
                path(), "run the newer rubato, or start with another folder");
  }
  if (found != journal_schema(*version)) database_.damaged(kNoJournal);
  return *version;
}

void SqliteJournalFile::create() {
  database_.execute(fmt::format("PRAGMA application_id={}", kJournalApplicationId));
  for (const auto& [name, sql] : journal_schema(kVersion)) database_.execute(sql);
  Sqlite::Query(database_, "INSERT INTO meta(version, epoch) VALUES(?, 0)").bind(kVersion).step();
}

// One step a version, all in the transaction that opens the file.
void SqliteJournalFile::migrate(uint64_t from) {
  if (from < 2) {
    add_checksums("records");
    add_checksums("snapshots");
  }
  for (const char* table : {"records", "snapshots"}) {
    database_.execute(fmt::format("ALTER TABLE {} ADD COLUMN chain BLOB NOT NULL DEFAULT x''", table));
  }
  Sqlite::Query(database_, "UPDATE meta SET version = ?").bind(kVersion).step();
}

void SqliteJournalFile::add_checksums(const std::string& table) {
  database_.execute("ALTER TABLE " + table + " ADD COLUMN crc32 INTEGER NOT NULL DEFAULT 0");
  for (std::optional<uint64_t> last = 0; last;) {
    std::optional<uint64_t> offset;
    uint64_t sum = 0;
    {
      Sqlite::Query next(database_, "SELECT offset, bytes FROM " + table + " WHERE offset > ? ORDER BY offset LIMIT 1");
      if (next.bind(*last).step()) {
        offset = next.number(0);
        sum = journal_checksum(*offset, next.bytes(1));
      }
    }
    if (offset) {
      Sqlite::Query(database_, "UPDATE " + table + " SET crc32 = ? WHERE offset = ?").bind(sum).bind(*offset).step();
    }
    last = offset;
  }
}

void SqliteJournalFile::check_epoch() {
  Sqlite::Query query(database_, "SELECT epoch FROM meta");
  const uint64_t found = query.step() ? query.number(0) : 0;
  if (found == epoch_) return;
  throw Error(
      ErrorCode::kConflict,
      fmt::format("another process has taken over the journal '{}' (epoch {}, ours is {})", path(), found, epoch_),
      path());
}

// Records may all be trimmed; the newest snapshot then tells how far they went.
uint64_t SqliteJournalFile::find_end() {
  uint64_t end = 0;
  for (const char* sql : {"SELECT max(offset) FROM records", "SELECT max(offset) FROM snapshots"}) {
    Sqlite::Query query(database_, sql);
    if (query.step() && !query.is_null(0)) end = std::max(end, query.number(0));
  }
  return end;
}

// Empty: it is trimmed, or older than the chain.
std::string SqliteJournalFile::chain_at(uint64_t offset) {
  for (const char* sql :
       {"SELECT chain FROM records WHERE offset = ?", "SELECT chain FROM snapshots WHERE offset = ?"}) {
    Sqlite::Query query(database_, sql);
    if (query.bind(offset).step()) return query.bytes(0);
  }
  return "";
}

// The file that somebody deleted or replaced is still open here, with all that it held.
Error SqliteJournalFile::with_copy(Error error) {
  database_.keep_log_on_close(true);  // the log's name may be another file's by now
  const std::string copy = fmt::format("{}.saved-{}", path(), epoch_);
  try {
    Sqlite::Query(database_, "VACUUM INTO ?").bind_text(copy).step();
    error.hint = fmt::format(
        "all that it held was saved in {0}: see who did that, remove {1} and {1}-wal if they are "
        "there, then: mv {0} {1}; rubato up",
        copy, path());
  } catch (const Error&) {
    ::unlink(copy.c_str());  // half a copy is none; the fix says what else can be done
  }
  return error;
}

void SqliteJournalFile::check_files() {
  if (gone_) throw Error(*gone_);
  try {
    database_.check_in_place();
  } catch (const Error& error) {
    if (error.code != ErrorCode::kConflict) throw;
    gone_ = with_copy(error);
    throw Error(*gone_);
  }
  // Who deletes the note takes nothing away: we know what it says.
  if (note_ && !note_->is_in_place()) note_ = std::make_unique<JournalNoteFile>(note_path_, note_now());
}

void SqliteJournalFile::check() {
  const std::lock_guard lock(mutex_);
  {
    SqliteTransaction transaction(database_, Kind::kRead);
    check_epoch();
    transaction.commit();
  }
  check_files();
  if (note_) note_->sync();
}

uint64_t SqliteJournalFile::append(const std::vector<std::string>& records) {
  const std::lock_guard lock(mutex_);
  SqliteTransaction transaction(database_, Kind::kWrite);
  check_epoch();
  uint64_t end = end_;
  std::string chain = chain_;
  for (const std::string& record : records) {
    ++end;
    chain = chain_next(chain, end, record);
    Sqlite::Query insert(database_, "INSERT INTO records(offset, bytes, crc32, chain) VALUES(?, ?, ?, ?)");
    insert.bind(end).bind(record).bind(journal_checksum(end, record)).bind(chain).step();
  }
  transaction.commit();
  end_ = end;
  chain_ = chain;
  // Whoever is told that the records are in must find them where the next head looks.
  check_files();
  if (note_) note_->write(note_now());
  return end;
}

std::vector<JournalRecord> SqliteJournalFile::read(uint64_t after, size_t count_max) {
  const std::lock_guard lock(mutex_);
  std::vector<JournalRecord> records;
  SqliteTransaction transaction(database_, Kind::kRead);
  check_epoch();
  {
    std::string chain = chain_at(after);
    Sqlite::Query query(database_,
                        "SELECT offset, bytes, crc32, chain FROM records WHERE offset > ? ORDER BY offset LIMIT ?");
    query.bind(after).bind(count_max);
    while (query.step()) {
      JournalRecord record;
      record.offset = query.number(0);
      record.bytes = query.bytes(1);
      if (query.number(2) != journal_checksum(record.offset, record.bytes)) {
        database_.damaged(fmt::format("the checksum of record {} is wrong", record.offset));
      }
      const uint64_t expected = (records.empty() ? after : records.back().offset) + 1;
      if (record.offset != expected && !records.empty()) {
        database_.damaged(fmt::format("record {} is missing", expected));
      }
      const std::string said = query.bytes(3);
      // What comes before the first may be trimmed, or older than the chain.
      if (record.offset == expected && !chain.empty() && said != chain_next(chain, record.offset, record.bytes)) {
        database_.damaged(fmt::format("record {} does not follow from the one before", record.offset));
      }
      chain = said;
      records.push_back(std::move(record));
    }
  }
  // Records may be missing in front only, where a snapshot stands for them.
  if (!records.empty() && records.front().offset > after + 1) {
    const std::vector<uint64_t> snapshots = snapshot_offsets();
    if (snapshots.empty() || snapshots.back() + 1 < records.front().offset) {
      database_.damaged(fmt::format("record {} is missing", records.front().offset - 1));
    }
  }
  const uint64_t last = records.empty() ? after : records.back().offset;
  if (records.size() < count_max && last < end_) database_.damaged(fmt::format("record {} is missing", last + 1));
  transaction.commit();
  return records;
}

std::vector<uint64_t> SqliteJournalFile::snapshot_offsets() {
  std::vector<uint64_t> offsets;
  Sqlite::Query query(database_, "SELECT offset FROM snapshots ORDER BY offset");
  while (query.step()) offsets.push_back(query.number(0));
  return offsets;
}

std::optional<JournalSnapshot> SqliteJournalFile::snapshot(uint64_t offset_max) {
  const std::lock_guard lock(mutex_);
  SqliteTransaction transaction(database_, Kind::kRead);
  check_epoch();
  std::optional<JournalSnapshot> newest;
  {
    Sqlite::Query query(database_,
                        "SELECT offset, bytes, crc32 FROM snapshots WHERE offset <= ? ORDER BY offset DESC LIMIT 1");
    if (query.bind(offset_max).step()) {
      newest.emplace();
      newest->offset = query.number(0);
      newest->bytes = query.bytes(1);
      if (query.number(2) != journal_checksum(newest->offset, newest->bytes)) {
        database_.damaged(fmt::format("the checksum of the snapshot at {} is wrong", newest->offset));
      }
    }
  }
  transaction.commit();
  return newest;
}

void SqliteJournalFile::write_snapshot(const JournalSnapshot& snapshot, uint64_t keep_records) {
  const std::lock_guard lock(mutex_);
  SqliteTransaction transaction(database_, Kind::kWrite);
  check_epoch();
  if (snapshot.offset > end_) {
    throw Error(ErrorCode::kFailed,
                fmt::format("a snapshot at {} is beyond the journal's end at {}", snapshot.offset, end_), path());
  }
  {
    const std::string chain = chain_at(snapshot.offset);
    Sqlite::Query insert(database_, "INSERT OR REPLACE INTO snapshots(offset, bytes, crc32, chain) VALUES(?, ?, ?, ?)");
    insert.bind(snapshot.offset).bind(snapshot.bytes).bind(journal_checksum(snapshot.offset, snapshot.bytes));
    insert.bind(chain).step();
  }
  const JournalTrim trim = plan_trim(snapshot_offsets(), snapshot.offset, keep_records);
  Sqlite::Query(database_, "DELETE FROM records WHERE offset < ?").bind(trim.records_below).step();
  Sqlite::Query(database_, "DELETE FROM snapshots WHERE offset < ?").bind(trim.snapshots_below).step();
  transaction.commit();
}

}  // namespace rubato::os

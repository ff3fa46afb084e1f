#include "os/sqlite_journal_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "os/fd.h"
#include "world/journal_trim.h"

namespace rubato::os {

namespace {

using Kind = SqliteTransaction::Kind;
using Schema = std::map<std::string, std::string>;

// In the file's header: `file journal.db` shows it, and no other program's database is taken for a journal.
constexpr uint64_t kApplicationId = 0x52424a4c;  // "RBJL"
constexpr const char* kNoJournal = "its tables are not those of a journal";
constexpr int kMode = 0600;  // commands and environments of jobs are in it

// The exact words of each version's tables. A file with other words is not a journal: nothing that a stranger put
// into it (a view, a trigger) is ever run.
const Schema& schema_of(uint64_t version) {
  static const Schema first{{"meta", "CREATE TABLE meta(version INTEGER NOT NULL, epoch INTEGER NOT NULL)"},
                            {"records", "CREATE TABLE records(offset INTEGER PRIMARY KEY, bytes BLOB NOT NULL)"},
                            {"snapshots", "CREATE TABLE snapshots(offset INTEGER PRIMARY KEY, bytes BLOB NOT NULL)"}};
  static const Schema second{
      {"meta", first.at("meta")},
      {"records",
       "CREATE TABLE records(offset INTEGER PRIMARY KEY, bytes BLOB NOT NULL, crc32 INTEGER NOT NULL DEFAULT 0)"},
      {"snapshots",
       "CREATE TABLE snapshots(offset INTEGER PRIMARY KEY, bytes BLOB NOT NULL, crc32 INTEGER NOT NULL DEFAULT 0)"}};
  return version == 1 ? first : second;
}

// The offset is part of it: a record in another's place is noticed.
uint64_t checksum(uint64_t offset, std::string_view bytes) {
  std::array<Bytef, 8> head;
  for (size_t i = 0; i < head.size(); ++i) head[i] = static_cast<Bytef>(offset >> (8 * i));
  uLong sum = crc32_z(0, head.data(), head.size());
  return crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

[[noreturn]] void fail_file(const std::string& doing, const std::string& path) {
  const int code = errno;
  throw Error(ErrorCode::kFailed, fmt::format("cannot {} '{}': {}", doing, path, strerror(code)), path,
              code == ENOSPC ? "free some space on that disk" : "check the permissions of that folder");
}

void sync_folder(const std::string& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) fail_file("sync the folder", folder);
}

// Returns the path. SQLite would create the file with the umask's mode; and it gives the files beside it the same mode.
// An existing file is not opened here: closing it would drop the locks of another connection of this process.
const std::string& prepare_file(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0) {
    if (!S_ISREG(facts.st_mode)) throw Error(ErrorCode::kFailed, "the journal '" + path + "' is not a file", path);
    if ((facts.st_mode & 07777) != kMode && ::chmod(path.c_str(), kMode) != 0) fail_file("set the mode of", path);
    return path;
  }
  const Fd created(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kMode));
  if (!created && errno != EEXIST) fail_file("create", path);
  const std::string folder = std::filesystem::path(path).parent_path();
  sync_folder(folder.empty() ? "." : folder);
  return path;
}

}  // namespace

SqliteJournalFile::SqliteJournalFile(const std::string& path) : database_(prepare_file(path)) {
  version();  // a file that is not ours must not be written to
  database_.execute("PRAGMA journal_mode=WAL");
  database_.execute("PRAGMA synchronous=FULL");
  database_.execute("PRAGMA cell_size_check=ON");
  database_.execute("PRAGMA journal_size_limit=16777216");  // the -wal file shrinks again after a burst

  SqliteTransaction transaction(database_, Kind::kWrite);
  // Again: another process may have created or migrated it meanwhile.
  const uint64_t current = version();
  if (current == 0) create();
  if (current == 1) migrate(current);
  if (schema() != schema_of(kVersion)) database_.damaged(kNoJournal);
  Sqlite::Query(database_, "UPDATE meta SET epoch = epoch + 1").step();
  {
    Sqlite::Query meta(database_, "SELECT version, epoch FROM meta");
    if (!meta.step()) database_.damaged("it does not say its version");
    epoch_ = meta.number(1);
    if (meta.step()) database_.damaged("it says its version twice");
  }
  end_ = find_end();
  transaction.commit();
}

// What the file says of its tables. A stranger's may be many.
SqliteJournalFile::Schema SqliteJournalFile::schema() {
  Schema found;
  Sqlite::Query query(database_, "SELECT name, sql FROM sqlite_schema LIMIT 10");
  while (query.step()) found[query.text(0)] = query.text(1);
  return found;
}

// 0: an empty file. Throws for what is no journal of a known version.
uint64_t SqliteJournalFile::version() {
  uint64_t id = 0;
  {
    Sqlite::Query query(database_, "PRAGMA application_id");
    if (query.step()) id = query.number(0);
  }
  const Schema found = schema();
  if (found.empty() && id == 0) return 0;
  if (id != kApplicationId) {
    throw Error(ErrorCode::kFailed, fmt::format("'{}' is a database, but not a journal of Rubato", path()), path());
  }
  // This table is the same in all versions.
  const auto meta = found.find("meta");
  if (meta == found.end() || meta->second != schema_of(1).at("meta")) database_.damaged(kNoJournal);
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
  if (found != schema_of(*version)) database_.damaged(kNoJournal);
  return *version;
}

void SqliteJournalFile::create() {
  database_.execute(fmt::format("PRAGMA application_id={}", kApplicationId));
  for (const auto& [name, sql] : schema_of(kVersion)) database_.execute(sql);
  Sqlite::Query(database_, "INSERT INTO meta(version, epoch) VALUES(?, 0)").bind(kVersion).step();
}

// One step a version, all in the transaction that opens the file.
void SqliteJournalFile::migrate(uint64_t from) {
  if (from < 2) {
    add_checksums("records");
    add_checksums("snapshots");
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
        sum = checksum(*offset, next.bytes(1));
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

uint64_t SqliteJournalFile::append(const std::vector<std::string>& records) {
  const std::lock_guard lock(mutex_);
  SqliteTransaction transaction(database_, Kind::kWrite);
  check_epoch();
  uint64_t end = end_;
  for (const std::string& record : records) {
    ++end;
    Sqlite::Query insert(database_, "INSERT INTO records(offset, bytes, crc32) VALUES(?, ?, ?)");
    insert.bind(end).bind(record).bind(checksum(end, record)).step();
  }
  transaction.commit();
  end_ = end;
  return end;
}

std::vector<JournalRecord> SqliteJournalFile::read(uint64_t after, size_t count_max) {
  const std::lock_guard lock(mutex_);
  std::vector<JournalRecord> records;
  SqliteTransaction transaction(database_, Kind::kRead);
  check_epoch();
  {
    Sqlite::Query query(database_, "SELECT offset, bytes, crc32 FROM records WHERE offset > ? ORDER BY offset LIMIT ?");
    query.bind(after).bind(count_max);
    while (query.step()) {
      JournalRecord record;
      record.offset = query.number(0);
      record.bytes = query.bytes(1);
      if (query.number(2) != checksum(record.offset, record.bytes)) {
        database_.damaged(fmt::format("the checksum of record {} is wrong", record.offset));
      }
      const uint64_t expected = (records.empty() ? after : records.back().offset) + 1;
      if (record.offset != expected && !records.empty()) {
        database_.damaged(fmt::format("record {} is missing", expected));
      }
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
      if (query.number(2) != checksum(newest->offset, newest->bytes)) {
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
    Sqlite::Query insert(database_, "INSERT OR REPLACE INTO snapshots(offset, bytes, crc32) VALUES(?, ?, ?)");
    insert.bind(snapshot.offset).bind(snapshot.bytes).bind(checksum(snapshot.offset, snapshot.bytes)).step();
  }
  const JournalTrim trim = plan_trim(snapshot_offsets(), snapshot.offset, keep_records);
  Sqlite::Query(database_, "DELETE FROM records WHERE offset < ?").bind(trim.records_below).step();
  Sqlite::Query(database_, "DELETE FROM snapshots WHERE offset < ?").bind(trim.snapshots_below).step();
  transaction.commit();
}

}  // namespace rubato::os

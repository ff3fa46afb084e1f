#include "os/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <time.h>

namespace rubato::os {

namespace {

constexpr int kBusyTimeout_ms = 10'000;       // another process is in a commit, or recovers the file after a crash
constexpr int kProgressEverySteps = 100'000;  // a few milliseconds
constexpr int kLengthMax = 1'000'000'000;     // SQLite's own default for one value
constexpr int kLogPagesMax = 1000;            // then the log is moved into the file; SQLite's own default
constexpr uint64_t kLogHeaderBytes = 32, kLogFrameHeaderBytes = 24;  // of SQLite's format

ErrorCode error_code_of(int code) {
  switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
    case SQLITE_INTERRUPT:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kFailed;
  }
}

std::string words_of(int code, const char* from_sqlite) {
  switch (code & 0xff) {
    case SQLITE_FULL:
      return "the disk is full";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return "another process holds it for too long";
    case SQLITE_INTERRUPT:
      return fmt::format("the disk did not answer in {}", format_duration(Sqlite::kStatementTimeMax));
    case SQLITE_CORRUPT:
      return "the file is damaged";
    case SQLITE_NOTADB:
      return "the file is damaged, or is no SQLite database";
    case SQLITE_IOERR:
      return fmt::format("the disk failed ({}, code {})", from_sqlite, code);
    default:
      return fmt::format("{} (SQLite's code {})", from_sqlite, code);
  }
}

std::string hint_of(int code, const std::string& path) {
  switch (code & 0xff) {
    case SQLITE_FULL:
      return "free some space on that disk";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "see who has it open: fuser " + path;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return "check the permissions of that file and of its folder";
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return "put the file back from a copy, with the one beside it that ends in -wal; or go on with what is left, "
             "keeping the damaged file aside: rubato up --accept-journal-loss";
    default:
      return "";
  }
}

// On a full disk a journal that is opened has no room for the index of its log.
int meaning_of(int code) { return code == SQLITE_IOERR_SHMSIZE ? SQLITE_FULL : code; }

}  // namespace

Sqlite::Sqlite(std::string path) : path_(std::move(path)) {
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = sqlite3_open_v2(path_.c_str(), &connection_, flags, nullptr);
  if (code != SQLITE_OK) {
    const Error error(error_code_of(code),
                      fmt::format("cannot open '{}': {}", path_, words_of(code, sqlite3_errstr(code))), path_,
                      hint_of(code, path_));
    sqlite3_close_v2(connection_);
    throw Error(error);
  }
  sqlite3_busy_timeout(connection_, kBusyTimeout_ms);
  sqlite3_limit(connection_, SQLITE_LIMIT_LENGTH, kLengthMax);
  // The file's own words (its schema) are not to be trusted more than its data.
  sqlite3_db_config(connection_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(connection_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(connection_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(connection_, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_progress_handler(connection_, kProgressEverySteps, &Sqlite::on_progress, this);
  sqlite3_wal_hook(connection_, &Sqlite::on_log_grown, this);
}

Sqlite::~Sqlite() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close_v2(connection_);
}

int64_t Sqlite::monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

int Sqlite::on_progress(void* self) {
  return monotonic_ns() > static_cast<Sqlite*>(self)->statement_deadline_ns_ ? 1 : 0;
}

// In the place of SQLite's own hook, and as that does: a log that cannot be moved yet is tried again at the next
// commit.
int Sqlite::on_log_grown(void* self, sqlite3* connection, const char* schema, int pages) {
  static_cast<Sqlite*>(self)->log_pages_ = static_cast<uint64_t>(pages);
  if (pages >= kLogPagesMax) {
    sqlite3_wal_checkpoint_v2(connection, schema, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  }
  return SQLITE_OK;
}

void Sqlite::keep_log_on_close(bool keep) {
  sqlite3_db_config(connection_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep ? 1 : 0, nullptr);
}

void Sqlite::check_in_place() {
  const auto gone = [this](const std::string& path, const std::string& how) {
    throw Error(ErrorCode::kConflict, fmt::format("'{}' {} while it was in use", path, how), path_,
                "see who does that; then run rubato up, which says what is missing");
  };
  struct stat facts {};
  int moved = 0;
  sqlite3_file_control(connection_, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  const bool is_there = ::stat(path_.c_str(), &facts) == 0;
  if (moved != 0 || !is_there) gone(path_, is_there ? "was replaced by another file" : "was deleted");
  const auto size = static_cast<uint64_t>(facts.st_size);
  if (size < file_bytes_) gone(path_, fmt::format("was cut from {} bytes to {}", file_bytes_, size));
  file_bytes_ = size;
  if (log_pages_ == 0) return;
  if (page_bytes_ == 0) {
    Query query(*this, "PRAGMA page_size");
    page_bytes_ = query.step() ? query.number(0) : 0;
  }
  const std::string log = path_ + "-wal";
  if (::stat(log.c_str(), &facts) != 0) gone(log, "was deleted");
  if (log_file_ == 0) log_file_ = facts.st_ino;
  if (log_file_ != facts.st_ino) gone(log, "was replaced by another file");
  const uint64_t least = kLogHeaderBytes + log_pages_ * (page_bytes_ + kLogFrameHeaderBytes);
  if (static_cast<uint64_t>(facts.st_size) < least) {
    gone(log, fmt::format("was cut from {} bytes to {}", least, facts.st_size));
  }
}

void Sqlite::fail(int sqlite_code, const std::string& doing) {
  const int code = meaning_of(sqlite_code);
  const std::string message =
      fmt::format("cannot {} '{}': {}", doing, path_, words_of(code, sqlite3_errmsg(connection_)));
  if ((code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB) {
    throw DamagedError(message, path_, hint_of(code, path_));
  }
  throw Error(error_code_of(code), message, path_, hint_of(code, path_));
}

void Sqlite::damaged(const std::string& sentence) {
  throw DamagedError(fmt::format("'{}' is damaged: {}", path_, sentence), path_, hint_of(SQLITE_CORRUPT, path_));
}

sqlite3_stmt* Sqlite::prepare(const std::string& sql) {
  sqlite3_stmt*& statement = statements_[sql];
  if (!statement) {
    const int code = sqlite3_prepare_v3(connection_, sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) {
      statements_.erase(sql);
      fail(code, "read");
    }
  }
  statement_deadline_ns_ = monotonic_ns() + kStatementTimeMax.count();
  return statement;
}

void Sqlite::execute(const std::string& sql) {
  statement_deadline_ns_ = monotonic_ns() + kStatementTimeMax.count();
  const int code = sqlite3_exec(connection_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code, "write");
}

std::map<std::string, std::string> Sqlite::schema() {
  std::map<std::string, std::string> found;
  Query query(*this, "SELECT name, sql FROM sqlite_schema LIMIT 10");
  while (query.step()) found[query.text(0)] = query.text(1);
  return found;
}

Sqlite::Query::Query(Sqlite& database, const std::string& sql)
    : database_(database), statement_(database.prepare(sql)) {}

Sqlite::Query::~Query() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Sqlite::Query& Sqlite::Query::bind(uint64_t number) {
  // SQLite's integers are signed; an offset that large is "no limit".
  const auto value = static_cast<int64_t>(number > INT64_MAX ? INT64_MAX : number);
  const int code = sqlite3_bind_int64(statement_, ++bound_, value);
  if (code != SQLITE_OK) database_.fail(code, "use");
  return *this;
}

Sqlite::Query& Sqlite::Query::bind(std::string_view bytes) {
  // A null pointer would bind NULL: an empty record is a blob, too.
  const char* data = bytes.data() ? bytes.data() : "";
  const int code = sqlite3_bind_blob64(statement_, ++bound_, data, bytes.size(), SQLITE_STATIC);
  if (code != SQLITE_OK) database_.fail(code, "use");
  return *this;
}

Sqlite::Query& Sqlite::Query::bind_text(std::string_view text) {
  const int code = sqlite3_bind_text64(statement_, ++bound_, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
  if (code != SQLITE_OK) database_.fail(code, "use");
  return *this;
}

bool Sqlite::Query::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  database_.fail(code, sqlite3_stmt_readonly(statement_) ? "read" : "write");
}

uint64_t Sqlite::Query::number(int column) {
  const bool is_number = sqlite3_column_type(statement_, column) == SQLITE_INTEGER;
  const int64_t value = is_number ? sqlite3_column_int64(statement_, column) : -1;
  if (value < 0) database_.damaged("a number is expected where there is none");
  return static_cast<uint64_t>(value);
}

bool Sqlite::Query::is_null(int column) { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

std::string Sqlite::Query::bytes(int column) {
  if (sqlite3_column_type(statement_, column) != SQLITE_BLOB)
    database_.damaged("bytes are expected where there are none");
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data ? std::string(static_cast<const char*>(data), static_cast<size_t>(size)) : std::string();
}

std::string Sqlite::Query::text(int column) {
  if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) return "";
  const unsigned char* data = sqlite3_column_text(statement_, column);
  return data ? reinterpret_cast<const char*>(data) : "";
}

SqliteTransaction::SqliteTransaction(Sqlite& database, Kind kind) : database_(database) {
  // IMMEDIATE takes the write lock at once: a reader that later wants to write could not wait for it.
  database_.execute(kind == Kind::kWrite ? "BEGIN IMMEDIATE" : "BEGIN");
}

void SqliteTransaction::commit() {
  database_.execute("COMMIT");
  open_ = false;
}

SqliteTransaction::~SqliteTransaction() {
  if (!open_) return;
  try {
    database_.execute("ROLLBACK");
  } catch (const Error&) {
    // SQLite has rolled it back by itself, as it does when the disk is full.
  }
}

}  // namespace rubato::os

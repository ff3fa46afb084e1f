// Sqlite: a connection to one SQLite file and its statements, with errors as Error.
//
// Not thread-safe; every call may block on the disk, so it belongs into offloaded work.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/time.h"
#include "world/journal_chain.h"

struct sqlite3;
struct sqlite3_stmt;

namespace rubato::os {

class Sqlite {
 public:
  // The file must be there. Throws what execute() throws.
  explicit Sqlite(std::string path);
  Sqlite(const Sqlite&) = delete;
  Sqlite& operator=(const Sqlite&) = delete;
  ~Sqlite();

  // A statement in use. Parameters are bound in order, then step() is called until it says that no row is left.
  // One of the same words at a time.
  class Query {
   public:
    Query(Sqlite& database, const std::string& sql);
    Query(const Query&) = delete;
    Query& operator=(const Query&) = delete;
    ~Query();

    Query& bind(uint64_t number);
    Query& bind(std::string_view bytes);      // as a blob; must outlive the query
    Query& bind_text(std::string_view text);  // likewise
    bool step();                              // true: a row is there

    // Of the current row. A value of another kind than asked for is damage.
    uint64_t number(int column);
    bool is_null(int column);
    std::string bytes(int column);
    std::string text(int column);

   private:
    Sqlite& database_;
    sqlite3_stmt* statement_;
    int bound_ = 0;
  };

  // Runs words that give no rows, several statements if there are.
  // kUnavailable: the disk is full or fails, or another process holds the file. DamagedError: its bytes make no
  // sense. kFailed: anything else.
  void execute(const std::string& sql);

  // A table's name and the words that made it, of at most ten: a stranger's may be many.
  std::map<std::string, std::string> schema();

  // Throws the Error for a code of SQLite.
  [[noreturn]] void fail(int sqlite_code, const std::string& doing);

  // DamagedError: the bytes of the file make no sense.
  [[noreturn]] void damaged(const std::string& message);

  // Whether closing leaves the write-ahead log as it is. By default what is in it is moved into the file.
  void keep_log_on_close(bool keep);

  // Throws kConflict when the path, or that of the log, does not lead to the file any more that we have open, or when
  // one of them is shorter than what was written to it.
  void check_in_place();

  const std::string& path() const { return path_; }

  static constexpr Duration kStatementTimeMax = 60s;  // then it is interrupted: kUnavailable

 private:
  sqlite3_stmt* prepare(const std::string& sql);
  static int on_progress(void* self);
  static int on_log_grown(void* self, sqlite3* connection, const char* schema, int pages);
  static int64_t monotonic_ns();

  const std::string path_;
  sqlite3* connection_ = nullptr;
  std::map<std::string, sqlite3_stmt*> statements_;
  int64_t statement_deadline_ns_ = 0;
  uint64_t log_pages_ = 0;   // in the write-ahead log after the last commit
  uint64_t page_bytes_ = 0;  // 0: not asked yet
  uint64_t file_bytes_ = 0;  // the most that the file was seen to have; it never shrinks
  uint64_t log_file_ = 0;    // the log's inode; 0: not seen yet
};

// BEGIN ... COMMIT; rolled back when it goes without a commit().
class SqliteTransaction {
 public:
  enum class Kind { kRead, kWrite };
  SqliteTransaction(Sqlite& database, Kind kind);
  SqliteTransaction(const SqliteTransaction&) = delete;
  SqliteTransaction& operator=(const SqliteTransaction&) = delete;
  ~SqliteTransaction();
  void commit();

 private:
  Sqlite& database_;
  bool open_ = true;
};

}  // namespace rubato::os

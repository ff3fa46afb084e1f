#include "os/sqlite_journal_rescue.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "os/fd.h"
#include "os/journal_note.h"
#include "os/sqlite.h"
#include "os/sqlite_journal_schema.h"

namespace rubato::os {

namespace {

namespace fs = std::filesystem;
using Kind = SqliteTransaction::Kind;

constexpr uint64_t kChained = 3;  // the version with the chain
constexpr const char* kParts[] = {"", "-wal"};

struct Row {
  uint64_t offset = 0;
  std::string bytes, chain;
};

[[noreturn]] void fail(const std::string& doing, const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kUnavailable, fmt::format("cannot {} '{}': {}", doing, path, why), path,
              "is the disk full, or the folder not writable?");
}

void sync_path(const std::string& path, int flags) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!fd || ::fsync(fd.get()) != 0) fail("sync", path, strerror(errno));
}

void sync_folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path();
  sync_path(folder.empty() ? "." : folder, O_DIRECTORY);
}

void move_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT) fail("move", from, strerror(errno));
}

// What a damaged journal still gives. Nothing in it is believed before its checksum, and its link where it has one.
class Remains {
 public:
  // Reads a copy of it.
  Remains(const std::string& path, const std::string& copy) {
    for (const char* part : kParts) {
      std::error_code error;
      fs::remove(copy + part, error);
      if (!fs::exists(path + part)) continue;
      fs::copy_file(path + part, copy + part, error);
      if (error) fail("copy", path + part, error.message());
    }
    try {
      if (!fs::exists(copy)) return;
      database_ = std::make_unique<Sqlite>(copy);
      version_ = find_version();
      if (version_ < 2) database_.reset();  // without checksums nothing can be told from damage
    } catch (const Error&) {
      database_.reset();  // it is no database any more
    }
  }

  uint64_t epoch() {
    uint64_t epoch = 0;
    attempt([&] {
      Sqlite::Query query(*database_, "SELECT epoch FROM meta");
      if (query.step()) epoch = query.number(0);
    });
    return epoch;
  }

  uint64_t end() {
    uint64_t end = 0;
    attempt([&] {
      Sqlite::Query query(*database_, "SELECT max(offset) FROM records");
      if (query.step() && !query.is_null(0)) end = query.number(0);
    });
    return end;
  }

  // The newest first.
  std::vector<uint64_t> snapshot_offsets() {
    std::vector<uint64_t> offsets;
    attempt([&] {
      Sqlite::Query query(*database_, "SELECT offset FROM snapshots ORDER BY offset DESC");
      while (query.step()) offsets.push_back(query.number(0));
    });
    return offsets;
  }

  std::optional<Row> snapshot(uint64_t offset) {
    std::optional<Row> found;
    attempt([&] {
      Sqlite::Query query(*database_, select("snapshots") + " WHERE offset = ?");
      if (query.bind(offset).step()) found = row_of(query);
    });
    return found;
  }

  // Calls `use` for each good record after `base`, without a gap; ends where that returns false. Returns the last
  // offset that was good.
  uint64_t follow(const Row& base, const std::function<bool(const Row&)>& use) {
    uint64_t last = base.offset;
    std::string chain = base.chain;
    attempt([&] {
      Sqlite::Query query(*database_, select("records") + " WHERE offset > ? ORDER BY offset");
      query.bind(base.offset);
      while (query.step()) {
        const std::optional<Row> row = row_of(query);
        if (!row || row->offset != last + 1) return;
        const bool linked =
            row->chain.empty() ? chain.empty() : row->chain == chain_next(chain, row->offset, row->bytes);
        if (!linked) return;
        last = row->offset;
        chain = row->chain;
        if (!use(*row)) return;
      }
    });
    return last;
  }

 private:
  void attempt(const std::function<void()>& read) {
    if (!database_) return;
    try {
      read();
    } catch (const Error&) {
      // Here its bytes end to make sense; what was read before stands.
    }
  }

  uint64_t find_version() {
    const JournalSchema found = database_->schema();
    for (const uint64_t version : {uint64_t{3}, uint64_t{2}}) {
      if (found == journal_schema(version)) return version;
    }
    return 0;
  }

  std::string select(const std::string& table) const {
    return fmt::format("SELECT offset, bytes, crc32, {} FROM {}", version_ >= kChained ? "chain" : "x''", table);
  }

  static std::optional<Row> row_of(Sqlite::Query& query) {
    Row row;
    row.offset = query.number(0);
    row.bytes = query.bytes(1);
    row.chain = query.bytes(3);
    if (query.number(2) != journal_checksum(row.offset, row.bytes)) return std::nullopt;
    return row;
  }

  std::unique_ptr<Sqlite> database_;
  uint64_t version_ = 0;
};

// From which snapshot on to keep, and how far that goes.
struct Run {
  Row base;  // offset 0: the beginning
  uint64_t last = 0;
};

// The run that goes farthest; of those, the one that begins first. A run that reaches the snapshot where a newer one
// begins goes as far as that one.
Run find_run(Remains& remains) {
  std::vector<Row> bases;
  for (const uint64_t offset : remains.snapshot_offsets()) {
    if (auto base = remains.snapshot(offset)) bases.push_back(std::move(*base));
  }
  bases.emplace_back();
  std::optional<Run> best;
  std::optional<Run> newer;
  for (Row& base : bases) {
    Run run;
    run.last = remains.follow(base, [&](const Row& row) { return !newer || row.offset < newer->base.offset; });
    if (newer && run.last >= newer->base.offset) run.last = newer->last;
    run.base = std::move(base);
    newer = run;
    if (!best || run.last >= best->last) best = std::move(run);
  }
  return *best;
}

// The new file, complete and closed. Its epoch is not less than any before.
void write_rescued(const std::string& path, Remains& remains, const Run& run, uint64_t epoch,
                   const std::string& loss_record) {
  for (const char* part : {"", "-wal", "-shm"}) ::unlink((path + part).c_str());
  { const Fd created(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kJournalMode)); }
  Sqlite database(path);
  database.execute("PRAGMA synchronous=FULL");
  SqliteTransaction transaction(database, Kind::kWrite);
  database.execute(fmt::format("PRAGMA application_id={}", kJournalApplicationId));
  for (const auto& [name, sql] : journal_schema(kChained)) database.execute(sql);
  Sqlite::Query(database, "INSERT INTO meta(version, epoch) VALUES(?, ?)").bind(kChained).bind(epoch).step();
  const auto put = [&database](const std::string& table, const Row& row) {
    Sqlite::Query insert(database,
                         fmt::format("INSERT INTO {}(offset, bytes, crc32, chain) VALUES(?, ?, ?, ?)", table));
    insert.bind(row.offset).bind(row.bytes).bind(journal_checksum(row.offset, row.bytes)).bind(row.chain).step();
  };
  for (const uint64_t offset : remains.snapshot_offsets()) {
    const std::optional<Row> snapshot = remains.snapshot(offset);
    if (snapshot && offset >= run.base.offset && offset <= run.last) put("snapshots", *snapshot);
  }
  Row last = run.base;
  remains.follow(run.base, [&](const Row& row) {
    put("records", row);
    last.offset = row.offset;
    last.chain = row.chain;
    return row.offset < run.last;
  });
  Row loss;
  loss.offset = last.offset + 1;
  loss.bytes = loss_record;
  loss.chain = chain_next(last.chain, loss.offset, loss.bytes);
  put("records", loss);
  transaction.commit();
}

// A log without its file was moved by a step that was cut off: the file joins it.
std::string free_name(const std::string& path) {
  for (int i = 1;; ++i) {
    const std::string name = fmt::format("{}.damaged-{}", path, i);
    const bool log_taken = fs::exists(name + "-wal") && fs::exists(path + "-wal");
    if (!fs::exists(name) && !log_taken) return name;
  }
}

// Of a file that write_rescued made: it has a record.
JournalNote note_of(const std::string& rescued) {
  Sqlite database(rescued);
  JournalNote note;
  Sqlite::Query last(database, "SELECT offset, chain FROM records ORDER BY offset DESC LIMIT 1");
  if (!last.step()) database.damaged("it has no record");
  note.offset = last.number(0);
  note.chain = last.bytes(1);
  Sqlite::Query meta(database, "SELECT epoch FROM meta");
  if (meta.step()) note.epoch = meta.number(0);
  return note;
}

std::optional<JournalNote> note_if_whole(const std::string& note) {
  try {
    return note.empty() ? std::nullopt : JournalNoteFile::read(note);
  } catch (const DamagedError&) {
    return std::nullopt;
  }
}

}  // namespace

JournalLoss rescue_journal(const std::string& path, const std::string& note, const EncodeLoss& encode) {
  const std::optional<JournalNote> noted = note_if_whole(note);
  const std::string copy = path + ".reading";
  JournalLoss loss;
  {
    Remains remains(path, copy);
    const Run run = find_run(remains);
    loss.epoch = std::max(remains.epoch(), noted ? noted->epoch : 0);
    loss.first = run.last + 1;
    loss.last = std::max(remains.end(), noted ? noted->offset : 0);
    loss.cause = loss.first <= loss.last ? "they were damaged or missing when a head started"
                                         : "the journal's end was not known when a head started";
    loss.kept_in = fs::exists(path) || fs::exists(path + "-wal") ? free_name(path) : "";
    const std::string fresh = path + ".rescuing";
    write_rescued(fresh, remains, run, loss.epoch, encode(loss));
    sync_path(fresh, 0);
    move_file(fresh, path + ".rescued");
    sync_folder_of(path);
  }
  for (const char* part : {"", "-wal", "-shm"}) ::unlink((copy + part).c_str());
  finish_rescue(path, note);
  return loss;
}

void finish_rescue(const std::string& path, const std::string& note) {
  const std::string rescued = path + ".rescued";
  if (!fs::exists(rescued)) return;
  // The log first: without the file it is nobody's, and the new file must never be beside it.
  const std::string aside = free_name(path);
  move_file(path + "-wal", aside + "-wal");
  move_file(path, aside);
  ::unlink((path + "-shm").c_str());
  if (!note.empty()) JournalNoteFile(note, note_of(rescued));
  sync_folder_of(path);
  move_file(rescued, path);
  sync_folder_of(path);
}

}  // namespace rubato::os

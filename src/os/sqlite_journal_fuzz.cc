// libFuzzer: whatever bytes the journal's file and its -wal have, opening, reading and writing give records or an
// Error; with a note of the end, they give all of the records or an Error; and what is left is always rescued, whole.
//
// The first byte of an input chooses: the rest is the whole file, or patches of a good file or of its -wal; and whether
// there is no note, a note, or a rescue. A patch is three bytes of position, one of length, and that many bytes.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "os/sqlite_journal_file.h"
#include "os/sqlite_journal_rescue.h"

namespace rubato::os {
namespace {

namespace fs = std::filesystem;

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// A folder in memory where there is one: a sync costs nothing there. And a good journal: checkpointed, and with a -wal.
struct Bench {
  std::string folder = fs::exists("/dev/shm") ? "/dev/shm/rubato-fuzz-XXXXXX" : "/tmp/rubato-fuzz-XXXXXX";
  std::string path, note, good_file, file_before_wal, good_wal, good_note;
  static constexpr uint64_t kEnd = 80;

  Bench() {
    CHECK(::mkdtemp(folder.data()));
    path = folder + "/journal.db";
    note = folder + "/journal.note";
    const std::vector<std::string> records(40, std::string(100, 'r'));
    JournalSnapshot snapshot;
    snapshot.offset = 40;
    snapshot.bytes = std::string(9000, 's');  // has overflow pages
    {
      SqliteJournalFile file(path, note);
      file.append(records);
    }
    file_before_wal = read_whole(path);
    {
      SqliteJournalFile file(path, note);
      file.append(records);
      file.write_snapshot(snapshot, 10);
      good_note = read_whole(note);
      good_wal = read_whole(path + "-wal");
    }
    good_file = read_whole(path);
    CHECK(good_file.size() > 8192 && good_wal.size() > 8192);
  }
  ~Bench() { fs::remove_all(folder); }
};

void patch(std::string& bytes, const uint8_t* data, size_t size) {
  while (size > 4) {
    const size_t at = (data[0] | data[1] << 8 | data[2] << 16) % bytes.size();
    const size_t length = std::min({size_t{data[3]}, size - 4, bytes.size() - at});
    std::copy_n(data + 4, length, bytes.begin() + static_cast<ptrdiff_t>(at));
    data += 4 + length;
    size -= 4 + length;
  }
}

void write_whole(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// `least`: records that it must not lack.
void use(const std::string& path, const std::string& note, uint64_t least) {
  try {
    SqliteJournalFile file(path, note);
    const std::vector<JournalRecord> records = file.read(0, 1000);
    CHECK(least == 0 || (!records.empty() && records.back().offset >= least));
    for (size_t i = 1; i < records.size(); ++i) CHECK(records[i].offset == records[i - 1].offset + 1);
    file.snapshot(UINT64_MAX);
    const uint64_t end = file.append({"one", "two"});
    CHECK(end >= 2);
    JournalSnapshot snapshot;
    snapshot.offset = end;
    file.write_snapshot(snapshot, 5);
  } catch (const Error& error) {
    CHECK(!error.message.empty() && error.code != ErrorCode::kConflict);
  }
}

}  // namespace
}  // namespace rubato::os

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static rubato::os::Bench bench;
  if (size == 0) return 0;
  const int kind = data[0] % 3;
  std::string file = kind == 0   ? std::string(reinterpret_cast<const char*>(data) + 1, size - 1)
                     : kind == 1 ? bench.good_file
                                 : bench.file_before_wal;
  std::string wal = kind == 2 ? bench.good_wal : "";
  if (kind != 0) rubato::os::patch(kind == 1 ? file : wal, data + 1, size - 1);
  for (const char* suffix : {"-wal", "-shm"}) ::unlink((bench.path + suffix).c_str());
  rubato::os::write_whole(bench.path, file);
  if (!wal.empty()) rubato::os::write_whole(bench.path + "-wal", wal);
  enum { kPlain, kNoted, kRescued };
  const int way = data[0] / 3 % 3;
  ::unlink(bench.note.c_str());
  if (way != kPlain) rubato::os::write_whole(bench.note, bench.good_note);
  if (way == kRescued) {
    rubato::os::rescue_journal(bench.path, bench.note, [](const rubato::JournalLoss&) { return "lost"; });
    for (int i = 1; i < 3; ++i) {
      const std::string aside = bench.path + ".damaged-" + std::to_string(i);
      for (const char* suffix : {"", "-wal"}) ::unlink((aside + suffix).c_str());
    }
    rubato::os::SqliteJournalFile file(bench.path, bench.note);
    CHECK(!file.read(0, 1000).empty());
    return 0;
  }
  rubato::os::use(bench.path, way == kNoted ? bench.note : "", way == kNoted ? rubato::os::Bench::kEnd : 0);
  return 0;
}

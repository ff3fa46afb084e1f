#include "cli/past_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "os/files.h"
#include "os/sqlite_journal_file.h"

namespace rubato::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhatToGive = "give the folder of a cluster, its journal.db, or records as lines of JSON";
constexpr int kCopiesMax = 20;

// Goes with its contents, whatever happens.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(os::RealFiles& files)
      : files_(files), path_(files.make_temporary_folder("rubato-replay-")) {}
  ~TemporaryFolder() { files_.remove_tree(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  os::RealFiles& files_;
  const std::string path_;
};

// What changes when a head moves records from the write-ahead log into the database, and begins the log anew. Records
// that it appends to the log meanwhile do no harm: the log's end is found by its checksums.
std::pair<std::optional<WallTime>, std::string> stamp_of(os::RealFiles& files, const std::string& path) {
  constexpr size_t kLogHeader = 32;
  const std::string log = path + "-wal";
  return {files.modified(path), files.exists(log) ? files.read_range(log, 0, kLogHeader) : std::string()};
}

// To open a journal is to take it over from its head; a copy may be opened.
void copy_journal(os::RealFiles& files, const std::string& from, const std::string& to) {
  for (int tries = 0; tries < kCopiesMax; ++tries) {
    const auto before = stamp_of(files, from);
    for (const char* suffix : {"", "-wal"}) {
      std::error_code gone;
      fs::remove(to + suffix, gone);
      if (fs::exists(from + suffix)) fs::copy_file(from + suffix, to + suffix, gone);
    }
    if (stamp_of(files, from) == before) return;
  }
  throw Error(ErrorCode::kUsage, "the journal changes faster than it can be copied", from, "try again");
}

PastJournal read_database(os::RealFiles& files, const std::string& path) {
  const TemporaryFolder folder(files);
  copy_journal(files, path, folder.path() + "/journal.db");
  PastJournal out;
  os::SqliteJournalFile journal(folder.path() + "/journal.db");
  constexpr size_t kBatch = 10'000;
  for (uint64_t after = 0;;) {
    std::vector<JournalRecord> batch = journal.read(after, kBatch);
    if (batch.empty()) break;
    after = batch.back().offset;
    std::ranges::move(batch, std::back_inserter(out.records));
  }
  if (out.records.empty() || out.records.front().offset > 1)
    out.snapshot = journal.snapshot(out.records.empty() ? UINT64_MAX : out.records.front().offset + kBatch);
  return out;
}

// The name of the copy means nothing to anybody.
std::string without_copy(std::string message, const std::string& path) {
  const size_t begin = message.find("/rubato-replay-");
  const size_t quote = message.find('\'');
  const size_t end = message.find("journal.db", begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || quote > begin || end == std::string::npos) return message;
  return message.replace(quote + 1, end + std::string_view("journal.db").size() - quote - 1, path);
}

// What is at `path`, a folder's journal.db among it; `whole` is its absolute path.
bool is_database(os::RealFiles& files, const std::string& path, const std::string& whole) {
  const std::string head = files.exists(whole) ? files.read_range(whole, 0, 16) : std::string();
  if (head.empty())
    throw Error(ErrorCode::kUsage, fmt::format("there is no journal at '{}'", path), "", std::string(kWhatToGive));
  return head.starts_with("SQLite format 3");
}

Error named(const Error& error, const std::string& path) {
  return Error(ErrorCode::kUsage, without_copy(error.message, path), path,
               error.hint.empty() ? std::string(kWhatToGive) : error.hint);
}

}  // namespace

PastJournal read_past_journal(std::string path) {
  if (fs::is_directory(path)) path += "/journal.db";
  os::RealFiles files;
  const std::string whole = fs::absolute(path).string();
  if (!is_database(files, path, whole))
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is not a journal", path), path, std::string(kWhatToGive));
  try {
    return read_database(files, whole);
  } catch (const Error& error) {
    throw named(error, path);
  }
}

simulate::Past read_past_file(std::string path) {
  if (fs::is_directory(path)) path += "/journal.db";
  os::RealFiles files;
  const std::string whole = fs::absolute(path).string();
  if (is_database(files, path, whole)) {
    try {
      const PastJournal read = read_database(files, whole);
      return simulate::read_past(read.snapshot ? &*read.snapshot : nullptr, read.records, path);
    } catch (const Error& error) {
      throw named(error, path);
    }
  }
  std::vector<JournalRecord> records;
  const std::optional<std::string> text = files.read(whole);
  if (!text) throw Error(ErrorCode::kUsage, fmt::format("'{}' cannot be read", path), path, std::string(kWhatToGive));
  for (const std::string_view line : split(*text, '\n')) {
    if (!trim(line).empty()) records.push_back({records.size() + 1, std::string(line)});
  }
  try {
    return simulate::read_past(nullptr, records, path);
  } catch (const Error& error) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is not a journal: {}", path, error.message), error.where,
                error.hint.empty() ? std::string(kWhatToGive) : error.hint);
  }
}

}  // namespace rubato::cli

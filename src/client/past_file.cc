#include "client/past_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "client/temporary_folder.h"
#include "core/error.h"
#include "core/text.h"
#include "os/etcd_journal.h"
#include "os/etcd_store.h"
#include "os/files.h"
#include "os/network.h"
#include "os/sqlite_journal_file.h"

namespace rubato::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhatToGive = "give the folder of a cluster, its journal.db, or records as lines of JSON";
constexpr int kCopiesMax = 20;
constexpr size_t kBatch = 10'000;

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

PastJournal read_copy(const std::string& copy) {
  PastJournal out;
  os::SqliteJournalFile journal(copy);
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

// `path` as it was given: an error names that, for the name of the copy means nothing to anybody.
PastJournal read_database(os::RealFiles& files, const std::string& path, const std::string& whole) {
  const TemporaryFolder folder(files, "rubato-replay-");
  const std::string copy = folder.path() + "/journal.db";
  copy_journal(files, whole, copy);
  try {
    return read_copy(copy);
  } catch (Error& error) {
    const size_t at = error.message.find(copy);
    if (at != std::string::npos) error.message.replace(at, copy.size(), path);
    throw;
  }
}

// All that is there, in batches.
Task<PastJournal> read_view(os::EtcdJournal& journal) {
  PastJournal out;
  for (uint64_t after = 0;;) {
    std::vector<JournalRecord> batch = co_await journal.read(after, kBatch);
    if (batch.empty()) break;
    after = batch.back().offset;
    std::ranges::move(batch, std::back_inserter(out.records));
  }
  const uint64_t first = out.records.empty() ? UINT64_MAX - kBatch : out.records.front().offset;
  if (first > 1) out.snapshot = co_await journal.snapshot(first + kBatch);
  co_return out;
}

// What is at `path`, a folder's journal.db among it; `whole` is its absolute path.
bool is_database(os::RealFiles& files, const std::string& path, const std::string& whole) {
  const std::string head = files.exists(whole) ? files.read_range(whole, 0, 16) : std::string();
  if (head.empty())
    throw Error(ErrorCode::kUsage, fmt::format("there is no journal at '{}'", path), "", std::string(kWhatToGive));
  return head.starts_with("SQLite format 3");
}

Error named(const Error& error, const std::string& path) {
  return Error(ErrorCode::kUsage, error.message, path, error.hint.empty() ? std::string(kWhatToGive) : error.hint);
}

}  // namespace

PastJournal read_past_etcd(const std::string& store, const std::string& cluster) {
  os::Runtime runtime;
  os::RealNetwork network(runtime);
  os::EtcdStore etcd(network, runtime, os::etcd_endpoints(store), TlsFiles{});
  const std::unique_ptr<os::EtcdJournal> journal = os::EtcdJournal::view(etcd, runtime, "/rubato/" + cluster);
  PastJournal past = runtime.run(read_view(*journal));
  if (past.records.empty() && !past.snapshot)
    throw Error(ErrorCode::kNotFound, fmt::format("{} has no journal of '{}'", store, cluster), store);
  return past;
}

PastJournal read_past_journal(std::string path) {
  if (fs::is_directory(path)) path += "/journal.db";
  os::RealFiles files;
  const std::string whole = fs::absolute(path).string();
  if (!is_database(files, path, whole))
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is not a journal", path), path, std::string(kWhatToGive));
  try {
    return read_database(files, path, whole);
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
      const PastJournal read = read_database(files, path, whole);
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

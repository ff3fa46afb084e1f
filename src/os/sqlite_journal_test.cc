#include "os/sqlite_journal.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <map>

#include "os/process_fixture.h"
#include "os/sqlite_journal_schema.h"
#include "world/journal_testing.h"

namespace rubato::os {
namespace {

using namespace journal_cases;

using Opened = std::unique_ptr<SqliteJournal>;

class SqliteJournalTest : public ::testing::Test {
 protected:
  static Task<int> open_into(Runtime& runtime, std::string path, Opened& opened) {
    opened = co_await SqliteJournal::open(runtime, path);
    co_return 0;
  }
  Opened open(const std::string& path) {
    Opened opened;
    runtime.run(open_into(runtime, path, opened));
    return opened;
  }
  Opened open() { return open(path); }
  void run(Task<int> task) { runtime.run(std::move(task)); }

  static Task<int> append_into(Journal& journal, std::vector<std::string> records, uint64_t& end) {
    end = co_await journal.append(std::move(records));
    co_return 0;
  }
  uint64_t append(Journal& journal, std::vector<std::string> records) {
    uint64_t end = 0;
    run(append_into(journal, std::move(records), end));
    return end;
  }
  static Task<int> read_into(Journal& journal, std::vector<JournalRecord>& records) {
    records = co_await journal.read(0, 1'000'000);
    co_return 0;
  }
  std::vector<JournalRecord> read_all(Journal& journal) {
    std::vector<JournalRecord> records;
    run(read_into(journal, records));
    return records;
  }

  // What opening and then reading everything says is wrong; empty: nothing.
  std::string trouble() {
    try {
      SqliteJournalFile file(path);
      file.read(0, 1'000'000);
      file.snapshot(UINT64_MAX);
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::kFailed);
      EXPECT_EQ(error.where, path);
      return error.message;
    }
    return "";
  }

  // Changes the file as no writer of ours would.
  void tamper(const std::string& sql) {
    sqlite3* connection = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &connection), SQLITE_OK);
    sqlite3_busy_timeout(connection, 60'000);  // the journal's own connection may be about to close
    char* one_record = nullptr;
    EXPECT_EQ(sqlite3_exec(connection, sql.c_str(), nullptr, nullptr, &one_record), SQLITE_OK) << one_record;
    sqlite3_close(connection);
  }

  TempFolder folder;
  const std::string path = folder / "journal.db";
  Runtime runtime;
};

TEST_F(SqliteJournalTest, IsEmptyAtFirst) { run(is_empty_at_first(*open())); }

TEST_F(SqliteJournalTest, KeepsOrderAndBytes) {
  const Opened journal = open();
  run(keeps_order_and_bytes(*journal));
}

TEST_F(SqliteJournalTest, SharesCommits) {
  const Opened journal = open();
  run(answers_overlapping_appends(*journal, runtime, 16, 20));
  EXPECT_LE(journal->commits(), 25u) << "320 records";
  EXPECT_GE(journal->commits(), 20u);
}

TEST_F(SqliteJournalTest, TrimsBehindSnapshots) {
  Opened journal = open();
  run(trims_behind_snapshots(*journal));
  journal.reset();
  EXPECT_EQ(read_all(*open()).back().bytes, "next");
}

TEST_F(SqliteJournalTest, RefusesASnapshotOfTheFuture) {
  const Opened journal = open();
  run(refuses_a_snapshot_of_the_future(*journal));
}

TEST_F(SqliteJournalTest, RefusesARecordThatIsTooLarge) {
  const Opened journal = open();
  EXPECT_THROW(append(*journal, one_record(std::string(SqliteJournal::kRecordBytesMax + 1, 'x'))), Error);
  EXPECT_EQ(append(*journal, one_record(std::string(SqliteJournal::kRecordBytesMax, 'x'))), 1u);
}

TEST_F(SqliteJournalTest, IsThereAfterReopening) {
  Opened journal = open();
  EXPECT_EQ(append(*journal, numbered(1, 3)), 3u);
  const uint64_t epoch = journal->epoch();
  journal.reset();
  journal = open();
  EXPECT_GT(journal->epoch(), epoch);
  EXPECT_EQ(append(*journal, numbered(4, 5)), 5u);
  const std::vector<JournalRecord> all = read_all(*journal);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[4].bytes, "record 5");
}

TEST_F(SqliteJournalTest, ContinuesWhereTrimmedRecordsEnded) {
  Opened journal = open();
  append(*journal, numbered(1, 9));
  JournalSnapshot snapshot;
  snapshot.offset = 9;
  SqliteJournalFile(path).write_snapshot(snapshot, 0);
  EXPECT_EQ(append(*open(), one_record("ten")), 10u);
}

TEST_F(SqliteJournalTest, FencesTheOlderWriter) {
  const Opened old_one = open();
  append(*old_one, one_record("before"));
  const Opened new_one = open();
  run(fences_the_older_writer(*old_one, *new_one));
}

TEST_F(SqliteJournalTest, IsForItsOwnerOnly) {
  const mode_t before = ::umask(0);
  const Opened journal = open();
  append(*journal, one_record("secret"));
  ::umask(before);
  for (const char* suffix : {"", "-wal", "-shm"}) {
    struct stat facts {};
    ASSERT_EQ(::stat((path + suffix).c_str(), &facts), 0) << suffix;
    EXPECT_EQ(facts.st_mode & 0777, 0600u) << suffix;
  }
}

TEST_F(SqliteJournalTest, ClosesAFileThatOthersCouldRead) {
  append(*open(), one_record("secret"));
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  open();
  struct stat facts {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

// A child's life: appends from several coroutines and says each acknowledged offset and record on the pipe.
Task<void> append_and_tell(Journal& journal, std::string name, int pipe) {
  for (int i = 1;; ++i) {
    const std::string record = name + std::to_string(i) + std::string(static_cast<size_t>(i % 50) * 40, '.');
    const uint64_t offset = co_await journal.append(one_record(record));
    const std::string line = std::to_string(offset) + " " + record + "\n";
    if (::write(pipe, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(3);
  }
}

Task<int> append_until_killed(Runtime& runtime, std::string path, int pipe) {
  const Opened journal = co_await SqliteJournal::open(runtime, path);
  Scope scope(runtime);
  for (int i = 0; i < 8; ++i) scope.spawn(append_and_tell(*journal, std::string(1, 'a' + i), pipe));
  co_await scope.join();
  co_return 0;
}

// Reads lines of the pipe into `told` until there are `count` more or the pipe ends.
void hear(int pipe, size_t count, std::string& rest, std::map<uint64_t, std::string>& told) {
  char block[4096];
  for (const size_t enough = told.size() + count; told.size() < enough;) {
    const ssize_t got = ::read(pipe, block, sizeof block);
    if (got <= 0) return;
    rest.append(block, static_cast<size_t>(got));
    for (size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1)) {
      const std::string line = rest.substr(0, end);
      const size_t space = line.find(' ');
      told[std::stoull(line.substr(0, space))] = line.substr(space + 1);
    }
  }
}

TEST_F(SqliteJournalTest, HasEveryAcknowledgedRecordAfterKill9) {
  std::map<uint64_t, std::string> told;
  for (int round = 0; round < 4; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Runtime own;
      ::_exit(own.run(append_until_killed(own, path, ends[1])));
    }
    ::close(ends[1]);
    std::string rest;
    hear(ends[0], 40 + 13 * static_cast<size_t>(round), rest, told);
    ::kill(child, SIGKILL);
    hear(ends[0], SIZE_MAX / 2, rest, told);
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
  }
  ASSERT_GT(told.size(), 200u);
  std::map<uint64_t, std::string> found;
  for (const JournalRecord& record : SqliteJournalFile(path).read(0, 1'000'000)) {
    EXPECT_EQ(record.offset, found.size() + 1) << "a gap";
    found[record.offset] = record.bytes;
  }
  for (const auto& [offset, record] : told) EXPECT_EQ(found[offset], record);
}

// Runs the body in a child process, as what it does to itself cannot be undone. 0: all well.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

// Appends until that fails; then everything acknowledged must be readable, and the error must be kUnavailable.
int append_until_refused(SqliteJournalFile& file, const std::string& needle) {
  const std::vector<std::string> record = one_record(std::string(10'000, 'x'));
  uint64_t end = 0;
  std::string message;
  try {
    while (end < 1000) end = file.append(record);
  } catch (const Error& error) {
    if (error.code != ErrorCode::kUnavailable) return 11;
    message = error.message;
  }
  if (message.find(needle) == std::string::npos) {
    fprintf(stderr, "%s\n", message.c_str());
    return 12;
  }
  const size_t found = file.read(0, 10'000).size();
  return found == end ? 0 : 13;
}

TEST_F(SqliteJournalTest, SaysThatTheDiskIsFullAndGoesOnWhenItIsNot) {
  const std::string disk = folder / "disk";
  ASSERT_EQ(::mkdir(disk.c_str(), 0700), 0);
  constexpr int kNoPermission = 77;
  const int result = in_child([&disk] {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return kNoPermission;
    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0) return kNoPermission;
    { std::ofstream(disk + "/ballast") << std::string(300'000, 'b'); }
    SqliteJournalFile file(disk + "/journal.db");
    if (const int code = append_until_refused(file, "the disk is full")) return code;
    const uint64_t end = file.read(0, 10'000).back().offset;
    std::filesystem::remove(disk + "/ballast");
    return file.append(one_record("there is room again")) == end + 1 ? 0 : 14;
  });
  if (result == kNoPermission) GTEST_SKIP() << "may not mount a small disk here";
  EXPECT_EQ(result, 0);
}

TEST_F(SqliteJournalTest, SaysThatTheDiskIsFullToWhoeverOpensIt) {
  const std::string disk = folder / "disk";
  ASSERT_EQ(::mkdir(disk.c_str(), 0700), 0);
  constexpr int kNoPermission = 77;
  const int result = in_child([&disk] {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return kNoPermission;
    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0) return kNoPermission;
    SqliteJournalFile(disk + "/journal.db").append(one_record("kept"));
    {
      std::ofstream ballast(disk + "/ballast");
      while (ballast.put('b').flush()) continue;
    }
    try {
      SqliteJournalFile file(disk + "/journal.db");
      return 11;
    } catch (const Error& error) {
      const bool is_told = error.message.find("the disk is full") != std::string::npos;
      fprintf(stderr, "%s", is_told ? "" : (error.message + "\n").c_str());
      if (!is_told || error.hint != "free some space on that disk") return 12;
    }
    std::filesystem::remove(disk + "/ballast");
    return SqliteJournalFile(disk + "/journal.db").read(0, 10).size() == 1 ? 0 : 13;
  });
  if (result == kNoPermission) GTEST_SKIP() << "may not mount a small disk here";
  EXPECT_EQ(result, 0);
}

TEST_F(SqliteJournalTest, IsUnavailableWhenTheDiskFails) {
  const int result = in_child([this] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{200'000, 200'000};
    ::setrlimit(RLIMIT_FSIZE, &small);
    SqliteJournalFile file(path);
    return append_until_refused(file, "the disk failed");
  });
  EXPECT_EQ(result, 0);
  EXPECT_GT(SqliteJournalFile(path).append(one_record("there is room again")), 1u);
}

constexpr const char* kVersion1 =
    "PRAGMA application_id=1380076108;"
    "CREATE TABLE meta(version INTEGER NOT NULL, epoch INTEGER NOT NULL);"
    "CREATE TABLE records(offset INTEGER PRIMARY KEY, bytes BLOB NOT NULL);"
    "CREATE TABLE snapshots(offset INTEGER PRIMARY KEY, bytes BLOB NOT NULL);"
    "INSERT INTO meta VALUES(1, 41);"
    "INSERT INTO records VALUES(3, x'00ff'), (4, CAST('four' AS BLOB));"
    "INSERT INTO snapshots VALUES(2, CAST('state' AS BLOB));";

TEST_F(SqliteJournalTest, BringsAFileOfVersion1UpToDate) {
  tamper(kVersion1);
  const Opened journal = open();
  EXPECT_EQ(journal->epoch(), 42u);
  EXPECT_EQ(append(*journal, one_record("five")), 5u);
  const std::vector<JournalRecord> all = read_all(*journal);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].offset, 3u);
  EXPECT_EQ(all[0].bytes, std::string("\0\xff", 2));
  EXPECT_EQ(all[1].bytes, "four");
  EXPECT_EQ(SqliteJournalFile(path).snapshot(2)->bytes, "state");
  tamper("UPDATE records SET bytes = CAST('vier' AS BLOB) WHERE offset = 4");
  EXPECT_NE(trouble().find("record 4"), std::string::npos) << "old records have checksums now";
}

TEST_F(SqliteJournalTest, RefusesAFileOfANewerVersionAndLeavesItAlone) {
  append(*open(), one_record("one"));
  tamper("UPDATE meta SET version = 4; ALTER TABLE records ADD COLUMN later TEXT");
  EXPECT_NE(trouble().find("newer Rubato (version 4; this one knows 3)"), std::string::npos) << trouble();
}

TEST_F(SqliteJournalTest, RefusesOtherPeoplesDatabasesAndFiles) {
  tamper("CREATE TABLE bookmarks(url TEXT)");
  EXPECT_NE(trouble().find("not a journal of Rubato"), std::string::npos);
  folder.write("journal.db", "port: 80\nname: not a database, but long enough to have a header of some kind....\n");
  EXPECT_NE(trouble().find("is no SQLite database"), std::string::npos);
}

TEST_F(SqliteJournalTest, NamesTheRecordThatIsDamaged) {
  append(*open(), numbered(1, 5));
  tamper("UPDATE records SET bytes = CAST('record X' AS BLOB) WHERE offset = 3");
  EXPECT_NE(trouble().find("the checksum of record 3 is wrong"), std::string::npos);
  tamper("DELETE FROM records WHERE offset = 3");
  EXPECT_NE(trouble().find("record 3 is missing"), std::string::npos);
  tamper("DELETE FROM records WHERE offset < 3");
  EXPECT_NE(trouble().find("record 1 is missing"), std::string::npos) << "no snapshot stands for the first ones";
}

TEST_F(SqliteJournalTest, RunsNothingThatAStrangerPutIntoTheFile) {
  append(*open(), numbered(1, 5));
  tamper("CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END");
  EXPECT_NE(trouble().find("not those of a journal"), std::string::npos);
}

TEST_F(SqliteJournalTest, NoticesATornFile) {
  SqliteJournalFile(path).append(numbered(1, 2000));
  const std::string whole = read_text(path);
  ASSERT_GT(whole.size(), 40'000u);
  folder.write("journal.db", whole.substr(0, whole.size() / 2));
  EXPECT_NE(trouble(), "");
  int noticed = 0;
  for (size_t at = 4096; at < whole.size(); at += 4096) {
    std::string torn = whole;
    std::fill_n(torn.begin() + static_cast<ptrdiff_t>(at), 512, '\0');  // one sector
    folder.write("journal.db", torn);
    noticed += trouble().empty() ? 0 : 1;
  }
  EXPECT_EQ(static_cast<size_t>(noticed), whole.size() / 4096 - 1) << "of all pages but the first";
}

// ---- The chain and the note ----

// A journal whose end is noted, as a head's is.
class NotedJournalTest : public SqliteJournalTest {
 protected:
  // The error of opening it, "" for none.
  std::string refusal() {
    try {
      SqliteJournalFile file(path, note);
    } catch (const DamagedError& error) {
      EXPECT_NE(error.hint.find("--accept-journal-loss"), std::string::npos) << error.hint;
      return error.message;
    }
    return "";
  }
  // As after kill -9: nothing is moved from the log into the file, nothing is closed.
  void write_and_die(int from, int to) {
    const int result = in_child([&] {
      SqliteJournalFile file(path, note);
      for (int i = from; i <= to; ++i) file.append(one_record("record " + std::to_string(i)));
      ::_exit(0);
      return 0;
    });
    ASSERT_EQ(result, 0);
  }
  void expect_records(uint64_t last) {
    const auto all = SqliteJournalFile(path, note).read(0, 1000);
    ASSERT_EQ(all.size(), last);
    for (uint64_t i = 1; i <= last; ++i) EXPECT_EQ(all[i - 1].bytes, "record " + std::to_string(i));
  }
  // Opens it all the same; what the record of the loss says.
  JournalLoss accept() {
    JournalLoss told;
    EncodeLoss encode = [&told](const JournalLoss& loss) {
      told = loss;
      return "lost " + std::to_string(loss.first) + " to " + std::to_string(loss.last);
    };
    Opened opened;
    runtime.run(open_accepting(runtime, path, note, std::move(encode), opened));
    return told;
  }
  static Task<int> open_accepting(Runtime& runtime, std::string path, std::string note, EncodeLoss encode,
                                  Opened& opened) {
    opened = co_await SqliteJournal::open(runtime, path, note, std::move(encode));
    co_return 0;
  }

  const std::string note = folder / "journal.note";
};

TEST_F(NotedJournalTest, OpensWhatIsWhole) {
  write_and_die(1, 9);
  EXPECT_EQ(refusal(), "");
  write_and_die(10, 12);
  expect_records(12);
}

TEST_F(NotedJournalTest, RefusesAJournalThatIsGone) {
  write_and_die(1, 9);
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix);
  EXPECT_NE(refusal().find("lacks records 1 to 9: the file is gone"), std::string::npos) << refusal();
  EXPECT_FALSE(std::filesystem::exists(path)) << "a refusal changes nothing";
  folder.write("journal.db", "");
  EXPECT_NE(refusal().find("lacks records 1 to 9: the file is empty"), std::string::npos) << refusal();
}

TEST_F(NotedJournalTest, RefusesALogThatIsGoneCutOrDamagedAndLeavesItAsItWas) {
  write_and_die(1, 4);
  { SqliteJournalFile file(path, note); }  // closed: its log is in the file
  write_and_die(5, 9);
  const std::string file = read_text(path), log = read_text(path + "-wal");
  ASSERT_GT(log.size(), 4096u);
  std::string damaged = log;
  damaged[log.size() / 2] ^= 1;
  for (const std::string& other : {std::string(), log.substr(0, log.size() / 2), damaged}) {
    folder.write("journal.db-wal", other);
    if (other.empty()) std::filesystem::remove(path + "-wal");
    std::filesystem::remove(path + "-shm");
    EXPECT_NE(refusal().find("and 9 were acknowledged"), std::string::npos) << refusal();
    EXPECT_EQ(read_text(path), file);
    if (!other.empty()) {
      EXPECT_EQ(read_text(path + "-wal"), other);
    }
  }
  std::filesystem::remove(path + "-shm");
  folder.write("journal.db-wal", log);
  expect_records(9);
}

TEST_F(NotedJournalTest, RefusesATailThatWasCutAndARecordThatWasChanged) {
  write_and_die(1, 9);
  tamper("DELETE FROM records WHERE offset > 7");
  EXPECT_NE(refusal().find("lacks records 8 to 9: it ends at record 7"), std::string::npos) << refusal();
}

TEST_F(NotedJournalTest, RefusesAnotherJournalInItsPlace) {
  write_and_die(1, 9);
  const std::string other = folder / "other.db";
  SqliteJournalFile(other).append(numbered(21, 40));
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix);
  std::filesystem::rename(other, path);
  EXPECT_NE(refusal().find("another journal is in its place"), std::string::npos) << refusal();
}

TEST_F(NotedJournalTest, NoticesARecordWhoseChecksumWasMadeToFit) {
  write_and_die(1, 9);
  const auto checksum = journal_checksum(5, "record X");
  tamper("UPDATE records SET bytes = CAST('record X' AS BLOB), crc32 = " + std::to_string(checksum) +
         " WHERE offset = 5");
  EXPECT_NE(refusal().find("record 5 does not follow from the one before"), std::string::npos) << refusal();
}

// A commit under way when its head dies: nobody was told of it.
TEST_F(NotedJournalTest, TakesATornTailThatNobodyWasToldOf) {
  write_and_die(1, 9);
  std::string log = read_text(path + "-wal");
  // Half of one more commit, as the kernel may have written it.
  folder.write("journal.db-wal", log + log.substr(log.size() - 4120, 3000));
  std::filesystem::remove(path + "-shm");
  expect_records(9);
}

// Killed between the commit and the note: the note lags, and that is well.
TEST_F(NotedJournalTest, TakesANoteThatLags) {
  write_and_die(1, 8);
  const std::string older = read_text(note);
  write_and_die(9, 9);
  folder.write("journal.note", older);
  expect_records(9);
  EXPECT_EQ(JournalNoteFile::read(note)->offset, 9u) << "noted anew";
}

TEST_F(NotedJournalTest, RefusesWhenTheNoteIsGoneOrDamaged) {
  write_and_die(1, 3);
  folder.write("journal.note", "nonsense");
  EXPECT_NE(refusal().find("nobody knows whether the journal is whole"), std::string::npos) << refusal();
  std::filesystem::remove(note);
  EXPECT_NE(refusal().find("is gone"), std::string::npos) << refusal();
  const JournalLoss told = accept();
  EXPECT_GT(told.first, told.last);
  EXPECT_EQ(SqliteJournalFile(path, note).read(0, 10).size(), 4u);
}

TEST_F(NotedJournalTest, ReadsTheOtherSlotOfANoteThatWasTorn) {
  write_and_die(1, 3);
  std::string bytes = read_text(note);
  const JournalNote whole = *JournalNoteFile::read(note);
  for (const size_t at : {size_t{30}, size_t{4096 + 30}}) {
    std::string torn = bytes;
    torn[at] ^= 1;
    folder.write("journal.note", torn);
    EXPECT_GE(JournalNoteFile::read(note)->offset + 1, whole.offset);
  }
}

// The journal of 0.1.0 has neither.
TEST_F(NotedJournalTest, BeginsTheChainAtTheFirstNewRecordOfAnOlderJournal) {
  tamper(
      "PRAGMA application_id=1380076108;"
      "CREATE TABLE meta(version INTEGER NOT NULL, epoch INTEGER NOT NULL);"
      "CREATE TABLE records(offset INTEGER PRIMARY KEY, bytes BLOB NOT NULL, crc32 INTEGER NOT NULL DEFAULT 0);"
      "CREATE TABLE snapshots(offset INTEGER PRIMARY KEY, bytes BLOB NOT NULL, crc32 INTEGER NOT NULL DEFAULT 0);"
      "INSERT INTO meta VALUES(2, 7);"
      "INSERT INTO records VALUES(1, CAST('record 1' AS BLOB), " +
      std::to_string(journal_checksum(1, "record 1")) + ");");
  write_and_die(2, 5);
  expect_records(5);
  tamper("DELETE FROM records WHERE offset = 5");
  EXPECT_NE(refusal().find("lacks record 5"), std::string::npos) << refusal();
}

TEST_F(NotedJournalTest, KeepsTheChainOverSnapshotsAndTrims) {
  {
    SqliteJournalFile file(path, note);
    file.append(numbered(1, 20));
    JournalSnapshot snapshot;
    snapshot.offset = 20;
    snapshot.bytes = "state";
    file.write_snapshot(snapshot, 0);
    file.append(numbered(21, 25));
    snapshot.offset = 23;
    file.write_snapshot(snapshot, 0);
  }
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(SqliteJournalFile(path, note).append(one_record("record 26")), 26u);
  tamper("DELETE FROM records WHERE offset <= 23");
  EXPECT_EQ(refusal(), "") << "the snapshot at 23 stands for them";
  tamper("UPDATE snapshots SET chain = CAST('00000000000000000000000000000000' AS BLOB)");
  EXPECT_NE(refusal().find("record 24 does not follow"), std::string::npos) << refusal();
}

TEST_F(NotedJournalTest, GoesOnWithWhatIsLeftWhenToldTo) {
  write_and_die(1, 9);
  tamper("DELETE FROM records WHERE offset > 7");
  const JournalLoss told = accept();
  EXPECT_EQ(told.first, 8u);
  EXPECT_EQ(told.last, 9u);
  EXPECT_GE(told.epoch, 1u);
  EXPECT_TRUE(std::filesystem::exists(told.kept_in)) << told.kept_in;
  EXPECT_EQ(refusal(), "");
  const auto all = SqliteJournalFile(path, note).read(0, 100);
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(all.back().bytes, "lost 8 to 9");
  EXPECT_EQ(SqliteJournalFile(path, note).append(one_record("on")), 9u);
}

TEST_F(NotedJournalTest, GoesOnWithNothingWhenTheFileIsGone) {
  write_and_die(1, 9);
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix);
  const JournalLoss told = accept();
  EXPECT_EQ(told.first, 1u);
  EXPECT_EQ(told.last, 9u);
  EXPECT_EQ(told.kept_in, "");
  const auto all = SqliteJournalFile(path, note).read(0, 100);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_GT(SqliteJournalFile(path, note).epoch(), told.epoch) << "heads go on counting";
}

TEST_F(NotedJournalTest, GoesOnFromTheSnapshotWhenOlderRecordsAreDamaged) {
  {
    SqliteJournalFile file(path, note);
    file.append(numbered(1, 20));
    JournalSnapshot snapshot;
    snapshot.offset = 10;
    snapshot.bytes = "state";
    file.write_snapshot(snapshot, 100);
  }
  tamper("UPDATE records SET bytes = CAST('X' AS BLOB) WHERE offset IN (5, 18)");
  EXPECT_NE(refusal().find("lacks records 18 to 20"), std::string::npos) << refusal();
  const JournalLoss told = accept();
  EXPECT_EQ(told.first, 18u);
  SqliteJournalFile file(path, note);
  EXPECT_EQ(file.snapshot(UINT64_MAX)->offset, 10u);
  const auto all = file.read(10, 100);
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(all.front().bytes, "record 11");
}

TEST_F(NotedJournalTest, FinishesARescueThatWasCutOff) {
  write_and_die(1, 9);
  tamper("DELETE FROM records WHERE offset > 7");
  accept();
  // As if it had died before the last rename, with the old files in place again.
  std::filesystem::rename(path, path + ".rescued");
  std::filesystem::rename(path + ".damaged-1", path);
  Opened opened;
  runtime.run(open_accepting(runtime, path, note, nullptr, opened));
  EXPECT_EQ(read_all(*opened).back().bytes, "lost 8 to 9");
}

// ---- While it is in use ----

std::string refusal_of_append(SqliteJournalFile& file) {
  try {
    file.append(one_record("one more"));
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kConflict);
    return error.message + "; " + error.hint;
  }
  return "";
}

TEST_F(NotedJournalTest, AnswersNothingOnceItsFileIsDeletedAndSavesWhatItHeld) {
  const auto file = std::make_unique<SqliteJournalFile>(path, note);
  file->append(numbered(1, 5));
  std::filesystem::remove(path);
  const std::string refused = refusal_of_append(*file);
  EXPECT_NE(refused.find("was deleted while it was in use"), std::string::npos) << refused;
  EXPECT_THROW(file->check(), Error);
  const std::string saved = path + ".saved-" + std::to_string(file->epoch());
  ASSERT_NE(refused.find(saved), std::string::npos) << refused;
  for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(path + suffix);
  std::filesystem::rename(saved, path);
  EXPECT_GE(SqliteJournalFile(path, note).read(0, 10).size(), 5u);
}

TEST_F(NotedJournalTest, NoticesThatItsFilesWereCutOrReplaced) {
  for (const bool cut : {true, false}) {
    const std::string mine = folder / (cut ? "cut.db" : "replaced.db");
    SqliteJournalFile file(mine, note);
    file.append(numbered(1, 50));
    file.check();
    if (cut) {
      std::filesystem::resize_file(mine + "-wal", std::filesystem::file_size(mine + "-wal") / 2);
    } else {
      std::filesystem::copy_file(mine, mine + ".copy");
      std::filesystem::rename(mine + ".copy", mine);
    }
    EXPECT_THROW(file.check(), Error);
    EXPECT_NE(refusal_of_append(file).find(cut ? "was cut from" : "was replaced"), std::string::npos);
    std::filesystem::remove(note);
  }
}

TEST_F(NotedJournalTest, WritesANoteAnewThatWasDeletedWhileItWasInUse) {
  SqliteJournalFile file(path, note);
  file.append(numbered(1, 5));
  std::filesystem::remove(note);
  file.append(one_record("record 6"));
  EXPECT_EQ(JournalNoteFile::read(note)->offset, 6u);
}

}  // namespace
}  // namespace rubato::os

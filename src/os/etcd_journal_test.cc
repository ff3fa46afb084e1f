#include "os/etcd_journal.h"

#include <gtest/gtest.h>

#include "os/etcd_for_test.h"
#include "os/etcd_store.h"
#include "os/network.h"
#include "world/journal_testing.h"

namespace rubato::os {
namespace {

using namespace journal_cases;

// The store behind a bad line: a commit's request or its answer can be lost.
class LossyStore final : public Store {
 public:
  explicit LossyStore(Store& real) : real_(real) {}

  enum class Loss { kNone, kRequest, kAnswer };
  Loss next_commit = Loss::kNone;
  std::vector<StoreCondition> late_conditions;  // of the request that was lost last
  std::vector<StoreWrite> late_writes;
  int commits = 0;
  size_t operations_max = 0;  // the largest commit seen
  size_t bytes_max = 0;

  Task<CommitResult> commit(std::vector<StoreCondition> conditions, std::vector<StoreWrite> writes,
                            Instant deadline) override {
    ++commits;
    size_t bytes = 0;
    for (const StoreWrite& write : writes) bytes += write.key.size() + (write.value ? write.value->size() : 0);
    operations_max = std::max(operations_max, writes.size());
    bytes_max = std::max(bytes_max, bytes);
    const Loss loss = std::exchange(next_commit, Loss::kNone);
    CommitResult result;
    if (loss == Loss::kRequest) {
      late_conditions = conditions;
      late_writes = writes;
    }
    if (loss != Loss::kRequest) result = co_await real_.commit(std::move(conditions), std::move(writes), deadline);
    if (loss != Loss::kNone) throw Error(ErrorCode::kUnavailable, "lost");
    co_return result;
  }
  Task<std::optional<StoreEntry>> get(std::string key, Instant deadline) override {
    return real_.get(std::move(key), deadline);
  }
  Task<std::vector<StoreEntry>> scan(std::string prefix, Instant deadline) override {
    return real_.scan(std::move(prefix), deadline);
  }
  Task<int64_t> grant_lease(Duration ttl, Instant deadline) override { return real_.grant_lease(ttl, deadline); }
  Task<bool> renew_lease(int64_t lease, Instant deadline) override { return real_.renew_lease(lease, deadline); }
  Task<void> revoke_lease(int64_t lease, Instant deadline) override { return real_.revoke_lease(lease, deadline); }
  Task<void> watch(std::string prefix, Channel<StoreChange>& changes) override {
    return real_.watch(std::move(prefix), changes);
  }

 private:
  Store& real_;
};

using Opened = std::unique_ptr<EtcdJournal>;

// One etcd for all tests; each has a prefix of its own.
class EtcdJournalTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { etcd = new EtcdForTest; }
  static void TearDownTestSuite() { delete std::exchange(etcd, nullptr); }

  static Task<int> open_into(EtcdJournalTest& test, Opened& opened) {
    const std::string token = "token" + std::to_string(++test.opened_);
    opened = co_await EtcdJournal::open(test.store, test.runtime, test.prefix, token);
    co_return 0;
  }
  Opened open() {
    Opened opened;
    run(open_into(*this, opened));
    return opened;
  }
  static Task<void> keep(std::optional<JournalNote>& noted, JournalNote note) {
    noted = std::move(note);
    co_return;
  }
  static Task<int> open_noted_into(EtcdJournalTest& test, std::optional<JournalNote>& noted, EncodeLoss accept,
                                   Opened& opened) {
    const std::string token = "token" + std::to_string(++test.opened_);
    EtcdJournalNote note;
    note.before = noted;
    note.write = [&noted](JournalNote what) { return keep(noted, std::move(what)); };
    note.accept_loss = std::move(accept);
    opened = co_await EtcdJournal::open(test.store, test.runtime, test.prefix, token, std::move(note));
    co_return 0;
  }
  // `noted` is the note, before and after.
  Opened open_noted(std::optional<JournalNote>& noted, EncodeLoss accept = nullptr) {
    Opened opened;
    run(open_noted_into(*this, noted, std::move(accept), opened));
    return opened;
  }
  static Task<int> read_all_into(Journal& journal, std::vector<JournalRecord>& records) {
    records = co_await journal.read(0, 1000);
    co_return 0;
  }
  static Task<int> scan_into(EtcdJournalTest& test, std::string below, std::vector<StoreEntry>& entries) {
    entries = co_await test.store.scan(test.prefix + below, test.runtime.now() + 60s);
    co_return 0;
  }
  std::vector<StoreEntry> scan(const std::string& below) {
    std::vector<StoreEntry> entries;
    run(scan_into(*this, below, entries));
    return entries;
  }
  static Task<int> write(Store& real, std::vector<StoreWrite> writes, Instant deadline) {
    co_await real.commit(std::vector<StoreCondition>(), std::move(writes), deadline);
    co_return 0;
  }
  // Changes the store behind the journal's back; nullopt removes.
  void tamper(const std::string& below, std::optional<std::string> value) {
    std::vector<StoreWrite> writes(1);
    writes[0].key = prefix + below;
    writes[0].value = std::move(value);
    run(write(real, std::move(writes), runtime.now() + 60s));
  }
  void run(Task<int> task) { runtime.run(std::move(task)); }

  inline static EtcdForTest* etcd = nullptr;
  Runtime runtime;
  RealNetwork network{runtime};
  EtcdStore real{network, runtime, etcd->endpoints(), etcd->tls()};
  LossyStore store{real};
  const std::string prefix = std::string("/test/") + ::testing::UnitTest::GetInstance()->current_test_info()->name();

 private:
  int opened_ = 0;
};

TEST_F(EtcdJournalTest, IsEmptyAtFirst) {
  const Opened journal = open();
  run(is_empty_at_first(*journal));
}

TEST_F(EtcdJournalTest, KeepsOrderAndBytes) {
  const Opened journal = open();
  run(keeps_order_and_bytes(*journal));
}

TEST_F(EtcdJournalTest, SharesCommits) {
  const Opened journal = open();
  run(answers_overlapping_appends(*journal, runtime, 16, 5));
  EXPECT_LE(journal->commits(), 10u) << "80 records";
}

TEST_F(EtcdJournalTest, TrimsBehindSnapshots) {
  const Opened journal = open();
  run(trims_behind_snapshots(*journal));
  EXPECT_EQ(scan("/journal/").size(), 2u);
  EXPECT_EQ(scan("/snapshot/").size(), 1u);
  EXPECT_EQ(scan("/part/").size(), 1u);
  EXPECT_EQ(scan("/garbage/").size(), 0u);
}

TEST_F(EtcdJournalTest, RefusesASnapshotOfTheFuture) {
  const Opened journal = open();
  run(refuses_a_snapshot_of_the_future(*journal));
}

TEST_F(EtcdJournalTest, FencesTheOlderWriter) {
  const Opened old_one = open();
  const Opened new_one = open();
  EXPECT_GT(new_one->epoch(), old_one->epoch());
  run(fences_the_older_writer(*old_one, *new_one));
}

Task<int> view_beside(Journal& journal, EtcdJournal& view) {
  co_await journal.append(numbered(1, 5));
  co_await write_snapshot_at(journal, 3, 1, 10);
  const std::vector<JournalRecord> seen = co_await view.read(0, 100);
  EXPECT_TRUE(!seen.empty() && seen.back().offset == 5);
  const std::optional<JournalSnapshot> snapshot = co_await view.snapshot();
  EXPECT_TRUE(snapshot && snapshot->offset == 3);
  co_await journal.append(numbered(6, 6));  // still its writer
  const std::vector<JournalRecord> again = co_await view.read(5, 100);
  EXPECT_EQ(again.size(), 1u);
  co_return 0;
}

TEST_F(EtcdJournalTest, AViewReadsBesideTheWriterAndDisturbsNobody) {
  const Opened journal = open();
  const Opened view = EtcdJournal::view(store, runtime, prefix);
  run(view_beside(*journal, *view));
}

Task<int> large_things(Journal& journal) {
  // 250 records in one append, more than one transaction holds; then the largest record that may be.
  uint64_t end = co_await journal.append(numbered(1, 250));
  EXPECT_EQ(end, 250u);
  end = co_await journal.append(one_record(std::string(EtcdJournal::kRecordBytesMax, 'x')));
  EXPECT_EQ(end, 251u);
  const std::optional<ErrorCode> code =
      co_await code_of(journal.append(one_record(std::string(EtcdJournal::kRecordBytesMax + 1, 'x'))));
  EXPECT_EQ(code, ErrorCode::kFailed);
  const std::vector<JournalRecord> all = co_await journal.read(7, 1000);
  EXPECT_EQ(all.size(), 244u);
  EXPECT_EQ(all.front().bytes, "record 8");
  EXPECT_EQ(all.back().bytes.size(), EtcdJournal::kRecordBytesMax);
  co_await write_snapshot_at(journal, 250, 1000, 3'000'000);
  const std::optional<JournalSnapshot> snapshot = co_await journal.snapshot();
  EXPECT_TRUE(snapshot && snapshot->bytes == "state at 250" + std::string(3'000'000, 's'));
  // The same offset again: the old parts go. Then trimming of more than one transaction.
  co_await write_snapshot_at(journal, 250, 0, 10);
  const std::vector<JournalRecord> rest = co_await journal.read(0, 1000);
  EXPECT_EQ(rest.size(), 2u);
  co_return 0;
}

TEST_F(EtcdJournalTest, SplitsWhatIsLargerThanATransaction) {
  const Opened journal = open();
  run(large_things(*journal));
  EXPECT_LE(store.operations_max, 101u);
  EXPECT_LE(store.bytes_max, (size_t{1} << 20) + 20'000);
  EXPECT_EQ(scan("/part/").size(), 1u);
  EXPECT_EQ(scan("/journal/").size(), 2u);
}

Task<int> append_and_expect(Journal& journal, uint64_t end) {
  const uint64_t reached = co_await journal.append(numbered(1, 3));
  EXPECT_EQ(reached, end);
  co_return 0;
}

// A commit of unknown outcome is either in or out for ever, and the next append goes on behind it.
Task<int> append_through_loss(Journal& journal, LossyStore& store, LossyStore::Loss loss) {
  co_await journal.append(one_record("one"));
  store.next_commit = loss;
  const std::optional<ErrorCode> code = co_await code_of(journal.append(one_record("two")));
  EXPECT_EQ(code, ErrorCode::kUnavailable);
  const bool is_in = loss == LossyStore::Loss::kAnswer;
  const uint64_t end = co_await journal.append(one_record("three"));
  EXPECT_EQ(end, is_in ? 3u : 2u);
  const std::vector<JournalRecord> all = co_await journal.read(0, 10);
  EXPECT_EQ(all.size(), end);
  EXPECT_EQ(all.back().bytes, "three");
  co_return 0;
}

Task<int> deliver_late(LossyStore& store, Instant deadline) {
  const CommitResult late = co_await store.commit(store.late_conditions, store.late_writes, deadline);
  EXPECT_FALSE(late.committed);
  co_return 0;
}

TEST_F(EtcdJournalTest, GoesOnAfterALostRequestAndFencesItWhenItComesLate) {
  const Opened journal = open();
  run(append_through_loss(*journal, store, LossyStore::Loss::kRequest));
  run(deliver_late(store, runtime.now() + 60s));
  run(append_and_expect(*journal, 5));
}

TEST_F(EtcdJournalTest, GoesOnAfterALostAnswer) {
  const Opened journal = open();
  run(append_through_loss(*journal, store, LossyStore::Loss::kAnswer));
}

Task<int> lose_an_append(Journal& old_one, LossyStore& store) {
  store.next_commit = LossyStore::Loss::kRequest;
  const std::optional<ErrorCode> code = co_await code_of(old_one.append(one_record("lost")));
  EXPECT_EQ(code, ErrorCode::kUnavailable);
  co_return 0;
}

TEST_F(EtcdJournalTest, DoesNotTakeBackWhatAnotherTookMeanwhile) {
  const Opened old_one = open();
  run(lose_an_append(*old_one, store));
  const Opened new_one = open();
  run(fences_the_older_writer(*old_one, *new_one));
}

Task<int> lose_in_a_snapshot(Journal& journal, LossyStore& store) {
  co_await journal.append(numbered(1, 5));
  store.next_commit = LossyStore::Loss::kAnswer;  // its parts are in, but no snapshot names them
  const std::optional<ErrorCode> code = co_await code_of(write_snapshot_at(journal, 5, 0));
  EXPECT_EQ(code, ErrorCode::kUnavailable);
  co_return 0;
}

Task<int> snapshot_again(Journal& journal) {
  const std::vector<JournalRecord> all = co_await journal.read(0, 100);
  co_await write_snapshot_at(journal, all.back().offset, 0);
  const uint64_t newest = co_await newest_snapshot(journal);
  EXPECT_EQ(newest, all.back().offset);
  co_return 0;
}

TEST_F(EtcdJournalTest, SweepsUpAfterAWriterThatDiedInASnapshot) {
  Opened journal = open();
  run(lose_in_a_snapshot(*journal, store));
  EXPECT_EQ(scan("/garbage/").size(), 1u);
  EXPECT_EQ(scan("/part/").size(), 1u);
  journal = open();
  run(snapshot_again(*journal));
  EXPECT_EQ(scan("/garbage/").size(), 0u);
  EXPECT_EQ(scan("/part/").size(), 1u);
}

TEST_F(EtcdJournalTest, IsThereAfterReopeningAndGoesOnAtTheEnd) {
  Opened journal = open();
  run(append_and_expect(*journal, 3));
  journal = open();
  run(append_and_expect(*journal, 6));
  EXPECT_EQ(scan("/journal/").back().key, prefix + "/journal/00000000000000000006");
}

Task<int> read_and_expect_damage(Journal& journal, std::string needle) {
  std::string message;
  try {
    co_await journal.read(0, 100);
    co_await journal.snapshot();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kFailed);
    message = error.message;
  }
  EXPECT_NE(message.find(needle), std::string::npos) << message;
  co_return 0;
}

TEST_F(EtcdJournalTest, NamesTheKeyThatIsDamaged) {
  const Opened journal = open();
  run(append_and_expect(*journal, 3));
  run(snapshot_again(*journal));
  run(append_and_expect(*journal, 6));
  tamper("/snapshot/00000000000000000003", "x 1");
  run(read_and_expect_damage(*journal, "/snapshot/00000000000000000003' makes no sense"));
  tamper("/journal/00000000000000000005", std::nullopt);
  run(read_and_expect_damage(*journal, "/journal/00000000000000000005' is missing"));
}

TEST_F(EtcdJournalTest, NoticesARecordThatWasChanged) {
  const Opened journal = open();
  run(append_and_expect(*journal, 3));
  const std::string third = scan("/journal/").back().value;
  tamper("/journal/00000000000000000002", third);
  run(read_and_expect_damage(*journal, "/journal/00000000000000000002' does not follow"));
}

// A record of an older Rubato, without a chain: it is read as before, and the chain begins behind it.
TEST_F(EtcdJournalTest, BeginsTheChainAtTheFirstNewRecord) {
  tamper("/journal/00000000000000000001", "old");
  tamper("/end", "1");
  Opened journal = open();
  run(append_and_expect(*journal, 4));
  std::vector<JournalRecord> all;
  run(read_all_into(*journal, all));
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].bytes, "old");
}

TEST_F(EtcdJournalTest, RefusesWhatLacksItsTailByTheNoteUnlessToldToGoOn) {
  std::optional<JournalNote> noted;
  Opened journal = open_noted(noted);
  run(append_and_expect(*journal, 3));
  EXPECT_EQ(noted->offset, 3u);
  journal = open_noted(noted);
  EXPECT_EQ(noted->epoch, 2u);
  // As after a backup was put back.
  tamper("/journal/00000000000000000003", std::nullopt);
  tamper("/end", "2");
  EXPECT_THROW(open_noted(noted), DamagedError);
  JournalLoss told;
  journal = open_noted(noted, [&told](const JournalLoss& loss) {
    told = loss;
    return std::string("lost");
  });
  EXPECT_EQ(told.first, 3u);
  EXPECT_EQ(told.last, 3u);
  std::vector<JournalRecord> all;
  run(read_all_into(*journal, all));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all.back().bytes, "lost");
  open_noted(noted);
}

}  // namespace
}  // namespace rubato::os

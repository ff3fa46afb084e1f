// With the largest states and journals, no turn of the loop is long: what takes long runs beside it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/daemon_world.h"
#include "head/documents.h"
#include "head/history.h"
#include "head/job_logs.h"
#include "head/state_readers.h"
#include "os/sqlite_journal.h"

namespace rubato::cli {
namespace {

constexpr int kJobs = 50'000;
constexpr int kNodes = 5'000;
constexpr int kRecords = 60'000;

class LongTurns : public testing::Test {
 protected:
  LongTurns() : watch(os::TurnWatchSettings{}) {
    folder = files.make_temporary_folder("rubato-turns-");
    watch.report = [this](const os::LongTurn& turn) { long_turns.push_back(format_duration(turn.cpu)); };
    offload = [this](std::function<void()> work) { return beside(bulk, std::move(work)); };
  }
  ~LongTurns() override { std::filesystem::remove_all(folder); }

  void run(Task<int> main) {
    watch.start();
    EXPECT_EQ(runtime.run(std::move(main)), 0);
    watch.stop();
    EXPECT_EQ(long_turns, std::vector<std::string>()) << "turns over the limit";
  }

  os::Runtime runtime;
  os::BulkWork bulk{runtime};
  os::RealFiles files;
  os::TurnWatch watch;
  std::vector<std::string> long_turns;
  head::Offload offload;
  std::string folder;
};

std::shared_ptr<cluster::State> large_state() {
  auto state = std::make_shared<cluster::State>();
  for (int i = 0; i < kNodes; ++i) {
    cluster::Node node;
    node.id = rubato::NodeId{fmt::format("big-{}", i)};
    node.type = "big";
    node.phase = cluster::NodePhase::kUp;
    node.resources.set(kCpu, 64'000);
    node.reason = "its agent has joined";
    state->nodes[node.id] = node;
  }
  for (int i = 0; i < kJobs; ++i) {
    cluster::Job job;
    job.id = JobId{fmt::format("j-{:08}", i)};
    job.spec.name = fmt::format("train-{}", i);
    job.spec.program = "train.py";
    job.spec.owner = "ann";
    job.reason = "no room";
    state->jobs[job.id] = job;
    state->queued.insert(job.id);
  }
  state->offset = 1'000'000;
  state->index = cluster::index_of(*state);
  return state;
}

Task<int> read_large_state(head::StateReaders& readers, size_t& bytes) {
  std::function<void(const cluster::State&)> look = [&bytes](const cluster::State& state) {
    bytes = api::to_json(head::status_document(state, {}, WallTime{})).dump().size();
  };
  co_await readers.read(std::move(look));
  co_return 0;
}

TEST_F(LongTurns, AStatusOfThousandsOfNodesAndJobs) {
  size_t bytes = 0;
  {
    head::StateReaders readers(runtime, offload, large_state());
    run(read_large_state(readers, bytes));
  }
  EXPECT_GT(bytes, size_t{5} << 20);
}

// `state` and `past` are made and freed by the test: that is not what is measured.
Task<int> write_and_read_journal(os::Runtime& runtime, std::string path, head::Offload offload,
                                 std::shared_ptr<cluster::State> state, std::shared_ptr<cluster::State>& past,
                                 size_t& found) {
  const std::unique_ptr<Journal> journal = co_await os::SqliteJournal::open(runtime, std::move(path));
  head::History history(runtime, *journal, Log(), offload);
  for (uint64_t offset = 1; offset <= kRecords;) {
    std::vector<cluster::Record> records;
    for (int i = 0; i < 200; ++i) {
      cluster::JobSubmitted submitted;
      submitted.job = JobId{fmt::format("j-{:08}", offset)};
      submitted.spec.name = "train";
      submitted.spec.program = "train.py";
      records.push_back({offset++, WallTime(std::chrono::seconds(offset)), std::move(submitted)});
    }
    co_await history.append(records);
  }
  const std::vector<cluster::Record> old = co_await history.records(0, 5000);
  found = old.size();
  past = co_await history.replay(std::nullopt, kRecords - 10);
  found += past->jobs.size();
  state->offset = kRecords;
  co_await history.snapshot_if_due(state);
  co_return 0;
}

TEST_F(LongTurns, AReplayOfALongJournalAndASnapshot) {
  size_t found = 0;
  const std::shared_ptr<cluster::State> state = large_state();
  std::shared_ptr<cluster::State> past;
  run(write_and_read_journal(runtime, folder + "/journal.db", offload, state, past, found));
  EXPECT_EQ(found, 5000u + kRecords - 10);
}

Task<int> ask_long_log(head::JobLogs& logs, JobId job, size_t& bytes) {
  head::LogFilter filter = head::log_filter(7, {});
  head::JobLogs::Cursor cursor = co_await logs.find(job, std::move(filter), std::nullopt);
  while (const std::optional<std::string> lines = co_await logs.read(cursor)) bytes += lines->size();
  head::LogFilter all;
  cursor = co_await logs.find(job, std::move(all), 100'000);
  while (const std::optional<std::string> lines = co_await logs.read(cursor)) bytes += lines->size();
  co_return 0;
}

// 100 MB and no index.
TEST_F(LongTurns, AQuestionAboutALongLog) {
  head::JobLogs logs(runtime, files, folder + "/jobs", offload);
  const JobId job{"j-1"};
  std::string block;
  for (int i = 0; i < 5000; ++i) {
    elastic::LogLine line;
    line.rank = i % 8;
    line.sequence = static_cast<uint64_t>(i);
    line.text = std::string(80, 'x');
    block += head::log_entry(rubato::NodeId{"n-1"}, AgentId{"agent"}, line);
  }
  files.make_folders(folder + "/jobs/j-1");
  const auto log = files.open_append(logs.path(job));
  for (int i = 0; i < 100; ++i) log->append(block);
  size_t bytes = 0;
  run(ask_long_log(logs, job, bytes));
  EXPECT_GT(bytes, size_t{20} << 20);
  EXPECT_TRUE(files.exists(head::index_path(logs.path(job))));
}

}  // namespace
}  // namespace rubato::cli

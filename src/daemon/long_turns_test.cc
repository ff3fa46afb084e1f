// With the largest states and journals, no turn of the loop is long: what takes long runs beside it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "daemon/daemon_world.h"
#include "head/api.h"
#include "head/documents.h"
#include "head/history.h"
#include "head/job_logs.h"
#include "head/state_readers.h"
#include "os/sqlite_journal.h"
#include "provider/fake_provider.h"

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
    const auto records = std::make_shared<std::vector<cluster::Record>>();
    for (int i = 0; i < 200; ++i) {
      cluster::JobSubmitted submitted;
      submitted.job = JobId{fmt::format("j-{:08}", offset)};
      submitted.spec.name = "train";
      submitted.spec.program = "train.py";
      records->push_back({offset++, WallTime(std::chrono::seconds(offset)), std::move(submitted)});
    }
    co_await history.append(records);
  }
  const head::SharedRecords old = co_await history.records(0, 5000);
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

// A turn of thousands of records, as after `down` with a long queue.
Task<int> append_at_once(head::History& history, std::shared_ptr<const std::vector<cluster::Record>> records) {
  co_await history.append(records);
  co_return 0;
}

Task<int> open_journal(os::Runtime& runtime, std::string path, std::unique_ptr<Journal>& journal) {
  journal = co_await os::SqliteJournal::open(runtime, std::move(path));
  co_return 0;
}

// One that a person might submit: a handful of arguments and variables.
JobSpec job_of(int number) {
  JobSpec spec;
  spec.name = fmt::format("train-{}", number);
  spec.program = "train.py";
  spec.owner = number % 3 == 0 ? "ann" : "bob";
  for (int i = 0; i < 8; ++i) {
    spec.args.push_back(fmt::format("--a-rather-long-option-{}={}", i, number));
    spec.env[fmt::format("A_VARIABLE_{}", i)] = std::string(60, 'x');
  }
  return spec;
}

cluster::Record submission(uint64_t offset) {
  cluster::JobSubmitted submitted;
  submitted.job = JobId{fmt::format("j-{:08}", offset)};
  submitted.spec = job_of(static_cast<int>(offset));
  return {offset, WallTime(std::chrono::seconds(offset)), std::move(submitted)};
}

TEST_F(LongTurns, ATurnOfThousandsOfRecords) {
  std::unique_ptr<Journal> journal;
  ASSERT_EQ(runtime.run(open_journal(runtime, folder + "/journal.db", journal)), 0);
  const auto records = std::make_shared<std::vector<cluster::Record>>();
  for (uint64_t offset = 1; offset <= 10'000; ++offset) records->push_back(submission(offset));
  head::History history(runtime, *journal, Log(), offload);
  run(append_at_once(history, records));
  EXPECT_EQ(history.last(), 10'000u);
}

class NobodyComes final : public Listener {
 public:
  explicit NobodyComes(Loop& loop) : never_(loop) {}
  uint16_t port() const override { return 0; }
  Task<std::unique_ptr<Connection>> accept() override {
    while (true) co_await never_.wait();
  }

 private:
  Event never_;
};

Task<int> append_bytes(Journal& journal, std::vector<std::string> bytes) {
  co_await journal.append(std::move(bytes));
  co_return 0;
}

struct LongTurnsWorld {
  LongTurnsWorld(os::Runtime& runtime, os::RealFiles& files)
      : processes(runtime), network(runtime), world{runtime, network, processes, files, console, random, machine} {}
  os::RealProcesses processes;
  os::RealNetwork network;
  os::RealConsole console;
  Random random{1};
  MachineFacts machine;
  World world;
};

// A head with a queue as long as it may get.
struct BusyHead {
  BusyHead(LongTurnsWorld& with, Journal& journal, const std::string& folder, const head::Offload& offload)
      : world(with.world), provider(world.clock, machines), listener(world.clock.loop()), scope(world.clock.loop()) {
    head::HeadSettings settings;
    settings.folder = folder;
    settings.offload = offload;
    controller = std::make_unique<head::Controller>(world, journal, provider, std::move(settings), metrics, Log());
    api = std::make_unique<head::Api>(world, *controller, metrics, "token", size_t{4} << 20);
  }

  World& world;
  provider::FakeProvider::Machines machines;
  provider::FakeProvider provider;
  NobodyComes listener;
  Metrics metrics;
  std::unique_ptr<head::Controller> controller;
  std::unique_ptr<head::Api> api;
  Scope scope;
};

struct Asked {
  const char* method;
  std::string path;
  std::string body;
};

Task<int> ask(head::Api& api, Asked asked) {
  ServerRequest request;
  request.method = asked.method;
  request.path = asked.path;
  if (const size_t mark = asked.path.find("?limit="); mark != std::string::npos) {
    request.path = asked.path.substr(0, mark);
    request.query["limit"] = asked.path.substr(mark + 7);
  }
  request.headers["authorization"] = "Bearer token";
  request.body = asked.body;
  const ServerReply reply = co_await api.handle(std::move(request));
  co_return reply.status;
}

Task<int> start_head(BusyHead& head, std::string job) {
  co_await head.controller->recover();
  head.scope.spawn(head.controller->run(head.listener));
  Asked first{"POST", "/api/v1/jobs", std::move(job)};
  const int status = co_await ask(*head.api, std::move(first));
  co_return status - 201;
}

Task<int> ask_all(os::Runtime& runtime, BusyHead& head, std::vector<Asked> all, std::vector<std::string>& long_turns) {
  for (const Asked& asked : all) {
    const size_t before = long_turns.size();
    Asked one = asked;
    const int status = co_await ask(*head.api, std::move(one));
    co_await Sleep(runtime, runtime.now() + 1ms);  // the turn ends, and is reported
    EXPECT_LT(status, 300) << asked.method << " " << asked.path;
    EXPECT_EQ(long_turns.size(), before) << asked.method << " " << asked.path;
  }
  co_return 0;
}

TEST_F(LongTurns, EachRouteWithALongQueue) {
  std::unique_ptr<Journal> journal;
  ASSERT_EQ(runtime.run(open_journal(runtime, folder + "/journal.db", journal)), 0);
  for (uint64_t offset = 1; offset <= kJobs;) {
    std::vector<std::string> bytes;
    for (int i = 0; i < 1000; ++i, ++offset) {
      const cluster::Record record = submission(offset);
      bytes.push_back(cluster::encode(record.time, record.event));
    }
    ASSERT_EQ(runtime.run(append_bytes(*journal, std::move(bytes))), 0);
  }
  LongTurnsWorld world(runtime, files);
  BusyHead head(world, *journal, folder, offload);
  const std::string job = R"({"name": "train", "kind": "binary", "program": "true"})";
  ASSERT_EQ(runtime.run(start_head(head, job)), 0);
  const std::string last = fmt::format("/api/v1/jobs/j-{:08}", kJobs);
  std::vector<Asked> all = {{"GET", last, ""},
                            {"GET", last + "/why", ""},
                            {"GET", fmt::format("/api/v1/jobs/train-{}", kJobs), ""},
                            {"POST", "/api/v1/jobs", job},
                            {"POST", last + "/rerun", ""},
                            {"POST", last + "/stop", ""},
                            {"GET", "/api/v1/jobs", ""},
                            {"GET", "/api/v1/status", ""},
                            {"GET", "/api/v1/nodes", ""},
                            {"GET", "/api/v1/decisions?limit=100", ""},
                            {"GET", "/api/v1/events?limit=5000", ""},
                            {"GET", "/api/v1/audit", ""},
                            {"GET", "/metrics", ""},
                            {"POST", "/api/v1/requests", R"({"bundles": [{"resources": {"CPU": 1}, "count": 10}]})"}};
  run(ask_all(runtime, head, std::move(all), long_turns));
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

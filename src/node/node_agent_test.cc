// The agent on the real machine: real packages, real Python, real pipes. What can go wrong between head and agent is
// tried in src/sim/node_agent_test.cc.
#include "node/node_agent.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "archive/package.h"
#include "os/files.h"
#include "os/network.h"
#include "os/process_fixture.h"

namespace rubato::node {
namespace {

using elastic::JobOrder;
using elastic::JobOrderState;
using elastic::Phase;

// A head for one job on one node: gathers, runs, ends, says goodbye.
struct OneJobHead {
  OneJobHead(World& world_in, const ChannelKey& key)
      : world(world_in), listener(world.network.listen(Endpoint{"127.0.0.1", 0}, key, 10s)) {}

  World& world;
  std::unique_ptr<Listener> listener;
  JobOrder job_order;
  std::string package;  // bytes
  std::vector<elastic::LogLine> lines;
  std::optional<elastic::JobOrderReport> end;
  size_t lines_at_end = 0;
  Generation generations = 1;  // a job that fails is run so often

  std::vector<std::string> texts(bool is_stderr = false) const {
    std::vector<std::string> list;
    for (const elastic::LogLine& line : lines) {
      if (line.is_stderr == is_stderr) list.push_back(line.text);
    }
    return list;
  }
};

void say(Connection& connection, const elastic::ToAgent& message) { connection.send(encode(message)); }

void order(OneJobHead& head, Connection& connection, Phase phase) {
  head.job_order.phase = phase;
  elastic::Orders orders;
  orders.job_orders = {head.job_order};
  say(connection, orders);
}

void hear_reports(OneJobHead& head, Connection& connection, const elastic::Reports& reports) {
  if (reports.job_orders.empty()) return;
  const elastic::JobOrderReport& report = reports.job_orders.front();
  if (report.state == JobOrderState::kReady) {
    head.job_order.master_port = report.port;
    order(head, connection, Phase::kRunning);
  } else if (report.state == JobOrderState::kSucceeded || report.state == JobOrderState::kFailed) {
    head.end = report;
    head.lines_at_end = head.lines.size();
    const bool again = report.state == JobOrderState::kFailed && head.job_order.generation < head.generations;
    if (again) ++head.job_order.generation;
    order(head, connection, again ? Phase::kGathering : Phase::kEnded);
  } else if (report.state == JobOrderState::kGone) {
    say(connection, elastic::Goodbye{"done", false});
  }
}

Task<void> serve(OneJobHead& head) {
  const std::unique_ptr<Connection> connection = co_await head.listener->accept();
  while (true) {
    const std::optional<std::string> text = co_await connection->receive();
    if (!text) co_return;
    const elastic::ToHead message = elastic::decode_to_head(*text, head.world.clock.now());
    if (std::holds_alternative<elastic::Hello>(message)) {
      say(*connection, elastic::Welcome{});
      order(head, *connection, Phase::kGathering);
    }
    if (const auto* reports = std::get_if<elastic::Reports>(&message)) hear_reports(head, *connection, *reports);
    if (const auto* more = std::get_if<elastic::LogLines>(&message)) {
      head.lines.insert(head.lines.end(), more->lines.begin(), more->lines.end());
      say(*connection, elastic::LogAck{more->job, more->lines.back().sequence});
    }
    if (const auto* wanted = std::get_if<elastic::PackageWanted>(&message)) {
      elastic::PackagePart part{wanted->hash, wanted->offset, head.package.size(), ""};
      part.bytes = head.package.substr(wanted->offset, 100);
      say(*connection, part);
    }
  }
}

Task<int> run_both(World& world, OneJobHead& head, NodeSettings settings) {
  Scope scope(world.clock.loop());
  scope.spawn(serve(head));
  NodeAgent agent(world, std::move(settings), nullptr);
  const Instant deadline = world.clock.now() + os::kTestPatience;
  const std::optional<int> code = co_await with_deadline(world.clock.loop(), deadline, agent.run());
  co_return code.value_or(-1);
}

class RealNode : public testing::Test {
 protected:
  RealNode() : head(world, key()) {
    JobOrder& job_order = head.job_order;
    job_order.job.value = "j-1";
    job_order.generation = 1;
    job_order.workers = 1;
    job_order.grace = 5s;
    job_order.master_addr = "127.0.0.1";
    job_order.output = folder / "output";
    job_order.spec.name = "train";
    job_order.spec.program = "sub/train.py";
    job_order.spec.per_worker.set(kCpu, 1000);
  }
  static ChannelKey key() {
    ChannelKey key;
    key.secret = "test";
    return key;
  }
  // Packs what was written to `work/`, runs the job, ends everything. The agent's exit code.
  int run() {
    const archive::Package package = archive::pack(files, folder / "work", folder / "package");
    head.job_order.spec.package = package.hash;
    head.package = os::read_text(folder / "package");
    NodeSettings settings;
    settings.node.value = "n-1";
    settings.head = Endpoint{"127.0.0.1", head.listener->port()};
    settings.address = "127.0.0.1";
    settings.folder = folder / "node";
    settings.resources.set(kCpu, 4000);
    settings.key = key();
    settings.python = "/usr/bin/python3";
    settings.environment = {{"PATH", "/usr/bin:/bin"}};
    return runtime.run(run_both(world, head, std::move(settings)));
  }

  const os::TempFolder folder;
  os::Runtime runtime;
  os::RealNetwork network{runtime};
  os::RealProcesses processes{runtime};
  os::RealFiles files;
  os::RealConsole console;
  Random random{1};
  const MachineFacts machine;
  World world{runtime, network, processes, files, console, random, machine};
  OneJobHead head;
};

TEST_F(RealNode, RunsAScriptAsMainWithItsNeighboursAndItsOutputFolder) {
  folder.write("work/sub/train.py",
               "import os, sys, helper\n"
               "print(__name__, helper.word, os.getcwd().rsplit('/', 2)[1:])\n"
               "print(os.environ['RANK'], os.environ['RUBATO_NODE'], sys.argv[1:])\n"
               "open(os.environ['RUBATO_OUTPUT'] + '/result', 'w').write('42')\n"
               "print('to err', file=sys.stderr)\n");
  folder.write("work/sub/helper.py", "word = 'helped'\n");
  head.job_order.spec.args = {"a b", "$x"};
  EXPECT_EQ(run(), 0);
  ASSERT_TRUE(head.end);
  EXPECT_EQ(head.end->state, JobOrderState::kSucceeded);
  EXPECT_EQ(head.texts(), (std::vector<std::string>{"__main__ helped ['j-1', 'work']", "0 n-1 ['a b', '$x']"}));
  EXPECT_EQ(head.texts(true), std::vector<std::string>{"to err"});
  EXPECT_EQ(os::read_text(folder / "output/result"), "42");
  EXPECT_FALSE(std::filesystem::exists(folder / "node/jobs/j-1"));
  EXPECT_TRUE(std::filesystem::exists(folder / ("node/packages/" + head.job_order.spec.package)));
}

TEST_F(RealNode, SendsEveryLineOfANoisyWorkerBeforeItsEnd) {
  folder.write("work/sub/train.py", "for i in range(200000): print(i)\nraise SystemExit(3)\n");
  EXPECT_EQ(run(), 0);
  ASSERT_TRUE(head.end);
  EXPECT_EQ(head.end->state, JobOrderState::kFailed);
  ASSERT_EQ(head.end->failures.size(), 1u);
  EXPECT_EQ(head.end->failures[0].exit_code, 3);
  const std::vector<std::string> texts = head.texts();
  ASSERT_EQ(texts.size(), 200'000u);
  for (size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(texts[i], std::to_string(i));
  EXPECT_EQ(head.lines_at_end, 200'000u);
}

TEST_F(RealNode, AnInterpreterThatIsNotThereIsAFailureWithItsName) {
  folder.write("work/sub/train.py", "");
  head.job_order.spec.python = "/no/such/python";
  EXPECT_EQ(run(), 0);
  ASSERT_TRUE(head.end);
  EXPECT_EQ(head.end->state, JobOrderState::kFailed);
  EXPECT_NE(head.end->failures.at(0).message.find("/no/such/python"), std::string::npos);
}

TEST_F(RealNode, APrewarmedJobRunsTheSame) {
  // The first worker comes too early for it, those after the failures are warm: `json` is there without an import.
  folder.write("work/sub/train.py",
               "import sys\nwarm = 'json' in sys.modules\nimport helper\n"
               "print(__name__, helper.word, sys.path[0].rsplit('/', 1)[1])\n"
               "if warm: print('warm')\nsys.exit(0 if warm else 7)\n");
  folder.write("work/sub/helper.py", "word = 'helped'\n");
  head.job_order.spec.prewarm = {"json"};
  head.generations = 500;
  EXPECT_EQ(run(), 0);
  const std::vector<std::string> texts = head.texts();
  ASSERT_GE(texts.size(), 2u);
  EXPECT_EQ(texts[texts.size() - 2], "__main__ helped sub");
  EXPECT_EQ(texts.back(), "warm");
}

}  // namespace
}  // namespace rubato::node

#include "head/job_logs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/simulation.h"

namespace rubato::head {
namespace {

const JobId kJob{"j-1"};
const NodeId kNode{"n-1"};
const AgentId kAgent{"agent"};

elastic::LogLine line(uint64_t sequence, std::string text) {
  elastic::LogLine out;
  out.sequence = sequence;
  out.text = std::move(text);
  return out;
}

Task<int> idle(sim::SimProgram& self) {
  co_await Sleep(self.loop(), self.loop().now() + 1000s);
  co_return 0;
}

class JobLogsTest : public testing::Test {
 protected:
  JobLogsTest() : sim(1, 1), program(sim.machine(1).start("head", [](sim::SimProgram& self) { return idle(self); })) {
    sim.simulator.run_for(1s);
  }
  Files& files() { return program.world().files; }
  std::unique_ptr<JobLogs> open() { return std::make_unique<JobLogs>(program.loop(), files(), "/cluster/jobs"); }
  static std::vector<std::string> texts(const JobLogs& logs) {
    std::vector<std::string> out;
    uint64_t offset = 0;
    while (true) {
      const auto lines = logs.read(kJob, offset);
      if (lines.empty()) return out;
      for (const std::string& one : lines) out.push_back(nlohmann::json::parse(one).at("text"));
    }
  }
  sim::Simulation sim;
  sim::SimProgram& program;
};

TEST_F(JobLogsTest, KeepsEachLineOnceAlsoInTheNextHead) {
  EXPECT_EQ(open()->append(kJob, kNode, kAgent, {line(1, "a"), line(2, "b")}), 2u);
  const auto logs = open();
  EXPECT_EQ(logs->append(kJob, kNode, kAgent, {line(2, "b"), line(3, "c")}), 3u);
  EXPECT_EQ(texts(*logs), (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(JobLogsTest, AFullDiskCostsLinesAndTheLogSaysHowMany) {
  const auto logs = open();
  logs->append(kJob, kNode, kAgent, {line(1, "a")});
  sim.machine(1).disk().set_free_bytes(10);
  EXPECT_EQ(logs->append(kJob, kNode, kAgent, {line(2, "b"), line(3, "c")}), 3u);
  EXPECT_EQ(logs->append(kJob, kNode, kAgent, {line(4, "d")}), 4u);
  sim.machine(1).disk().set_free_bytes(1 << 20);
  EXPECT_EQ(logs->append(kJob, kNode, kAgent, {line(5, "e")}), 5u);
  EXPECT_EQ(texts(*logs), (std::vector<std::string>{
                              "a", "rubato: 3 lines are missing here: the head's disk did not take them", "e"}));
}

TEST_F(JobLogsTest, ALineThatAHeadBeganIsEndedByTheNext) {
  open()->append(kJob, kNode, kAgent, {line(1, "a")});
  files().open_append("/cluster/jobs/j-1/log")->append("{\"text\":\"hal");
  const auto logs = open();
  logs->append(kJob, kNode, kAgent, {line(2, "b")});
  uint64_t offset = 0;
  const auto lines = logs->read(kJob, offset);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(nlohmann::json::parse(lines[2]).at("text"), "b");
}

Task<int> recall_then_append(sim::SimProgram&, JobLogs& logs, AgentId agent, std::vector<elastic::LogLine> lines) {
  co_await logs.recall(kJob, agent);
  co_return static_cast<int>(logs.append(kJob, kNode, agent, lines));
}

// A dead agent's folder may hold lines that an earlier head has kept, and much may have been printed since.
TEST_F(JobLogsTest, FindsTheLastLineOfADeadAgentHoweverFarBackItIs) {
  const AgentId dead{"dead"}, never{"never"}, noisy{"noisy"};
  open()->append(kJob, kNode, dead, {line(1, "a"), line(2, R"({"agent":"never","sequence":9})")});
  {
    const auto logs = open();
    std::vector<elastic::LogLine> many;
    for (uint64_t i = 1; i <= 300; ++i) many.push_back(line(i, std::string(60'000, 'x')));
    logs->append(kJob, kNode, noisy, many);
  }
  const auto logs = open();
  const auto append = [&](const AgentId& agent, std::vector<elastic::LogLine> lines) {
    sim::SimProgram& rescue = sim.machine(1).start(
        "rescue", [&](sim::SimProgram& self) { return recall_then_append(self, *logs, agent, lines); });
    sim.simulator.run_for(10s);
    return rescue.exit_code().value_or(-1);
  };
  EXPECT_EQ(append(dead, {line(1, "a"), line(2, "b"), line(3, "c")}), 3);
  EXPECT_EQ(append(never, {line(1, "d")}), 1);
  const auto all = texts(*logs);
  ASSERT_EQ(all.size(), 304u);
  EXPECT_EQ(all[302], "c");
  EXPECT_EQ(all[303], "d");
}

}  // namespace
}  // namespace rubato::head

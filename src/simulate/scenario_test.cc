#include "simulate/scenario.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "simulate/workload.h"

namespace rubato::simulate {
namespace {

std::string no_file(const std::string& path) { throw Error(ErrorCode::kUsage, "no file " + path); }

constexpr std::string_view kCluster = R"(cluster:
  cluster_name: c
  provider: {type: local}
  max_workers: 2
  available_node_types:
    small: {resources: {CPU: 2}, min_workers: 1, max_workers: 2}
)";

Scenario read(const std::string& text) { return read_scenario(text, "s.yaml", no_file); }

Error error_of(const std::string& text) {
  try {
    (void)read(text);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::kFailed, "");
}

TEST(Scenario, ReadsTheExample) {
  const Scenario scenario = read(std::string(example_scenario()));
  EXPECT_EQ(scenario.duration, Duration(24h));
  ASSERT_EQ(scenario.workload.size(), 2u);
  EXPECT_EQ(scenario.workload[0].workers.size(), 3u);
  EXPECT_EQ(scenario.workload[0].workers[2].max, 8);
  EXPECT_EQ(scenario.spec.types.at("gpu").max_workers, 8);
}

TEST(Scenario, NamesTheNearestKeyAndItsPlace) {
  const Error error = error_of(std::string(kCluster) + "duratoin: 1h\n");
  EXPECT_EQ(error.code, ErrorCode::kUsage);
  EXPECT_EQ(error.where, "s.yaml:7:1");
  EXPECT_NE((error.message + error.hint).find("duration"), std::string::npos) << error.hint;
}

TEST(Scenario, ErrorsInTheInlineClusterHaveTheRightPlace) {
  const Error error = error_of(
      "duration: 1h\ncluster:\n  cluster_name: c\n  provider: {type: local}\n  max_wrokers: 2\n"
      "  available_node_types:\n    small: {resources: {CPU: 2}, min_workers: 1, max_workers: 2}\n");
  EXPECT_EQ(error.where.substr(0, 9), "s.yaml:5:") << error.where << error.message;
}

TEST(Scenario, TypesMustBeThere) {
  const Error error = error_of(std::string(kCluster) + "cloud: {prices: {smal: 1}}\n");
  EXPECT_NE(error.hint.find("small"), std::string::npos);
}

TEST(Scenario, ArrivalsNeedATime) {
  const Error error = error_of(std::string(kCluster) + "workload:\n  - {work: 1h}\n");
  EXPECT_EQ(error.where.substr(0, 9), "s.yaml:8:");
}

TEST(Scenario, AdaptiveJobsSayHowFastTheyAreOnceAndNeedRealAgents) {
  const std::string job = "workload:\n  - {every: 1h, work: 1h, workers: 1:4, adaptive: {batch: 32}";
  const Scenario scenario = read(std::string(kCluster) + job + "}\n");
  ASSERT_TRUE(scenario.workload[0].adaptive && scenario.adaptive);
  EXPECT_EQ(scenario.workload[0].adaptive->max_batch, 32);
  EXPECT_NE(error_of(std::string(kCluster) + job + ", efficiency: 0.9}\n").message.find("efficiency"),
            std::string::npos);
  EXPECT_NE(error_of("agents: light\n" + std::string(kCluster) + job + "}\n").message.find("light agents"),
            std::string::npos);
}

TEST(Scenario, AStockOutOfWhatTheClusterDoesNotHaveIsAnError) {
  const auto with = [](const std::string& offering) {
    return std::string(kCluster) + "faults:\n  stock_out: {every: 1h, offerings: [\"" + offering + "\"]}\n";
  };
  EXPECT_NE(error_of(with("no-such-type/*/spot")).message.find("has no node type 'no-such-type'"), std::string::npos);
  EXPECT_NE(error_of(with("gpu")).hint.find("TYPE/ZONE/MARKET"), std::string::npos);
}

TEST(Workload, IsTheSameForTheSameSeed) {
  const Scenario scenario = read(std::string(example_scenario()));
  Random one(7), same(7), other(8);
  const std::vector<PlannedJob> a = draw_jobs(scenario, one), b = draw_jobs(scenario, same),
                                c = draw_jobs(scenario, other);
  ASSERT_EQ(a.size(), b.size());
  ASSERT_GT(a.size(), 100u);  // 4 an hour, and four bursts of 20
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].at, b[i].at);
  EXPECT_NE(a.front().at, c.front().at);
}

TEST(Workload, ReadsATrace) {
  const std::vector<PlannedJob> jobs =
      read_trace("# a comment\nsubmit_s,workers,gpus,duration_s,name\n60,2:4,1,100,late\n0,1,0,50,early\n", "t.csv");
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].spec.name, "early");
  EXPECT_EQ(jobs[1].spec.workers_min, 2);
  EXPECT_EQ(jobs[1].spec.workers_max, 4);
  EXPECT_EQ(jobs[1].spec.per_worker.of(kGpu), 1000);
  EXPECT_DOUBLE_EQ(jobs[1].work_s, 400);  // 100 s with four workers
  EXPECT_THROW(read_trace("submit_s,wrokers\n1,2\n", "t.csv"), Error);
  EXPECT_THROW(read_trace("submit_s,work_s\n1\n", "t.csv"), Error);
}

TEST(Workload, AnAdaptiveJobIsAsFastAsItsModelSays) {
  Random random(1);
  const Scenario scenario =
      read(std::string(kCluster) +
           "workload:\n"
           "  - {every: 2h, work: 1h, workers: 1:8, adaptive: {exchange: 1ms, max_batch: 4096, noise: 100}}\n"
           "  - {every: 2h, work: 1h, workers: 1:8, adaptive: {exchange: 10s}}\n");
  const std::vector<PlannedJob> jobs = draw_jobs(scenario, random);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_DOUBLE_EQ(speed(jobs[0], 1), 1);
  EXPECT_GT(speed(jobs[0], 8), 4);
  EXPECT_LT(speed(jobs[1], 8), 1) << "its workers wait for each other";
  const JobProfile told = measured(*jobs[0].adaptive, 600, 3600, 4, random);
  EXPECT_EQ(told.max_profiled_replicas, 4);
  EXPECT_NEAR(*told.done_iters / *told.total_iters, 1.0 / 6, 1e-9);
  EXPECT_NE(told.perf->alpha_c, jobs[0].adaptive->profile.perf->alpha_c) << "measured, not known";
}

TEST(Workload, EfficiencyIsThatOfADoubling) {
  EXPECT_DOUBLE_EQ(speed(1, 8), 8);
  EXPECT_DOUBLE_EQ(speed(0.9, 2), 1.8);
  EXPECT_NEAR(speed(0.9, 4), 3.24, 1e-9);
}

}  // namespace
}  // namespace rubato::simulate

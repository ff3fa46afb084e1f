#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "simulate/pollux_run.h"

namespace rubato::simulate {
namespace {

// Made up in the format of the artifact: its own files state no licence.
CsvTexts made_up(int epochs, double compute, double network) {
  CsvTexts files;
  std::string& placements = files["placements.csv"] = "placement,local_bsz,step_time,sync_time\n";
  for (const char* placement : {"1", "2", "3", "4", "14", "22", "24", "44", "444", "4444"}) {
    const double sync = placement[1] != 0 ? network : placement[0] != '1' ? network / 5 : 0.0001;
    for (const int bsz : {16, 32, 64, 128})
      placements += fmt::format("{},{},{},{}\n", placement, bsz, compute * (8 + bsz) + sync, sync);
  }
  std::string& scalability = files["scalability.csv"] = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n";
  for (const int nodes : {8, 16}) {
    for (const int bsz : {16, 128})
      scalability +=
          fmt::format("{},{},{},{},{}\n", nodes, 4 * nodes, bsz, compute * (8 + bsz) + 2 * network, 2 * network);
  }
  for (const int batch : {64, 256, 2048}) {
    std::string& epochs_text = files[fmt::format("validation-{}.csv", batch)] =
        "progress,iteration,metric,grad_sqr,grad_var\n";
    for (int epoch = 1; epoch <= epochs; ++epoch)
      epochs_text += fmt::format("{},{},0.5,1,{}\n", 500.0 * epoch, 500 * epoch * 64 / batch, 5 * epoch);
  }
  return files;
}

PolluxScenario made_up_scenario(int jobs) {
  PolluxScenario scenario;
  scenario.nodes = 4;
  scenario.applications.emplace("small", PolluxApplication("small", made_up(4, 0.0005, 0.01)));
  scenario.applications.emplace("large", PolluxApplication("large", made_up(20, 0.002, 0.02)));
  std::string workload = "name,time,application,num_replicas,batch_size\n";
  for (int i = 0; i < jobs; ++i)
    workload += fmt::format("job-{},{},{},{},256\n", i, 40 * i, i % 4 == 0 ? "large" : "small", 1 + i % 8);
  scenario.jobs = read_pollux_workload(workload, "workload.csv");
  return scenario;
}

TEST(PolluxTrace, InterpolatesWhatWasMeasured) {
  const PolluxApplication app("small", made_up(4, 0.0005, 0.01));
  EXPECT_EQ(app.epochs(), 4);
  EXPECT_EQ(app.limits().init_batch_size, 64);
  EXPECT_EQ(app.limits().max_batch_size, 2048);
  EXPECT_EQ(app.limits().local_min, 16);
  EXPECT_EQ(app.limits().local_max, 128);
  EXPECT_NEAR(app.times({1}, 48).step, 0.0005 * 56 + 0.0001, 1e-12);
  EXPECT_NEAR(app.times({4, 2}, 32).step, app.times({2, 4}, 32).step, 1e-12);  // the same, rotated
  EXPECT_NEAR(app.times({4, 4, 4, 4, 4, 4}, 32).sync, 0.015, 1e-9);            // between 4 and 8 nodes
  EXPECT_NEAR(app.times(std::vector<int>(12, 4), 32).sync, 0.02, 1e-9);
  EXPECT_NEAR(app.progress_after(3), 1500, 1e-9);
  EXPECT_NEAR(app.grad_stats(64, 1).var, 10, 1e-9);
  EXPECT_NEAR(app.total_iterations(160), (2000.0 + 500) / 2, 1e-9);
}

TEST(PolluxTrace, RefusesOtherFiles) {
  CsvTexts files = made_up(4, 0.0005, 0.01);
  files["placements.csv"] = "a,b\n1,2\n";
  EXPECT_THROW(PolluxApplication("x", files), Error);
  files = made_up(4, 0.0005, 0.01);
  files["placements.csv"] += "4x,16,1,1\n";
  EXPECT_THROW(PolluxApplication("x", files), Error);
  EXPECT_THROW(PolluxApplication("x", {}), Error);
  EXPECT_THROW(read_pollux_workload("name,time\nx\n", "w.csv"), Error);
}

TEST(PolluxRun, AJobAloneTakesAsLongAsItsTracesSay) {
  PolluxScenario scenario = made_up_scenario(1);
  scenario.policy = PolluxPolicy::kFifo;
  scenario.jobs[0].num_replicas = 4;
  scenario.jobs[0].application = "small";
  const PolluxOutcome out = run_pollux(scenario);
  // It comes at 0, starts at 60, loses 30 s, then runs 4 epochs at batch 256: scale 4.
  double expected = 90;
  for (int epoch = 1; epoch <= 4; ++epoch) {
    const double gain = (5.0 * epoch + 1) / (5.0 * epoch / 4 + 1);
    expected += 500 / gain * (0.0005 * 72 + 0.002);
  }
  EXPECT_NEAR(out.jct_s.mean, expected, 3);
  EXPECT_EQ(out.restarts, 0);
}

TEST(PolluxRun, EveryPolicyEndsAndTheSameRunIsTheSame) {
  for (const PolluxPolicy policy : {PolluxPolicy::kAdaptive, PolluxPolicy::kFifo, PolluxPolicy::kTiresias,
                                    PolluxPolicy::kOptimus, PolluxPolicy::kPollux}) {
    PolluxScenario scenario = made_up_scenario(24);
    scenario.policy = policy;
    const PolluxOutcome one = run_pollux(scenario), two = run_pollux(scenario);
    EXPECT_EQ(one.jct_s.count, 24u) << to_string(policy);
    EXPECT_EQ(one.jct_by_job, two.jct_by_job);
    EXPECT_GT(one.utilisation, 0);
    EXPECT_LE(one.utilisation, 1 + 1e-9);
    EXPECT_EQ(pollux_json(scenario, one)["jobs"], 24);
  }
}

TEST(PolluxRun, AdaptiveIsFasterThanFixedSizesAndOurConventionsFasterStill) {
  PolluxScenario scenario = made_up_scenario(40);
  const double adaptive = run_pollux(scenario).jct_s.mean;
  scenario.conventions = kOurConventions;
  const double ours = run_pollux(scenario).jct_s.mean;
  scenario.conventions = {};
  scenario.policy = PolluxPolicy::kFifo;
  const double fifo = run_pollux(scenario).jct_s.mean;
  EXPECT_LT(adaptive, fifo);
  EXPECT_LT(ours, adaptive);
}

TEST(PolluxRun, AnUnknownApplicationIsAnError) {
  PolluxScenario scenario = made_up_scenario(2);
  scenario.jobs[1].application = "none";
  EXPECT_THROW(run_pollux(scenario), Error);
}

}  // namespace
}  // namespace rubato::simulate

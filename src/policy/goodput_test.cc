#include "policy/goodput.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/random.h"
#include "core/source_testing.h"
#include "policy/goodput_fit.h"

namespace rubato::policy {
namespace {

using nlohmann::json;

// Computed by tests/data/goodput/reference.py with numpy and scipy.
json reference_numbers() {
  std::ifstream file(source_path("tests/data/goodput/reference.json"));
  return json::parse(file);
}

PerfParams perf_from(const json& value) {
  return {value["alpha_c"], value["beta_c"], value["alpha_n"], value["beta_n"],
          value["alpha_r"], value["beta_r"], value["gamma"]};
}

GoodputModel resnet() {
  return {
      .perf = {.alpha_c = 0.03,
               .beta_c = 0.0008,
               .alpha_n = 0.1,
               .beta_n = 0.002,
               .alpha_r = 0.02,
               .beta_r = 0.0005,
               .gamma = 1.5},
      .grad = {.sqr = 0.1, .var = 2},
      .limits = {
          .init_batch_size = 128, .max_batch_size = 4096, .local_min = 32, .local_max = 1024, .accumulation = true}};
}

std::vector<StepPoint> points_of(const PerfParams& perf, int replicas_max, double noise = 0, uint64_t seed = 1) {
  Random random(seed);
  std::vector<StepPoint> points;
  for (int i = 0; i < 40; ++i) {
    StepPoint point;
    point.replicas = std::min(1 << random.below(7), replicas_max);
    point.nodes = (point.replicas + 3) / 4;
    point.atomic_bsz = 32.0 * static_cast<double>(1 + random.below(8));
    const StepTimes times = step_times(perf, point.nodes, point.replicas, point.atomic_bsz);
    point.grad_time = times.grad * std::exp(noise * (random.unit() - 0.5));
    point.step_time = times.opt * std::exp(noise * (random.unit() - 0.5));
    points.push_back(point);
  }
  return points;
}

TEST(Goodput, IsThroughputTimesEfficiency) {
  const GoodputModel model = resnet();
  const BatchChoice one = model.evaluate(1, 1, 128, 0);
  EXPECT_NEAR(one.throughput, 128 / (0.03 + 0.0008 * 128), 1e-3);
  EXPECT_NEAR(one.efficiency, 1, 1e-12);
  const BatchChoice eight = model.evaluate(2, 8, 64, 1);
  const double grad = 0.03 + 0.0008 * 64, net = 0.1 + 0.002 * 6;
  const double opt = std::pow(std::pow(grad, 1.5) + std::pow(net, 1.5), 1 / 1.5);
  EXPECT_NEAR(eight.throughput, 1024 / (grad + opt), 1e-9);
  EXPECT_NEAR(eight.efficiency, 2.1 / (2.0 / 8 + 0.1) / 8, 1e-12);
  EXPECT_NEAR(eight.goodput, eight.throughput * eight.efficiency, 1e-9);
}

TEST(Goodput, ChoosesTheBatchThatNumpyChooses) {
  for (const json& one : reference_numbers()["batches"]) {
    const GoodputModel model{.perf = perf_from(one["perf"]),
                             .grad = {one["grad"][0], one["grad"][1]},
                             .limits = {.init_batch_size = one["init"],
                                        .max_batch_size = one["max"],
                                        .local_min = one["bounds"][0],
                                        .local_max = one["bounds"][1],
                                        .accumulation = one["accumulation"]}};
    const BatchChoice best = model.best_batch(one["nodes"], one["replicas"]);
    const double goodput = one["goodput"];
    EXPECT_NEAR(best.goodput, goodput, 1e-9 * goodput) << one;
    if (goodput <= 0) continue;
    EXPECT_EQ(best.atomic_bsz, one["atomic_bsz"].get<int64_t>()) << one;
    EXPECT_EQ(best.accum_steps, one["accum_steps"].get<int64_t>()) << one;
  }
}

TEST(Goodput, KeepsTheBatchWithinItsLimits) {
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    GoodputModel model = resnet();
    model.limits.init_batch_size = static_cast<double>(1 + random.below(300));
    model.limits.max_batch_size = model.limits.init_batch_size * static_cast<double>(1 + random.below(50));
    model.limits.local_min = static_cast<int64_t>(1 + random.below(64));
    model.limits.local_max = static_cast<int64_t>(1 + random.below(300));
    model.limits.accumulation = random.chance(0.5);
    const int replicas = static_cast<int>(1 + random.below(64));
    const BatchChoice best = model.best_batch((replicas + 3) / 4, replicas);
    if (best.goodput <= 0) continue;
    EXPECT_GE(best.atomic_bsz, model.limits.local_min);
    EXPECT_LE(best.atomic_bsz, model.limits.local_max);
    EXPECT_TRUE(best.accum_steps == 0 || model.limits.accumulation);
    const double batch = replicas * static_cast<double>(best.atomic_bsz * (best.accum_steps + 1));
    const double most = model.limits.max_batch_size;
    const double cut = std::floor(most / replicas / static_cast<double>(best.accum_steps + 1));
    if (cut >= static_cast<double>(model.limits.local_min)) {
      EXPECT_LE(batch, most + 1e-6);
    }
  }
}

TEST(Goodput, ALoneReplicaAccumulatesAboveItsFirstBatch) {
  GoodputModel model = resnet();
  model.grad = {.sqr = 0.0001, .var = 100};  // noise: large batches teach as much for each sample
  const BatchChoice best = model.best_batch(1, 1);
  EXPECT_GE(best.accum_steps, 1);
  EXPECT_GT(best.atomic_bsz * (best.accum_steps + 1), 128);
}

TEST(Goodput, WithoutNoiseTheFirstBatchIsTheBest) {
  GoodputModel model = resnet();
  model.grad = {};
  EXPECT_EQ(model.best_batch(1, 1).atomic_bsz, 128);
  EXPECT_EQ(model.best_batch(1, 4).atomic_bsz, 32);
}

TEST(Goodput, NothingFitsAboveTheLargestBatch) {
  EXPECT_EQ(resnet().best_batch(64, 256).goodput, 0);  // 256 replicas of at least 32 are more than 4096
}

TEST(GoodputFit, IsAsGoodAsScipys) {
  for (const json& one : reference_numbers()["fits"]) {
    std::vector<StepPoint> points;
    for (const json& row : one["points"]) points.push_back({row[0], row[1], row[2], row[3], row[4]});
    const double ours = fit_objective(fit_perf(points), points);
    EXPECT_LE(ours, one["objective"].get<double>() * 1.01 + 1e-4);
  }
}

TEST(GoodputFit, FindsWhatMadeTheTimes) {
  const PerfParams truth = resnet().perf;
  const std::vector<StepPoint> points = points_of(truth, 64);
  const PerfParams found = fit_perf(points);
  for (const StepPoint& point : points) {
    const StepTimes times = step_times(found, point.nodes, point.replicas, point.atomic_bsz);
    EXPECT_NEAR(times.grad / point.grad_time, 1, 0.03);
    EXPECT_NEAR(times.opt / point.step_time, 1, 0.05);
  }
}

TEST(GoodputFit, IsOptimisticAboutWhatItHasNotSeen) {
  const PerfParams one = fit_perf(points_of(resnet().perf, 1));
  EXPECT_LT(one.alpha_r, 1e-7);
  EXPECT_LT(one.alpha_n, 1e-6);
  const PerfParams four = fit_perf(points_of(resnet().perf, 4));
  EXPECT_NEAR(four.alpha_r, 0.02, 0.01);
  EXPECT_NEAR(four.alpha_n, 1.1 * four.alpha_r, 1e-9);
  const PerfParams two = fit_perf(points_of(resnet().perf, 2));
  EXPECT_LT(two.beta_r, 1e-7);
  const StepPoint single{.nodes = 1, .replicas = 1, .atomic_bsz = 64, .grad_time = 0.1, .step_time = 0.1};
  EXPECT_NEAR(fit_perf(std::vector{single}).alpha_c, 0.05, 1e-9);
}

TEST(GoodputFit, OnePointFarOffDoesNotBendTheRest) {
  const PerfParams truth = resnet().perf;
  std::vector<StepPoint> points = points_of(truth, 16, 0.02);
  points[7].step_time *= 30;
  points[7].grad_time *= 30;
  const PerfParams found = fit_perf(points);
  for (const int replicas : {1, 2, 4, 8, 16}) {
    const int nodes = (replicas + 3) / 4;
    const double ratio = step_times(found, nodes, replicas, 128).opt / step_times(truth, nodes, replicas, 128).opt;
    EXPECT_NEAR(ratio, 1, 0.12) << replicas;
  }
}

TEST(GoodputFit, LeavesOutWhatIsNoTime) {
  std::vector<StepPoint> points = points_of(resnet().perf, 4);
  const double with = fit_perf(points).alpha_c;
  points.push_back({.nodes = 1, .replicas = 1, .atomic_bsz = 32, .grad_time = 0, .step_time = 1});
  points.push_back({.nodes = 1, .replicas = 1, .atomic_bsz = 32, .grad_time = std::nan(""), .step_time = 1});
  points.push_back({.nodes = 3, .replicas = 1, .atomic_bsz = 32, .grad_time = 1, .step_time = 1});
  EXPECT_EQ(fit_perf(points).alpha_c, with);
  EXPECT_FALSE(fitted(fit_perf({})));
}

TEST(GoodputFit, EachKindOfDevicesHasItsOwn) {
  PerfParams slow = resnet().perf;
  slow.alpha_c *= 4;
  slow.beta_c *= 4;
  const auto found = fit_perf_by_kind(
      {{"a100", points_of(resnet().perf, 8)}, {"t4", points_of(slow, 8)}, {"never", std::vector<StepPoint>{}}});
  EXPECT_EQ(found.size(), 2u);
  EXPECT_NEAR(step_times(found.at("t4"), 1, 1, 128).grad / step_times(found.at("a100"), 1, 1, 128).grad, 4, 0.2);
}

}  // namespace
}  // namespace rubato::policy

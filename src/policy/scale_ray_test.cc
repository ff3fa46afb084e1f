// Beside Ray: on random small states a plan is never dearer than Ray's for the same demands, and no more waits.
//   RUBATO_SEEDS=20000 build/release/policy_test --gtest_filter='BesideRay.*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/source_testing.h"
#include "policy/scale_ray_testing.h"
#include "policy/scale_state.h"
#include "policy/scale_testing.h"

namespace rubato::policy {
namespace {

uint64_t seeds_or(uint64_t usual) {
  const char* const given = std::getenv("RUBATO_SEEDS");
  return given == nullptr ? usual : std::strtoull(given, nullptr, 10);
}

ScaleInput read_sample(const std::string& name) {
  std::ifstream file(source_path("tests/data/autoscaler/" + name + ".json"));
  std::stringstream text;
  text << file.rdbuf();
  return read_scale_state(text.str(), name);
}

// The oracle itself against answers that Ray's own code gave.
TEST(BesideRay, TheOracleAnswersAsRayDid) {
  std::ifstream file(source_path("bench/data/ray-answers.json"));
  const nlohmann::json answers = nlohmann::json::parse(file);
  for (const std::string name : {"hetero_d100_n10_s1", "shapes20_d100_n10_s1"}) {
    SCOPED_TRACE(name);
    const ScaleInput input = read_sample(name);
    EXPECT_EQ(ray_v1(input).launch, answers[name]["v1_full"]["to_launch"].get<Counts>());
    EXPECT_EQ(ray_v2(input).launch, answers[name]["v2_schedule"]["to_launch"].get<Counts>());
  }
}

TEST(BesideRay, APlanIsNeverDearerAndLeavesNoMoreWaiting) {
  const uint64_t seeds = seeds_or(2000);
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const ScaleInput input = random_ray_state(random);
    const ScalePlan plan = plan_scale(input);
    judge(input, plan);
    for (const RayAnswer& ray : {ray_v1(input), ray_v2(input)}) {
      if (ray.partial_gang) continue;
      EXPECT_LE(waiting(plan), ray.unfulfilled);
      if (waiting(plan) == ray.unfulfilled) {
        EXPECT_LE(plan.cost_per_hour, ray.cost(input) + 1e-6);
      }
    }
    if (::testing::Test::HasFailure()) return;
  }
}

// With its launches under way, it asks for nothing more, and nothing waits that was given room there.
TEST(BesideRay, ASecondDecisionLaunchesNothing) {
  const uint64_t seeds = seeds_or(1000);
  int more = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    Random random(seed);
    const ScaleInput input = random_ray_state(random);
    const ScalePlan plan = plan_scale(input);
    const ScalePlan second = plan_scale(carried_out(input, plan));
    if (!second.launches.empty() || waiting(second) > waiting(plan)) {
      ++more;
      ADD_FAILURE() << "seed " << seed;
    }
    if (more >= 5) return;
  }
}

// What the first decision packed tightly is hard to pack again; it is found again by asking what was asked then.
TEST(BesideRay, ASecondDecisionFindsWhatTheFirstFound) {
  for (const uint64_t seed : {8398, 10497}) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const ScaleInput input = random_ray_state(random);
    const ScalePlan plan = plan_scale(input);
    const ScalePlan second = plan_scale(carried_out(input, plan));
    EXPECT_EQ(second.launches_by_type(), Counts{});
    EXPECT_LE(waiting(second), waiting(plan));
  }
}

// Two types are of equal use to Ray, and only the larger one leaves room for a gang within max_workers.
TEST(BesideRay, ALargerNodeIsTakenWhereAGangWouldNotFitWithinMaxWorkers) {
  ScaleInput input = three_types();
  input.types = {{"head", scale_type(cpu(2), 0.2, 0)},
                 {"a32", scale_type(bundle({{kCpu, 32}, {kMemory, 90}, {"x", 1}, {"y", 12}}), 6.5)},
                 {"b16", scale_type(bundle({{kCpu, 16}, {kMemory, 128}}), 0.7)}};
  input.nodes.push_back({.id = {"head"}, .type = "head", .head = true, .available = Resources{}});
  const Gang pack{"g1", GangStrategy::kPack, {{bundle({{kCpu, 3}, {kMemory, 9}}), 3}, {cpu(2), 8}}};
  const Gang spread{
      "g2",
      GangStrategy::kSpread,
      {{bundle({{kCpu, 0.01}, {kMemory, 16}}), 4}, {bundle({{kCpu, 10}, {kMemory, 30}}), 1}, {cpu(7), 8}}};
  input.gangs = {pack, spread};
  for (const int nodes : {3, 4, 5}) {
    input.max_workers = nodes;
    EXPECT_EQ(waiting(plan_scale(input)), 0) << nodes;
  }
}

TEST(BesideRay, TinyStatesAreNearTheOptimum) {
  const uint64_t seeds = seeds_or(600);
  double ours = 0, least = 0, excess = 0;
  int64_t states = 0, far = 0, waits = 0;
  std::string seeds_far;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    Random random(seed + 7'000'000);
    ScaleInput input = random_ray_state(random);
    input.gangs.clear();
    input.requests.clear();
    input.max_workers = 1000;
    for (auto& [name, type] : input.types) type.min_workers = 0;
    if (input.demands.size() > 3) input.demands.resize(3);
    for (Bundles& one : input.demands) one.count = std::min<int64_t>(one.count, 4);
    const auto best = least_cost(input);
    if (!best || *best <= 0) continue;
    const ScalePlan plan = plan_scale(input);
    ++states;
    if (waiting(plan) > 0) {  // limits are met, and all of it would fit: that is not always seen
      ++waits;
      continue;
    }
    EXPECT_GE(plan.cost_per_hour, *best - 1e-6) << "seed " << seed;
    ours += plan.cost_per_hour;
    least += *best;
    excess += plan.cost_per_hour / *best - 1;
    if (plan.cost_per_hour > 1.05 * *best) {
      ++far;
      seeds_far += fmt::format(" {} ({:.2f} for {:.2f})", seed, plan.cost_per_hour, *best);
    }
  }
  RecordProperty("states", std::to_string(states));
  if (std::getenv("RUBATO_SEEDS") != nullptr) {
    fmt::print("{} states: {:.3f} % above the optimum in sum, {:.3f} % on average, {} above 5 %\n", states,
               100 * (ours / least - 1), 100 * excess / static_cast<double>(states), far);
  }
  EXPECT_GT(states, static_cast<int64_t>(seeds / 10));
  EXPECT_LE(excess, 0.01 * static_cast<double>(states));
  EXPECT_LE(far * 100, states) << "seeds" << seeds_far;
  EXPECT_LE(waits * 100, states);
}

TEST(BesideRay, SmallBundlesShareTheNodeOfALargeOne) {
  ScaleInput input = aws_types({"m5.large", "m5.4xlarge", "m5.16xlarge"});
  input.demands = {{bundle({{kCpu, 1}, {kMemory, 1}}), 10}, {cpu(3.5), 1}};
  EXPECT_EQ(plan_scale(input).launches_by_type(), (Counts{{"m5.4xlarge", 1}}));
}

TEST(BesideRay, GpuWorkTakesTheRoomOfALargeGpuNodeThatIsBoughtAnyway) {
  ScaleInput input = aws_types({"m5.large", "p3.2xlarge", "p3.8xlarge"});
  input.demands = {{gpu(2, 4), 1}, {gpu(1, 2), 2}};
  EXPECT_EQ(plan_scale(input).launches_by_type(), (Counts{{"p3.8xlarge", 1}}));
}

}  // namespace
}  // namespace rubato::policy

#include "policy/allocate_state.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/random.h"
#include "policy/allocate_testing.h"

namespace rubato::policy {
namespace {

using nlohmann::json;

constexpr std::string_view kState = R"({"now": 100,
 "nodes": [{"id": "a", "resources": {"GPU": 4}, "price_per_hour": 1.5}, {"id": "b", "resources": {"GPU": 4}}],
 "jobs": [
  {"id": "bert", "resources": {"GPU": 1}, "min_replicas": 0, "max_replicas": 8, "preemptible": true, "priority": 0,
   "age_s": 60, "attained_service_s": 60, "restarts": 0, "restart_cost_s": 30, "allocation": ["a"],
   "progress": {"done_iters": 10, "total_iters": 100000},
   "model": {"perf": {"alpha_c": 0.1, "beta_c": 0.01, "alpha_n": 0.05, "beta_n": 0.001, "alpha_r": 0.01,
                      "beta_r": 0.0001, "gamma": 1.5},
             "grad": {"sqr": 1.0, "var": 50.0}, "init_batch_size": 12, "max_batch_size": 384,
             "local_bsz_bounds": [4, 12], "gradient_accumulation": true}},
  {"id": "new", "resources": {"GPU": 1}, "min_replicas": 0, "max_replicas": 1, "preemptible": true, "age_s": 0,
   "attained_service_s": 0, "restarts": 0, "restart_cost_s": 30, "allocation": [], "model": null}]})";

json decide(std::string_view text) {
  const AllocateState state = read_allocate_state(text, "state.json");
  return json::parse(to_json(state, allocate(state.input)).dump());
}

std::string error_of(const json& state) {
  const std::string text = state.dump(1);
  try {
    read_allocate_state(text, "state.json");
  } catch (const Error& error) {
    return render(error);
  }
  return "";
}

TEST(AllocateState, AnswersInTheFormatOfTheIssue) {
  const json out = decide(kState);
  EXPECT_EQ(out.size(), 4u);
  EXPECT_EQ(out["allocations"]["bert"], (json{"a", "a", "a", "a"}));
  EXPECT_EQ(out["allocations"]["new"], json{"b"});
  EXPECT_GE(out["batch"]["bert"]["atomic_bsz"].get<int>(), 4);
  EXPECT_LE(out["batch"]["bert"]["atomic_bsz"].get<int>(), 12);
  EXPECT_GE(out["batch"]["bert"]["accum_steps"].get<int>(), 0);
  EXPECT_FALSE(out["batch"].contains("new"));
  EXPECT_EQ(out["reasons"]["new"], "1 worker: not profiled yet");
  EXPECT_TRUE(out["desired_nodes"].is_number_integer());
}

TEST(AllocateState, NumbersAsIdsComeBackAsNumbers) {
  const json out = decide(R"({"nodes": [{"id": 0, "resources": {"GPU": 1}}, {"id": "1", "resources": {"GPU": 1}}],
    "jobs": [{"id": 7, "allocation": [0]}, {"id": 8, "allocation": ["1"]}]})");
  EXPECT_EQ(out["allocations"]["7"], json{0});
  EXPECT_EQ(out["allocations"]["8"], json{"1"});
}

TEST(AllocateState, PartsOfAModelMayBeMissing) {
  json state = json::parse(kState);
  for (const char* part :
       {"perf", "grad", "init_batch_size", "max_batch_size", "local_bsz_bounds", "gradient_accumulation"}) {
    json without = state;
    without["jobs"][0]["model"][part] = nullptr;
    EXPECT_GE(decide(without.dump())["allocations"]["bert"].size(), 1u) << part;
    without["jobs"][0]["model"].erase(part);
    EXPECT_GE(decide(without.dump())["allocations"]["bert"].size(), 1u) << part;
  }
  state["jobs"][0]["model"]["perf"]["gamma"] = nullptr;
  EXPECT_EQ(decide(state.dump())["allocations"]["bert"], json{"a"});
  std::string nan(kState);
  nan.replace(nan.find("50.0"), 4, "NaN");
  EXPECT_GE(decide(nan)["allocations"]["bert"].size(), 1u);
}

TEST(AllocateState, AJobNeedsNothingButItsId) {
  const json out = decide(R"({"nodes": [{"id": "a", "resources": {"GPU": 2}}], "jobs": [{"id": "x"}]})");
  EXPECT_EQ(out["allocations"]["x"], json{"a"});
}

TEST(AllocateState, TakesWhatACallerMaySend) {
  for (const char* text : {
           R"({"nodes": [], "jobs": []})",
           R"({"now": 0, "nodes": [], "jobs": [{"id": "x", "allocation": ["gone", "gone"]}]})",
           R"({"nodes": [{"id": "a"}], "jobs": [{"id": "x", "resources": {"GPU": 1e300}}]})",
           R"({"nodes": [{"id": "a", "resources": {"GPU": 1e300}}], "jobs": [{"id": "x", "max_replicas": 1e300}]})",
           R"({"nodes": [{"id": "a", "resources": {"GPU": 4}}], "jobs": [{"id": "x", "resources": {}}]})",
           R"({"nodes": [{"id": "a", "resources": {"GPU": 4}}], "jobs": [{"id": "x", "resources": {"GPU": 0}}]})",
           R"({"nodes": [{"id": "a", "resources": {"GPU": 4, "CPU": 0}}],
               "jobs": [{"id": "x", "resources": {"GPU": 1, "CPU": 1}}]})",
           R"({"nodes": [{"id": "a", "resources": {"GPU": 4}}],
               "jobs": [{"id": "x", "min_replicas": 9, "max_replicas": 3, "age_s": 1e300, "restarts": 1e12,
                         "attained_service_s": 1e300, "restart_cost_s": 1e300, "priority": -1e300,
                         "progress": {"done_iters": 1e300, "total_iters": 1}}]})",
           R"({"nodes": [{"id": "a", "resources": {"GPU": 1}}],
               "jobs": [{"id": "x", "allocation": ["a", "a", "a"]}, {"id": "y", "preemptible": false,
                         "allocation": ["a", "a", "a"]}]})",
       }) {
    const AllocateState state = read_allocate_state(text, "state.json");
    expect_rules(state.input, allocate(state.input));
    to_json(state, allocate(state.input)).dump();
  }
}

TEST(AllocateState, HugeModelsDoNotBreakTheDecision) {
  Random random(2);
  for (int i = 0; i < 500; ++i) {
    json state = json::parse(kState);
    json& model = state["jobs"][0]["model"];
    for (auto& [name, value] : model["perf"].items()) {
      if (random.chance(0.4)) value = std::pow(10, random.unit() * 600 - 300);
    }
    if (random.chance(0.5)) model["grad"]["var"] = std::pow(10, random.unit() * 600 - 300);
    if (random.chance(0.5)) model["grad"]["sqr"] = random.chance(0.5) ? 0 : std::pow(10, random.unit() * 600 - 300);
    if (random.chance(0.3)) model["init_batch_size"] = std::pow(10, random.unit() * 30 - 5);
    if (random.chance(0.3)) model["max_batch_size"] = std::pow(10, random.unit() * 30 - 5);
    if (random.chance(0.3)) model["local_bsz_bounds"] = {random.below(100), random.below(100)};
    const AllocateState read = read_allocate_state(state.dump(), "state.json");
    expect_rules(read.input, allocate(read.input));
    if (::testing::Test::HasFailure()) FAIL() << state;
  }
}

TEST(AllocateState, ErrorsPointAtTheirPlace) {
  json state = json::parse(kState);
  state["jobs"][0]["max_replica"] = 4;
  EXPECT_TRUE(error_of(state).starts_with("error: jobs[0]: unknown field 'max_replica'\n  at  state.json:10:19\n"))
      << error_of(state);
  EXPECT_NE(error_of(state).find("fix did you mean 'max_replicas'?"), std::string::npos);
  state = json::parse(kState);
  state["jobs"][1]["age_s"] = "old";
  EXPECT_NE(error_of(state).find("jobs[1].age_s: expected a number, this is a text"), std::string::npos);
  state = json::parse(kState);
  state["nodes"][1]["id"] = "a";
  EXPECT_NE(error_of(state).find("nodes[1].id: 'a' is there twice"), std::string::npos);
  state = json::parse(kState);
  state.erase("jobs");
  EXPECT_NE(error_of(state).find("jobs is missing"), std::string::npos);
  for (const auto& [path, value] : std::map<std::string, json>{{"/jobs/0/age_s", -1},
                                                               {"/jobs/0/min_replicas", 1.5},
                                                               {"/jobs/0/preemptible", "yes"},
                                                               {"/jobs/0/allocation", "a"},
                                                               {"/jobs/0/allocation/0", json::object()},
                                                               {"/jobs/0/resources/GPU", -1},
                                                               {"/jobs/0/model", 3},
                                                               {"/jobs/0/model/local_bsz_bounds", json{1, 2, 3}},
                                                               {"/jobs/0/progress/done_iters", "3"},
                                                               {"/nodes/0/resources", json::array()},
                                                               {"/nodes", json::object()}}) {
    state = json::parse(kState);
    state[json::json_pointer(path)] = value;
    EXPECT_NE(error_of(state).find("\n  at  state.json:"), std::string::npos) << path;
  }
  EXPECT_THROW(read_allocate_state("", "x"), Error);
  EXPECT_THROW(read_allocate_state("[]", "x"), Error);
}

// Bytes and whole values at random: an Error, or a decision that keeps the rules.
TEST(AllocateState, GarbageIsRefusedOrDecidedByTheRules) {
  Random random(11);
  int decided = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text(kState);
    for (uint64_t k = random.below(5) + 1; k > 0; --k) {
      const size_t at = random.below(text.size());
      const double dice = random.unit();
      if (dice < 0.3) {
        text[at] = static_cast<char>(random.below(128));
      } else if (dice < 0.5) {
        text.erase(at, random.below(20));
      } else if (const size_t digit = text.find_first_of("0123456789", at); digit != std::string::npos) {
        constexpr std::string_view kValues[] = {"0", "1e308", "-1", "null", "NaN", "1e-308", "3", "[]", "\"a\""};
        text.replace(digit, 1, kValues[random.below(std::size(kValues))]);
      }
      if (text.empty()) break;
    }
    try {
      const AllocateState state = read_allocate_state(text, "state.json");
      expect_rules(state.input, allocate(state.input));
      ++decided;
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::kUsage);
    }
    if (::testing::Test::HasFailure()) FAIL() << text;
  }
  EXPECT_GT(decided, 80);
}

}  // namespace
}  // namespace rubato::policy

// The JSON of `rubato plan --state`.
#include "policy/scale_state.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/source_testing.h"
#include "policy/scale_bound.h"
#include "policy/scale_testing.h"

namespace rubato::policy {
namespace {

using nlohmann::json;

Error refused(const json& state) {
  try {
    read_scale_state(state.dump(), "s.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUsage);
    EXPECT_EQ(error.where, "s.json");
    return error;
  }
  ADD_FAILURE() << "was accepted";
  return Error(ErrorCode::kFailed, "");
}

json small_state() {
  return {{"node_types", {{"m", {{"resources", {{"CPU", 2}}}, {"max_workers", 4}, {"price_per_hour", 0.1}}}}},
          {"max_workers", 3}};
}

TEST(ScaleState, ReadsEveryField) {
  json state = small_state();
  state["node_types"]["h"] = {{"resources", {{"CPU", 4}}}, {"node_config", {{"any", "thing"}}}};
  state["node_types"]["m"]["offerings"] = {{{"zone", "a"}, {"market", "spot"}, {"price_per_hour", 0.05}, {"limit", 2}},
                                           {{"zone", "b"}, {"blocked", "no capacity"}}};
  state["head_node_type"] = "h";
  state["upscaling_speed"] = 2.5;
  state["idle_timeout_minutes"] = 1.5;
  state["nodes"] = {{{"id", "n0"}, {"ip", "10.0.0.1"}, {"kind", "head"}, {"type", "h"}},
                    {{"id", "n1"}, {"kind", "worker"}, {"type", "m"}, {"available", {{"CPU", 0.5}}}, {"idle_s", 30}}};
  state["launching_nodes"] = {{"m", 2}};
  state["demands"] = {{{"CPU", 1}}, json::array({{{"CPU", 2}}, 7})};
  state["gangs"] = {{{"strategy", "STRICT_SPREAD"}, {"bundles", {{{"CPU", 1}}}}}};
  state["requests"] = {{{"CPU", 2}}};
  state["spot"] = "never";
  state["on_demand_base"] = 1;
  state["price_cap"] = 3.5;
  state["budget_per_hour"] = 10;
  const ScaleInput input = read_scale_state(state.dump(), "s.json");
  EXPECT_EQ(input.types.at("h").max_workers, 0) << "the head's type has no workers unless it says so";
  EXPECT_EQ(input.types.at("m").offerings.at(0).market, Market::kSpot);
  EXPECT_EQ(input.types.at("m").offerings.at(1).blocked, "no capacity");
  EXPECT_EQ(input.upscaling_speed, 2.5);
  EXPECT_EQ(input.idle_timeout, 90s);
  EXPECT_TRUE(input.nodes.at(0).head);
  EXPECT_FALSE(input.nodes.at(0).available);
  EXPECT_EQ(input.nodes.at(1).available, cpu(0.5));
  EXPECT_EQ(input.nodes.at(1).idle, 30s);
  EXPECT_EQ(input.launching.at(0).count, 2);
  EXPECT_EQ(input.demands.at(1).count, 7);
  EXPECT_EQ(input.gangs.at(0).strategy, GangStrategy::kStrictSpread);
  EXPECT_EQ(input.requests.size(), 1U);
  EXPECT_EQ(input.spot, SpotPolicy::kNever);
  EXPECT_EQ(input.on_demand_base, 1);
  EXPECT_EQ(input.price_cap, 3.5);
  EXPECT_EQ(input.budget_per_hour, 10);
  EXPECT_FALSE(input.legacy);
}

TEST(ScaleState, UnknownFieldsAreErrorsWithTheNearestName) {
  json state = small_state();
  state["demand"] = json::array();
  EXPECT_EQ(refused(state).message, "the state: unknown field 'demand'");
  EXPECT_EQ(refused(state).hint, "did you mean 'demands'?");
  state = small_state();
  state["node_types"]["m"]["min_worker"] = 1;
  EXPECT_EQ(refused(state).message, "node_types.m: unknown field 'min_worker'");
  EXPECT_EQ(refused(state).hint, "did you mean 'min_workers'?");
  state = small_state();
  state["nodes"] = {{{"id", "n"}, {"type", "m"}, {"idle", 3}}};
  EXPECT_EQ(refused(state).message, "nodes[0]: unknown field 'idle'");
}

TEST(ScaleState, WrongValuesAreErrorsThatNameTheField) {
  const auto with = [](const std::string& field, json value) {
    json state = small_state();
    state[json::json_pointer(field)] = std::move(value);
    return refused(state);
  };
  EXPECT_EQ(with("/max_workers", -1).message, "max_workers: expected a whole number from 0 to 10000000");
  EXPECT_EQ(with("/max_workers", 1.5).message, "max_workers: expected a whole number from 0 to 10000000");
  EXPECT_EQ(with("/upscaling_speed", "fast").message, "upscaling_speed: expected a number from 0 to 1e+12");
  EXPECT_EQ(with("/demands", {{{"CPU", "x"}}}).message, "demands[0]: the amount of 'CPU' must be a number");
  EXPECT_EQ(with("/demands", {{{"gpu", 1}}}).hint, "write GPU");
  EXPECT_EQ(with("/demands", json::array({json::array({1, 2, 3})})).message,
            "demands[0]: expected a bundle or [bundle, count]");
  EXPECT_EQ(with("/demands", json::array({{{"CPU", 1}}, json::array({{{"CPU", 1}}, -1})})).message,
            "demands[1]: expected a whole number from 0 to 1000000000");
  EXPECT_EQ(with("/gangs", {{{"bundles", {{{"CPU", 1}}, 7}}}}).message,
            "gangs[0].bundles[1]: resources must be a mapping of names to amounts");
  EXPECT_EQ(with("/node_types/m/priority", 1e300).message,
            "node_types.m.priority: expected a whole number from -1e+06 to 1e+06");
  EXPECT_EQ(with("/launching_nodes", {{"n", 1}}).message, "launching_nodes.n: the node type 'n' is unknown");
  EXPECT_EQ(with("/gangs", {{{"strategy", "STRICT"}}}).message, "gangs[0].strategy: 'STRICT' is unknown");
  EXPECT_EQ(with("/node_types/m/resources", {{"CPU", -1}}).message,
            "node_types.m.resources: the amount of 'CPU' is negative");
  EXPECT_EQ(with("/nodes", {{{"id", "a"}, {"type", "m"}}, {{"id", "a"}, {"type", "m"}}}).message,
            "nodes[1].id: 'a' is there twice");
  EXPECT_EQ(with("/head_node_type", "n").message, "head_node_type: the node type 'n' is unknown");
  EXPECT_EQ(refused(json::array()).message, "the state: expected an object");
  EXPECT_EQ(refused(json::object()).message, "the state: node_types is missing");
}

TEST(ScaleState, WhatIsNoJsonIsRefusedWithItsPlace) {
  const auto refused_text = [](const std::string& text) {
    try {
      read_scale_state(text, "s.json");
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::kFailed, "it was taken");
  };
  EXPECT_EQ(refused_text("").message, "the state is empty");
  EXPECT_EQ(refused_text(" \n").message, "the state is empty");
  const Error cut = refused_text("{\n \"node_types\": {");
  EXPECT_EQ(cut.where, "s.json:2:17");
  EXPECT_EQ(cut.message.find("json.exception"), std::string::npos) << cut.message;
  EXPECT_EQ(refused_text("{\"upscaling_speed\": NaN}").where, "s.json:1:21");
  EXPECT_NE(refused_text("{\"upscaling_speed\": 1e999}").message.find("number overflow"), std::string::npos);
  EXPECT_EQ(refused_text(std::string(100'000, '[')).code, ErrorCode::kUsage);
  // Of two values one would be read over.
  EXPECT_EQ(refused_text(R"({"max_workers": 1, "max_workers": 2})").message, "max_workers is there twice");
  EXPECT_EQ(refused_text(R"({"node_types": {"m": {"resources": {"CPU": 1}}, "m": {}}})").message,
            "node_types.m is there twice");
  EXPECT_EQ(refused_text(R"({"node_types": {"m": {"resources": {"CPU": 1, "CPU": 2}}}})").message,
            "node_types.m.resources.CPU is there twice");
}

TEST(ScaleState, LegacyWordsMakeALegacyCluster) {
  json state = small_state();
  state["target_utilization_fraction"] = 0.5;
  state["initial_workers"] = 2;
  state["autoscaling_mode"] = "aggressive";
  const ScaleInput input = read_scale_state(state.dump(), "s.json");
  ASSERT_TRUE(input.legacy);
  EXPECT_EQ(input.legacy->worker_type, "m");
  EXPECT_TRUE(input.legacy->aggressive);
}

TEST(ScaleState, ThePlanHasFiveFields) {
  json state = small_state();
  state["demands"] = json::array({json::array({{{"CPU", 2}}, 5})});
  state["nodes"] = {{{"id", "n1"}, {"type", "m"}, {"idle_s", 1000}}};
  const json plan = json::parse(to_json(plan_scale(read_scale_state(state.dump(), "s.json"))).dump());
  EXPECT_EQ(plan.size(), 5U);
  EXPECT_EQ(plan.at("launch"), (json{{"m", 2}}));
  EXPECT_EQ(plan.at("terminate"), json::array());
  EXPECT_EQ(plan.at("unfulfilled"), (json::array({{{"CPU", 2}}, {{"CPU", 2}}})));
  EXPECT_EQ(plan.at("cost_per_hour"), 0.2);
  EXPECT_EQ(plan.at("reasons").at(0).at("kind"), "launch");
}

struct GivenInput {
  const char* name;
  double ray;  // dollars per hour of the cheapest of Ray's answers
};
class GivenInputs : public ::testing::TestWithParam<GivenInput> {};

// Ray's answers on these inputs leave nothing unfulfilled either; tests/data/autoscaler/README.md has them.
TEST_P(GivenInputs, AreServedNearTheBoundAndBelowRaysCost) {
  const std::string path = source_path(std::string("tests/data/autoscaler/") + GetParam().name + ".json");
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  ScaleInput input = read_scale_state(text.str(), path);
  const std::map<std::string, double> prices{{"m5.large", 0.096},    {"m5.4xlarge", 0.768}, {"m5.16xlarge", 3.072},
                                             {"r5.8xlarge", 2.016},  {"p3.2xlarge", 3.06},  {"p3.8xlarge", 12.24},
                                             {"p3.16xlarge", 24.48}, {"cust.4xlarge", 1.00}};
  for (const auto& [name, price] : prices) input.types.at(name).price_per_hour = price;
  const ScalePlan plan = plan_scale(input);
  judge(input, plan);
  EXPECT_TRUE(plan.unfulfilled.empty());
  EXPECT_LE(plan.cost_per_hour, 0.93 * GetParam().ray);
  EXPECT_LE(plan.cost_per_hour, 1.02 * cost_lower_bound(input));
  EXPECT_EQ(plan_scale(carried_out(input, plan)).launches_by_type(), Counts{});
}
INSTANTIATE_TEST_SUITE_P(Scale, GivenInputs,
                         ::testing::Values(GivenInput{"hetero_d100_n10_s1", 178.18},
                                           GivenInput{"hetero_d1000_n100_s1", 1864.06},
                                           GivenInput{"shapes20_d100_n10_s1", 213.15},
                                           GivenInput{"shapes20_d1000_n100_s1", 1049.94}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rubato::policy

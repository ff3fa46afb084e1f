// `rubato plan` as it is typed.
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/testing.h"
#include "core/source_testing.h"

namespace rubato::cli {
namespace {

const std::string kData = source_path("tests/data/");

Typed type(const std::vector<std::string>& args, const std::string& input = {}) {
  CannedHead head;
  return type_at(head, args, [&](Shell& shell) { shell.read_input = [input] { return input; }; });
}

const std::string kState = R"({
  "node_types": {
    "small": {"resources": {"CPU": 2}, "max_workers": 3, "price_per_hour": 0.1},
    "gpu": {"resources": {"CPU": 8, "GPU": 1}, "max_workers": 1, "offerings": [
      {"zone": "a", "market": "spot", "price_per_hour": 0.9, "blocked": "no capacity until 12:31"},
      {"zone": "b", "price_per_hour": 3}]}
  },
  "max_workers": 10,
  "nodes": [{"id": "n1", "kind": "worker", "type": "small", "available": {"CPU": 1}},
            {"id": "n2", "kind": "worker", "type": "small", "idle_s": 400}],
  "demands": [{"CPU": 1}, [{"GPU": 1, "CPU": 1}, 3]]
})";

TEST(PlanCommand, PrintsTablesAndReasons) {
  const Typed typed = type({"plan", "--state", "-"}, kState);
  EXPECT_EQ(typed.code, 0) << typed.err;
  std::ostringstream golden;
  golden << std::ifstream(kData + "golden/plan.txt").rdbuf();
  EXPECT_EQ(typed.out, golden.str());
}

TEST(PlanCommand, IsJsonForPrograms) {
  const Typed typed = type({"plan", "--state", "-", "--json"}, kState);
  EXPECT_EQ(typed.code, 0) << typed.err;
  const auto plan = nlohmann::json::parse(typed.out);
  EXPECT_EQ(plan.at("launch"), (nlohmann::json{{"gpu", 1}}));
  EXPECT_EQ(plan.at("terminate").at(0).at("id"), "n2");
  EXPECT_EQ(plan.at("unfulfilled").size(), 2U);
  EXPECT_EQ(plan.at("cost_per_hour"), 3.0);
}

TEST(PlanCommand, ReadsTheGivenStates) {
  const Typed typed = type({"plan", "--json", "--state", kData + "autoscaler/hetero_d100_n10_s1.json"});
  EXPECT_EQ(typed.code, 0) << typed.err;
  EXPECT_EQ(nlohmann::json::parse(typed.out).at("unfulfilled"), nlohmann::json::array());
}

TEST(PlanCommand, SaysWhatIsWrongWithAState) {
  const Typed unknown = type({"plan", "--state", "-"}, R"({"node_type": {}})");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.out, "");
  EXPECT_NE(unknown.err.find("node_types is missing"), std::string::npos) << unknown.err;
  EXPECT_NE(unknown.err.find("is it meant by 'node_type'?"), std::string::npos) << unknown.err;
  const Typed misspelled = type({"plan", "--state", "-"}, R"({"node_types": {}, "demand": []})");
  EXPECT_NE(misspelled.err.find("did you mean 'demands'?"), std::string::npos) << misspelled.err;
  EXPECT_NE(misspelled.err.find("standard input"), std::string::npos) << misspelled.err;
  EXPECT_EQ(type({"plan", "--state", "/nowhere.json"}).code, 2);
  EXPECT_EQ(type({"plan"}).code, 2);
}

}  // namespace
}  // namespace rubato::cli

// Each fault and each transition is expected by a scenario that `make test` plays; `rubato simulate --seeds` fails when
// no seed reaches it.
#include "simulate/coverage.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "core/error.h"
#include "core/source_testing.h"
#include "simulate/run.h"

namespace rubato::simulate {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(source_path(path));
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Those that cmake/tests.cmake names, with their numbers of seeds.
std::map<std::string, int> played_scenarios() {
  std::map<std::string, int> out;
  const std::string text = text_of("cmake/tests.cmake");
  const std::regex line(R"(\nrubato_seeds\((\w+) 1\.\.(\d+)\))");
  for (std::sregex_iterator it(text.begin(), text.end(), line), end; it != end; ++it)
    out[(*it)[1].str()] = std::stoi((*it)[2].str());
  return out;
}

Scenario shipped(const std::string& name) {
  const std::string path = "examples/scenarios/" + name + ".yaml";
  return read_scenario(text_of(path), path, [](const std::string& file) -> std::string { throw file; });
}

TEST(Coverage, EveryFaultAndTransitionIsExpectedByAPlayedScenario) {
  std::set<std::string, std::less<>> expected;
  for (const auto& [name, seeds] : played_scenarios()) {
    EXPECT_GE(seeds, 100) << name << ": with fewer seeds nothing is expected";
    for (const std::string& mark : shipped(name).expect) expected.insert(mark);
  }
  for (const auto& all : {fault_marks(), cloud_marks(), node_transitions(), job_transitions()}) {
    for (const std::string_view mark : all) EXPECT_TRUE(expected.contains(mark)) << mark;
  }
}

TEST(Coverage, NoOtherTransitionHappens) {
  for (const auto& [name, seeds] : played_scenarios()) {
    const Scenario scenario = shipped(name);
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const Plan plan;
      simulate::Run run(scenario, plan, seed);
      for (const auto& [mark, count] : run.play().marks) EXPECT_TRUE(known_mark(mark)) << name << ": " << mark;
    }
  }
}

TEST(Coverage, ASlipInAMarkIsFound) {
  const std::string cluster =
      "cluster: {cluster_name: c, provider: {type: local}, max_workers: 1, available_node_types: {a: {resources: {CPU: "
      "1}}}}\n";
  try {
    read_scenario(cluster + "expect: [fault.head_crush]\n", "s.yaml", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.hint, "did you mean 'fault.head_crash'?");
    EXPECT_EQ(error.where, "s.yaml:2:9");
  }
  EXPECT_EQ(read_scenario(cluster + "expect: [worker.crash]\n", "s.yaml", {}).expect.size(), 1u);
}

}  // namespace
}  // namespace rubato::simulate

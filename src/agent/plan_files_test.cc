#include "agent/plan_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rubato::agent {
namespace {

using elastic::GroupPlan;

TEST(PlanDocument, IsWhatTheLibraryReads) {
  const GroupPlan plan{{{"a-1", 0, 0}, {"b-2", 1, 1}}, {}, {"fe80::1", 4711, "secret"}};
  const auto document = nlohmann::json::parse(plan_document(plan, 7, {"c-1"}));
  EXPECT_EQ(document, nlohmann::json::parse(R"({"version": 1, "generation": 7, "lost": ["c-1"],
      "store": {"address": "[fe80::1]:4711", "token": "secret"},
      "members": [{"id": "a-1", "rank": 0, "local_rank": 0, "node": 0},
                  {"id": "b-2", "rank": 1, "local_rank": 1, "node": 1}]})"));
}

TEST(WorkerReport, HasStateGenerationAndReason) {
  const auto report = parse_worker_report(R"({"state":"broken","generation":3,"step":9,"pid":7,"reason":"reset"})");
  ASSERT_TRUE(report);
  EXPECT_EQ(report->state, WorkerReport::State::kBroken);
  EXPECT_EQ(report->generation, 3u);
  EXPECT_EQ(report->reason, "reset");
}

TEST(WorkerReport, OfAnythingElseIsNone) {
  for (const char* text : {"", "{", "[]", "{}", R"({"state":"what","generation":1})", R"({"state":"ready"})",
                           R"({"state":"ready","generation":-1})", R"({"state":7,"generation":1})"}) {
    EXPECT_FALSE(parse_worker_report(text)) << text;
  }
  EXPECT_FALSE(parse_worker_report(std::string(1 << 20, ' ')));
}

TEST(Lost, IsWhoNeitherStaysNorDeparts) {
  const GroupPlan before{{{"a-1", 0, 0}, {"b-1", 0, 1}, {"c-1", 0, 2}}, {}, {}};
  const GroupPlan after{{{"a-1", 0, 0}}, {"c-1"}, {}};
  EXPECT_EQ(lost_between(before, after), std::vector<std::string>{"b-1"});
}

}  // namespace
}  // namespace rubato::agent

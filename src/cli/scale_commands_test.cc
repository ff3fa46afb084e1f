#include "cli/scale_commands.h"

#include <gtest/gtest.h>

#include "cli/commands.h"
#include "cli/testing.h"
#include "core/timestamp.h"
#include "terminal/document.h"
#include "terminal/render_scale.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

json body(const std::vector<std::string>& args) { return request_body(parse_command(request_table(), args, {})); }

TEST(Request, CountsAreSoManyOfOne) {
  EXPECT_EQ(
      body({"--cpus", "64", "--gpus", "8"}),
      json::parse(R"({"bundles": [{"resources": {"CPU": 1}, "count": 64}, {"resources": {"GPU": 1}, "count": 8}]})"));
}

TEST(Request, ABundleIsOneNodesWorth) {
  EXPECT_EQ(body({"--bundle", "CPU=4,GPU=1x8", "--bundle", "CPU=0.5,memory=2GiB"}),
            json::parse(R"({"bundles": [{"resources": {"CPU": 4.0, "GPU": 1.0}, "count": 8},
                                        {"resources": {"CPU": 0.5, "memory": "2GiB"}, "count": 1}]})"));
}

TEST(Request, NothingClears) {
  EXPECT_EQ(body({"--clear"}), json::parse(R"({"bundles": []})"));
  EXPECT_EQ(body({"--cpus", "0"}), json::parse(R"({"bundles": []})"));
}

TEST(Request, NonsenseIsRefusedBeforeAnybodyIsAsked) {
  EXPECT_NE(usage_error([] { body({}); }).hint.find("--clear"), std::string::npos);
  usage_error([] { body({"--clear", "--cpus", "4"}); });
  usage_error([] { body({"--bundle", "CPU"}); });
  usage_error([] { body({"--bundle", "CPU=many"}); });
  usage_error([] { body({"--cpus", "-1"}); });
}

TEST(RenderScale, AnAuditEndsWithTheSum) {
  const json audit = json::parse(R"({"owned": [{"node": "small-1", "type": "small", "phase": "up", "zone": "",
    "market": "on-demand", "price_per_hour": 0.5, "age_s": 3600, "cost": 0.5, "exists": true}], "leaked": ["small-9"],
    "complete": true, "strays_removed": 2, "gone": [{"type": "small", "nodes": 3, "hours": 1.5, "cost": 0.75}],
    "cost_per_hour": 0.5, "cost_so_far": 1.25})");
  EXPECT_EQ(audit_text(read_document<api::Audit>(audit), {}),
            "NODE     TYPE   PHASE  MARKET     ZONE  AGE    PRICE    COST\n"
            "small-1  small  up     on-demand  -     1h00m  $0.50/h  $0.50\n\n"
            "GONE   NODES  HOURS  COST\nsmall  3      1.50   $0.75\n\n"
            "leaked: small-9 exists and belongs to nobody; the head removes it\n"
            "2 stray machines found and removed so far\n"
            "1 owned, 1 leaked · $0.50/h now · $1.25 so far\n");
}

TEST(RenderScale, AQuietClusterHasNothingToSay) {
  EXPECT_EQ(autoscaler_text({}, {}), "");
  const json busy = json::parse(R"({"demand": ["4 workers of 1 CPU for 1 job"], "launching": {"small": 2},
    "held": {"against": [{"text": "max_workers is 4", "where": "c.yaml:3:1"}]},
    "cost_per_hour": 0, "cost_so_far": 0})");
  EXPECT_EQ(autoscaler_text(read_document<api::Autoscaler>(busy), {}),
            "Autoscaler\n  demand         4 workers of 1 CPU for 1 job\n  launching      2 small\n"
            "  not launching  max_workers is 4  (c.yaml:3:1)\n");
}

TEST(RenderScale, ADecisionNamesReasonsAndWhatElseThereWas) {
  const json decision = json::parse(R"({"kind": "launch", "subject": "node small-1", "offset": 7,
    "time": "2026-11-15T03:59:00Z", "text": "node small-1 requested", "wanted": "room for 1 waiting bundle",
    "against": [], "others": [{"text": "gpu: dearer"}], "changes": [{"text": "the price"}]})");
  EXPECT_EQ(decision_text(read_document<api::ScaleDecision>(decision), {.now = *parse_time("2026-11-15T04:00:00Z")}),
            "node small-1: launch\n  wanted: room for 1 waiting bundle\n\nWhat else there was\n  - gpu: dearer\n"
            "\nWhat would change it\n  - the price\n\nnode small-1 requested (decided 1m00s ago, journal offset 7)\n");
}

}  // namespace
}  // namespace rubato::cli

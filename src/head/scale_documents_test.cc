#include "head/scale_documents.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cluster/state_testing.h"

namespace rubato::head {
namespace {

using namespace cluster;  // NOLINT: the words of state_testing.h
using nlohmann::json;

History with_node() {
  History history;
  history.configure({node_type("n", cpus(1), 0, 3)});
  NodeRequested request{NodeId{"n-1"}, "n", "", "for a job"};
  request.offering.price_per_hour = 2;
  request.reasons.wanted = "room";
  request.reasons.others.push_back({"gpu: dearer", ""});
  history.add(request);
  return history;
}

TEST(Audit, TellsOwnedFromLeakedAndAddsUpTheCost) {
  History history = with_node();
  history.pass(30min);
  const std::vector<NodeId> there{NodeId{"n-1"}, NodeId{"n-7"}};
  const json audit = api::to_json(audit_document(history.state, there, history.now));
  EXPECT_EQ(audit["owned"][0]["node"], "n-1");
  EXPECT_EQ(audit["owned"][0]["exists"], true);
  EXPECT_EQ(audit["owned"][0]["cost"], 1.0);
  EXPECT_EQ(audit["leaked"], json::parse(R"(["n-7"])"));
  EXPECT_EQ(audit["cost_per_hour"], 2.0);
  EXPECT_EQ(audit["cost_so_far"], 1.0);
  const json blind = api::to_json(audit_document(history.state, std::nullopt, history.now));
  EXPECT_EQ(blind["complete"], false);
  EXPECT_TRUE(blind["owned"][0]["exists"].is_null());
}

TEST(Decisions, OnlyLaunchesRemovalsAndRefusalsAreSome) {
  Record record;
  record.event = NodeCreated{NodeId{"n-1"}, ""};
  EXPECT_FALSE(decision_document(record));
  NodeRemoving removing{NodeId{"n-1"}, "idle"};
  removing.reasons.wanted = "no idle node";
  record.event = removing;
  EXPECT_EQ(decision_document(record)->kind, "remove");
  EXPECT_EQ(decision_document(record)->wanted, "no idle node");
  ScaleHeld held;
  held.reasons.wanted = "4 CPU";
  held.reasons.against.push_back({"max_workers is 3", "c.yaml:1:1"});
  record.event = held;
  EXPECT_EQ(decision_document(record)->kind, "hold");
  EXPECT_EQ(decision_document(record)->against.at(0).where, "c.yaml:1:1");
}

TEST(Decisions, ANodeThatIsGoneStillHasItsStory) {
  std::vector<Record> records(3);
  NodeRequested request{NodeId{"n-1"}, "n", "", "for a job"};
  request.reasons.wanted = "room";
  records[0].event = request;
  records[1].event = NodeRemoving{NodeId{"n-1"}, "nothing to do for 5m00s"};
  records[2].event = NodeGone{NodeId{"n-1"}};
  SharedRecords shared;
  for (const Record& record : records) shared.push_back(std::make_shared<const Record>(record));
  const std::optional<api::Why> why = why_from_records(NodeId{"n-1"}, shared);
  ASSERT_TRUE(why);
  EXPECT_EQ(why->phase, "gone");
  EXPECT_EQ(why->history->size(), 3u);
  EXPECT_EQ(why->decision.text, "node n-1 is removed: nothing to do for 5m00s");
  EXPECT_FALSE(why_from_records(NodeId{"n-2"}, shared));
}

TEST(Autoscaler, TellsDemandLaunchesAndWhatIsShort) {
  History history = with_node();
  history.submit(2, 2);
  history.add(NodeFailed{NodeId{"n-1"}, "none left", LaunchFailure::kNoCapacity});
  const json document = api::to_json(autoscaler_document(history.state, history.now));
  EXPECT_EQ(document["demand"], json::parse(R"(["2 workers of 1 CPU for 1 job"])"));
  EXPECT_EQ(document["shortages"][0]["why"], "no capacity");
  EXPECT_EQ(document["cost_so_far"], 0.0);
}

}  // namespace
}  // namespace rubato::head

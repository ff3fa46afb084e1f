#include "elasticjob/node_notice.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rubato::elasticjob {
namespace {

using nlohmann::json;

json node_with(const char* taint) { return {{"spec", {{"taints", {{{"key", taint}, {"effect", "NoSchedule"}}}}}}}; }

TEST(NodeNotice, TaintsOfThoseWhoTakeNodesAwayAreNotices) {
  for (const char* taint : {"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption",
                            "aws-node-termination-handler/spot-itn", "cloud.google.com/impending-node-termination"}) {
    EXPECT_EQ(read_notice(node_with(taint)).kind, Notice::kGoing) << taint;
    EXPECT_EQ(read_notice(node_with(taint)).taint, taint);
  }
  EXPECT_EQ(read_notice({{"spec", {{"unschedulable", true}}}}).kind, Notice::kCordoned);
  EXPECT_EQ(read_notice(node_with("nvidia.com/gpu")).kind, Notice::kNone);
  EXPECT_EQ(read_notice(json::object()).kind, Notice::kNone);
}

TEST(NodeNotice, AGoingNodeThatIsCordonedTooIsGoing) {
  json node = node_with("karpenter.sh/disrupted");
  node["spec"]["unschedulable"] = true;
  EXPECT_EQ(read_notice(node).kind, Notice::kGoing);
}

TEST(NodeNotice, APodThatToleratesItWouldComeBackToTheSameNode) {
  const json any = {{"tolerations", {{{"operator", "Exists"}}}}};
  EXPECT_TRUE(tolerates(tolerated_notices(any), "karpenter.sh/disrupted"));
  const json one = {{"tolerations", {{{"key", "karpenter.sh/disrupted"}, {"operator", "Exists"}}}}};
  EXPECT_TRUE(tolerates(tolerated_notices(one), "karpenter.sh/disrupted"));
  EXPECT_FALSE(tolerates(tolerated_notices(one), "ToBeDeletedByClusterAutoscaler"));
  EXPECT_FALSE(tolerates(tolerated_notices({{"tolerations", {{{"key", "nvidia.com/gpu"}}}}}), "nvidia.com/gpu"));
}

}  // namespace
}  // namespace rubato::elasticjob

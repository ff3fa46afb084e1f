#include "kubernetes/client.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rubato::kubernetes {
namespace {

rest::CloudError refusal(int status, const char* reason, const char* message) {
  HttpResponse response;
  response.status = status;
  response.body = nlohmann::json{{"kind", "Status"}, {"reason", reason}, {"message", message}}.dump();
  return read_refusal(response, "create pod ml/a");
}

// All of them are 403 and Forbidden; what helps is another thing for each.
TEST(Refusal, AForbiddenPodHasTheHintThatHelps) {
  const rest::CloudError right = refusal(403, "Forbidden", "pods is forbidden: User \"a\" cannot create resource");
  EXPECT_EQ(right.code, ErrorCode::kAuth);
  EXPECT_NE(right.hint.find("kubectl auth can-i"), std::string::npos);
  const rest::CloudError quota = refusal(403, "Forbidden", "pods \"a\" is forbidden: exceeded quota: few");
  EXPECT_EQ(quota.code, ErrorCode::kQuota);
  EXPECT_NE(quota.hint.find("ResourceQuota"), std::string::npos);
  const rest::CloudError policy =
      refusal(403, "Forbidden", "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot");
  EXPECT_NE(policy.hint.find("securityContext"), std::string::npos) << policy.hint;
}

TEST(Refusal, AWebhookThatDoesNotAnswerIsTold) {
  const rest::CloudError hook =
      refusal(500, "InternalError",
              "Internal error occurred: failed calling webhook \"pods.example.com\": Post \"https://127.0.0.1:1/\"");
  EXPECT_EQ(hook.code, ErrorCode::kUnavailable);
  EXPECT_EQ(hook.reason, kWebhookFailed);
  EXPECT_NE(hook.hint.find("webhook"), std::string::npos);
  EXPECT_EQ(refusal(500, "InternalError", "etcdserver: request timed out").reason, "InternalError");
}

// A kubelet sends the header of a log together with its first line, and a training may be silent for long.
TEST(LogRequest, AFollowedLogIsWaitedFor) {
  const Request follow = log_request({"ml", "a-worker-0"}, "trainer", true);
  EXPECT_EQ(follow.path, "/api/v1/namespaces/ml/pods/a-worker-0/log");
  EXPECT_EQ(follow.query, (rest::Query{{"container", "trainer"}, {"follow", "true"}}));
  EXPECT_GE(follow.timeout.value_or(0s), 24h);
  const Request now = log_request({"ml", "a-worker-0"}, "", false);
  EXPECT_TRUE(now.query.empty() && !now.timeout);
}

}  // namespace
}  // namespace rubato::kubernetes

#include "elasticjob/supervisor.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "elasticjob/manifest.h"
#include "elasticjob/sizing.h"
#include "rest/rest_testing.h"

namespace rubato::elasticjob {
namespace {

using nlohmann::json;

constexpr const char* kHints =
    R"({"initBatchSize": 128, "maxBatchSize": 1024, "maxProfiledReplicas": 2, "perfParams": {"alpha_c": 0.1,
        "beta_c": 0.01, "alpha_n": 0.1, "beta_n": 0.01, "alpha_r": 0.1, "beta_r": 0.01, "gamma": 1.5}})";

std::unique_ptr<kubernetes::Access> access_to(World& world) {
  kubernetes::ChosenContext chosen;
  chosen.cluster.server = "http://api:80";
  return std::make_unique<kubernetes::Access>(world, chosen, std::map<std::string, std::string>{});
}

Job job_of(Kind kind) {
  Job job;
  job.kind = kind;
  job.name = {"ml", "cifar"};
  job.uid = "u-1";
  job.adaptive = std::make_shared<const Adaptive>();
  return job;
}

json pod_of(int rank, int group, int size, const std::string& address) {
  return {{"metadata",
           {{"name", "cifar-worker-" + std::to_string(rank)},
            {"labels", {{kLabelJob, "cifar"}, {kLabelIndex, std::to_string(rank)}}},
            {"annotations", {{kAnnotationGroup, std::to_string(group)}, {kAnnotationSize, std::to_string(size)}}},
            {"ownerReferences", json::array({{{"uid", "u-1"}, {"controller", true}}})}}},
          {"status", {{"phase", "Running"}, {"podIP", address}}}};
}

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    scripted.network.answer = [this](const rest::SentRequest& sent) {
      if (sent.request.method == "PATCH") {
        if (gone) return rest::http_answer(409, R"({"reason":"Conflict"})");
        patches.push_back(json::parse(sent.request.body));
        return rest::http_answer(200, "{}");
      }
      ++lists;
      return rest::http_answer(200, json{{"items", pods}}.dump());
    };
  }

  struct Call {
    std::string method, path, body;
    Duration before{};  // virtual time that passes first
    std::string timeout = "0";
  };
  static Task<void> make_calls(World& world, std::vector<Call> calls, std::vector<ServerReply>& replies) {
    kubernetes::Client client(world, access_to(world));
    Supervisor supervisor(client, "key", Log());
    for (Call& call : calls) {
      co_await Sleep(world.clock.loop(), world.clock.now() + call.before);
      ServerRequest request;
      request.method = call.method;
      request.path = call.path;
      request.body = call.body;
      request.query["timeout"] = call.timeout;
      const HttpAdmission admission = supervisor.admit(request);
      Task<ServerReply> handling = supervisor.handle(std::move(request));
      ServerReply reply = co_await std::move(handling);
      EXPECT_EQ(admission.authenticated, reply.status != 404 || reply.body.find("nothing here") == std::string::npos);
      replies.push_back(std::move(reply));
    }
  }
  std::vector<ServerReply> call(std::vector<Call> calls) {
    std::vector<ServerReply> replies;
    scripted.run([&](World& world) { return make_calls(world, std::move(calls), replies); });
    return replies;
  }
  static std::string path(Kind kind = Kind::kAdaptdlJob) {
    return supervisor_url({"http://op:8470", "key"}, job_of(kind)).substr(std::string("http://op:8470").size());
  }

  rest::ScriptedWorld scripted;
  std::vector<json> patches;
  json pods = json::array();
  int lists = 0;
  bool gone = false;
};

TEST_F(SupervisorTest, HintsAreKeptWithTheJobAndDriftsAreNot) {
  const auto replies = call({{"PUT", path() + "/hints/ml/cifar", kHints},
                             {"PUT", path() + "/hints/ml/cifar", kHints, 30s},
                             {"PUT", path() + "/hints/ml/cifar", R"({"initBatchSize": 256})", 1s},
                             {"PUT", path() + "/hints/ml/cifar", R"({"initBatchSize": 256})", 30s}});
  for (const ServerReply& reply : replies) EXPECT_EQ(reply.status, 200);
  ASSERT_EQ(patches.size(), 2u) << "the same again is no news, and neither is what comes too soon after";
  EXPECT_EQ(patches[0]["metadata"]["uid"], "u-1");
  const json kept = json::parse(patches[0]["metadata"]["annotations"][kAnnotationHints].get<std::string>());
  EXPECT_EQ(job_profile_from_json(kept).max_profiled_replicas, 2);
}

TEST_F(SupervisorTest, StrangersGetNothing) {
  const std::string good = path();
  std::string forged = good;
  forged.back() = forged.back() == 'a' ? 'b' : 'a';
  std::string of_another = good;
  of_another.replace(of_another.find("cifar"), 5, "other");
  for (const std::string& one : {std::string("/"), std::string("/hints/ml/cifar"), forged + "/hints/ml/cifar",
                                 of_another + "/hints/ml/other", good.substr(0, good.rfind('/')) + "//hints/ml/x"}) {
    EXPECT_EQ(call({{"PUT", one, kHints}}).front().status, 404) << one;
  }
  EXPECT_TRUE(patches.empty());
  EXPECT_EQ(lists, 0);
}

TEST_F(SupervisorTest, WhatHasNoMeaningIsRefused) {
  EXPECT_EQ(call({{"PUT", path() + "/hints/ml/cifar", "no json"}}).front().status, 400);
  EXPECT_EQ(call({{"PUT", path() + "/hints/ml/cifar", R"({"initBatchSize": "x"})"}}).front().status, 400);
  EXPECT_EQ(call({{"GET", path() + "/discover/ml/cifar/x"}}).front().status, 400);
  EXPECT_EQ(call({{"GET", path() + "/healthz"}}).front().status, 200);
  EXPECT_EQ(call({{"GET", path(Kind::kElasticJob) + "/discover/ml/cifar/0"}}).front().status, 404);
  EXPECT_TRUE(patches.empty());
}

TEST_F(SupervisorTest, AJobThatIsGoneTakesNoHints) {
  gone = true;
  EXPECT_EQ(call({{"PUT", path() + "/hints/ml/cifar", kHints}}).front().status, 404);
}

TEST_F(SupervisorTest, TellsTheAddressesOfAGroupByRank) {
  pods = {pod_of(1, 3, 2, "10.0.0.2"), pod_of(0, 3, 2, "10.0.0.1")};
  EXPECT_EQ(call({{"GET", path() + "/discover/ml/cifar/3"}}).front().body, R"(["10.0.0.1","10.0.0.2"])");
  EXPECT_EQ(call({{"GET", path() + "/discover/ml/cifar/4"}}).front().status, 408) << "of one that is not there yet";
  pods = {pod_of(1, 3, 2, ""), pod_of(0, 3, 2, "10.0.0.1")};
  EXPECT_EQ(call({{"GET", path() + "/discover/ml/cifar/3"}}).front().status, 408) << "one has no address yet";
  pods[0]["metadata"]["annotations"][kAnnotationSize] = "999999999";
  EXPECT_EQ(call({{"GET", path() + "/discover/ml/cifar/3"}}).front().status, 408) << "forged";
}

TEST_F(SupervisorTest, WhoeverAsksPodsAreListedOnceASecond) {
  const std::vector<ServerReply> replies = call({{"GET", path() + "/discover/ml/cifar/0", "", 0s, "10"},
                                                 {"GET", path() + "/discover/ml/cifar/0"},
                                                 {"GET", path() + "/discover/ml/cifar/0"}});
  EXPECT_EQ(replies.front().status, 408);
  EXPECT_GE(lists, 9);
  EXPECT_LE(lists, 12);
}

Task<void> fetch_twice(World& world, std::vector<std::string>& keys) {
  kubernetes::Client client(world, access_to(world));
  for (int i = 0; i < 2; ++i) {
    Task<std::string> fetching = fetch_supervisor_key(client, "home");
    keys.push_back(co_await std::move(fetching));
  }
}

TEST(SupervisorKey, IsMadeOnceAndFoundAgain) {
  rest::ScriptedWorld scripted;
  json secret;
  int refused = 0;
  scripted.network.answer = [&](const rest::SentRequest& sent) {
    if (sent.request.method == "GET") {
      // Another operator's comes between the look and the write.
      if (secret.is_null() && refused == 0) return rest::http_answer(404, R"({"reason":"NotFound"})");
      return rest::http_answer(200, secret.dump());
    }
    ++refused;
    secret = {{"data", {{"key", "b3RoZXI="}}}};
    return rest::http_answer(409, R"({"reason":"AlreadyExists"})");
  };
  std::vector<std::string> keys;
  scripted.run([&](World& world) { return fetch_twice(world, keys); });
  EXPECT_EQ(keys, (std::vector<std::string>{"b3RoZXI=", "b3RoZXI="}));
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace rubato::elasticjob

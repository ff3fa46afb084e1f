// Every collection in a request has a bound, and what is beyond it is refused before anything is done with it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "head/api.h"
#include "model/limits.h"
#include "provider/fake_provider.h"
#include "sim/simulation.h"

namespace rubato::head {
namespace {

using nlohmann::json;

class EmptyJournal final : public Journal {
 public:
  Task<uint64_t> append(std::vector<std::string> records) override {
    appended += records.size();
    co_return appended;
  }
  Task<std::vector<JournalRecord>> read(uint64_t, size_t) override { co_return std::vector<JournalRecord>(); }
  Task<std::optional<JournalSnapshot>> snapshot(uint64_t) override { co_return std::nullopt; }
  Task<void> write_snapshot(JournalSnapshot, uint64_t) override { co_return; }
  Task<void> check() override { co_return; }
  uint64_t appended = 0;
};

Task<int> idle(sim::SimProgram& self) {
  co_await Sleep(self.loop(), self.loop().now() + 1000s);
  co_return 0;
}

Task<void> ask(Api& api, ServerRequest request, std::string& answer) {
  try {
    const ServerReply reply = co_await api.handle(std::move(request));
    answer = std::to_string(reply.status);
  } catch (const Error& error) {
    answer = error.code == ErrorCode::kUsage ? "refused: " + error.message : error.message;
  }
}

class ApiBounds : public testing::Test {
 protected:
  ApiBounds()
      : program(sim.machine(1).start("head", [](sim::SimProgram& self) { return idle(self); })),
        provider(program.world().clock, machines),
        controller(program.world(), journal, provider, HeadSettings{}, metrics, Log()),
        api(program.world(), controller, metrics, "token", size_t{4} << 20) {}

  ServerRequest request(const char* method, const char* path, std::string body = "") {
    ServerRequest out;
    out.method = method;
    out.path = path;
    out.headers["authorization"] = "Bearer token";
    out.body = std::move(body);
    return out;
  }
  std::string refusal(const char* method, const char* path, const json& body) {
    std::string answer = "no answer";
    Scope scope(program.loop());
    scope.spawn(ask(api, request(method, path, body.dump()), answer));
    sim.simulator.run_for(1s);
    EXPECT_EQ(journal.appended, 0u) << "nothing of it is written";
    return answer;
  }
  static json job() { return {{"name", "train"}, {"program", "train.py"}}; }

  sim::Simulation sim{1, 1};
  sim::SimProgram& program;
  EmptyJournal journal;
  provider::FakeProvider::Machines machines;
  provider::FakeProvider provider;
  Metrics metrics;
  Controller controller;
  Api api;
};

TEST_F(ApiBounds, EachRouteTakesNoLongerBodyThanItNeeds) {
  const auto most = [&](const char* method, const char* path) {
    return api.admit_headers(request(method, path)).body_bytes_max;
  };
  EXPECT_EQ(most("POST", "/api/v1/jobs"), kJobBodyMax);
  EXPECT_EQ(most("POST", "/api/v1/requests"), kResourcesBodyMax);
  EXPECT_EQ(most("PUT", "/api/v1/cluster"), kClusterFileBodyMax);
  EXPECT_EQ(most("POST", "/api/v1/plan"), kClusterFileBodyMax);
  EXPECT_EQ(most("PUT", "/api/v1/packages/abc"), kPackagePartBodyMax);
  EXPECT_EQ(most("POST", "/api/v1/jobs/j-1/stop"), kPlainBodyMax);
  EXPECT_EQ(most("GET", "/api/v1/status"), kPlainBodyMax);
  EXPECT_EQ(most("POST", "/nowhere"), kPlainBodyMax);
  EXPECT_TRUE(api.admit_headers(request("GET", "/api/v1/status")).authenticated);
  ServerRequest stranger = request("GET", "/api/v1/status");
  stranger.headers.clear();
  EXPECT_FALSE(api.admit_headers(stranger).authenticated);
}

TEST_F(ApiBounds, ListsObjectsAndDepthOfAnyBody) {
  json names = json::object();
  for (size_t i = 0; i <= kRequestBounds.entries_max; ++i) names[fmt::format("name-{}", i)] = 1;
  json deep = 1;
  for (size_t i = 0; i <= kRequestBounds.depth_max; ++i) deep = json::array({std::move(deep)});
  json many = json::array();
  for (size_t i = 0; i * 1000 <= kRequestBounds.values_max; ++i) many.push_back(std::vector<int>(1000));
  for (const char* path : {"/api/v1/jobs", "/api/v1/requests", "/api/v1/plan"}) {
    for (const json& body : {json{{"x", names}}, json{{"x", deep}}, json{{"x", many}}})
      EXPECT_TRUE(refusal("POST", path, body).starts_with("refused: the request's body")) << path;
  }
  EXPECT_TRUE(refusal("PUT", "/api/v1/cluster", {{"text", names}}).starts_with("refused: the request's body"));
}

TEST_F(ApiBounds, WhatAJobMayAskFor) {
  const auto refused = [&](const char* field, json value) {
    json body = job();
    body[field] = std::move(value);
    const std::string answer = refusal("POST", "/api/v1/jobs", body);
    EXPECT_TRUE(answer.starts_with("refused: ")) << field << ": " << answer;
  };
  refused("args", std::vector<std::string>(kJobArgumentsMax + 1, "a"));
  refused("args", std::vector<std::string>{std::string(kJobArgumentBytesMax + 1, 'a')});
  refused("args", std::vector<std::string>(20, std::string(100'000, 'a')));
  json variables = json::object();
  for (size_t i = 0; i <= kJobArgumentsMax; ++i) variables[fmt::format("V{}", i)] = "1";
  refused("env", variables);
  refused("env", json{{"V", std::string(kJobArgumentBytesMax + 1, 'a')}});
  json resources = json::object();
  for (size_t i = 0; i <= kResourceNamesMax; ++i) resources[fmt::format("r{}", i)] = 1;
  refused("per_worker", resources);
  refused("name", std::string(100'000, 'a'));
  refused("workers_min", 1'000'000'000);
  refused("request_id", std::string(kRequestIdBytesMax + 1, 'a'));
  refused("nobody_knows_this", 1);
}

TEST_F(ApiBounds, WhatARequestForResourcesMayAskFor) {
  const auto refused = [&](const json& bundles) {
    const std::string answer = refusal("POST", "/api/v1/requests", {{"bundles", bundles}});
    EXPECT_TRUE(answer.starts_with("refused: ")) << answer;
  };
  const json one = {{"resources", {{"CPU", 1}}}};
  refused(std::vector<json>(kBundlesMax + 1, one));
  json resources = json::object();
  for (size_t i = 0; i <= kResourceNamesMax; ++i) resources[fmt::format("r{}", i)] = 1;
  refused(json::array({{{"resources", resources}}}));
  refused(json::array({{{"resources", {{"CPU", 1}}}, {"count", kBundleCountMax + 1}}}));
  refused(json::array({{{"resources", {{"CPU", 1}}}, {"count", 0}}}));
  refused(json::array({{{"resources", json::object()}}}));
}

TEST_F(ApiBounds, AClusterFileOfTooManyTypes) {
  std::string text = "cluster_name: many\nprovider: {type: local}\nnode_types:\n";
  for (size_t i = 0; i <= kNodeTypesMax; ++i) text += fmt::format("  t{}: {{resources: {{CPU: 1}}}}\n", i);
  for (const char* path : {"/api/v1/cluster", "/api/v1/plan"}) {
    const std::string answer =
        refusal(path == std::string_view("/api/v1/plan") ? "POST" : "PUT", path, {{"text", text}});
    EXPECT_TRUE(answer.starts_with("refused: ")) << answer;
  }
}

}  // namespace
}  // namespace rubato::head

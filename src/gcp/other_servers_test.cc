// Servers that are not Google's: they do at once what they are asked for, leave out what nobody needs, write numbers as
// numbers, know no ranges, and lack whole parts of the API.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gcp/compute.h"
#include "gcp/fault.h"
#include "gcp/gcs_transfer.h"
#include "rest/crc32c.h"
#include "rest/rest_testing.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;
using rest::http_answer;
using rest::SentRequest;

class OtherServers : public ::testing::Test {
 protected:
  OtherServers() { settings.env = {{"HOME", "/home/ann"}, {"RUBATO_GCP_ENDPOINT", "http://cloud.lab:4443/fake/"}}; }

  template <class Result>
  Result run(std::function<Task<Result>(Client&)> body) {
    std::optional<Result> out;
    scripted.run([&](World& world) { return run_in<Result>(world, settings, body, out); });
    return std::move(*out);
  }
  template <class Result>
  static Task<void> run_in(World& world, Settings with, std::function<Task<Result>(Client&)> body,
                           std::optional<Result>& out) {
    const std::unique_ptr<Client> client = open_client(world, "lab", std::move(with));
    Task<Result> task = body(*client);
    out.emplace(co_await std::move(task));
  }

  // By the rest of each path; what is not there is not known. The metadata server is not there.
  void answer(const std::map<std::string, json>& known) {
    scripted.network.answer = [known](const SentRequest& sent) {
      if (sent.endpoint.host != "cloud.lab") throw Error(ErrorCode::kUnavailable, "no route", sent.endpoint.host);
      EXPECT_TRUE(sent.request.target.starts_with("/fake/")) << sent.request.target;
      EXPECT_FALSE(sent.request.headers.contains("authorization"));
      const std::string target = sent.request.target.substr(0, sent.request.target.find('?'));
      for (const auto& [path, document] : known) {
        if (target.ends_with(path)) return http_answer(200, document.is_null() ? "" : document.dump());
      }
      return http_answer(404, "404 page not found\n");
    };
  }

  Settings settings;
  rest::ScriptedWorld scripted;
};

TEST_F(OtherServers, DoAtOnceWhatTheyAreAskedFor) {
  const json machine = {{"name", "ray-lab-1"}, {"id", 7}, {"status", "RUNNING"}, {"kind", "compute#instance"}};
  for (const json& told : {json(), json::object(), machine, json{{"status", "DONE"}, {"targetId", 7}}}) {
    answer({{"/zones/z-a/instances", told}, {"/instances/ray-lab-1", told}});
    const Operation made = run<Operation>([](Client& client) {
      const json body = {{"name", "ray-lab-1"}};
      return insert_instance(client, "z-a", body, "id");
    });
    EXPECT_TRUE(made.is_done) << told;
    EXPECT_EQ(made.scope, "zones/z-a");
    EXPECT_FALSE(made.error);
    EXPECT_TRUE(run<Operation>([](Client& client) { return delete_instance(client, "z-a", "ray-lab-1"); }).is_done);
  }
}

// Of operations: what passes by itself is neither a quota nor the file's fault.
TEST(OperationErrors, AreToldApart) {
  const auto code_of = [](std::vector<std::string> codes) {
    json errors = json::array();
    for (const std::string& one : codes) errors.push_back({{"code", one}, {"message", "no"}});
    return operation_error({"compute instances.insert", "lab", ""}, {{"error", {{"errors", errors}}}}).code;
  };
  EXPECT_EQ(code_of({"RESOURCE_OPERATION_RATE_EXCEEDED"}), ErrorCode::kUnavailable);
  EXPECT_EQ(code_of({"RATE_LIMIT_EXCEEDED"}), ErrorCode::kUnavailable);
  EXPECT_EQ(code_of({"IP_SPACE_EXHAUSTED"}), ErrorCode::kNoCapacity);
  EXPECT_EQ(code_of({"QUOTA_EXCEEDED"}), ErrorCode::kQuota);
  EXPECT_EQ(code_of({"QUOTA_EXCEEDED", "ZONE_RESOURCE_POOL_EXHAUSTED"}), ErrorCode::kNoCapacity);
  EXPECT_EQ(code_of({"INVALID_USAGE"}), ErrorCode::kFailed);
}

TEST_F(OtherServers, ForgetOperationsThatAreDone) {
  answer({{"/zones/z-a/instances/m/stop", {{"name", "operation-1"}, {"status", "RUNNING"}}}});
  const Operation done = run<Operation>([](Client& client) -> Task<Operation> {
    Operation begun = co_await stop_instance(client, "z-a", "m");
    EXPECT_FALSE(begun.is_done);
    co_return co_await wait_operation(client, std::move(begun), client.world().clock.now() + 60s);
  });
  EXPECT_TRUE(done.is_done);
  EXPECT_TRUE(scripted.network.sent.back().request.target.starts_with("/fake/compute/v1/projects/lab/zones/z-a/"));
}

TEST_F(OtherServers, ListMachinesByTheirZones) {
  answer({{"/projects/lab/zones", {{"items", {{{"name", "west-a"}}, {{"name", "east-a"}}}}}},
          {"/zones/west-a/instances", {{"items", {{{"name", "m"}, {"id", 12}, {"status", "RUNNING"}}}}}}});
  const auto found =
      run<std::vector<Instance>>([](Client& client) { return list_instances(client, Labels(), "west"); });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, "12");
  EXPECT_EQ(found[0].zone, "west-a");
}

// What the API leaves out, others write as null, or as what it would be: none of it is a reason to end.
TEST_F(OtherServers, WriteNullsAndOtherTypes) {
  const json machine = {{"name", "m"}, {"id", 12}, {"zone", nullptr}, {"status", "RUNNING"}, {"labels", nullptr},
                        {"scheduling", {{"preemptible", "true"}}}, {"metadata", nullptr}, {"error", nullptr},
                        {"networkInterfaces", {{{"networkIP", "10.0.0.2"}, {"accessConfigs", nullptr}}}}};
  json bare = machine;
  bare["scheduling"] = bare["networkInterfaces"] = nullptr;
  const json items = {{"zones/west-a", {{"instances", {machine, bare, nullptr}}, {"warning", nullptr}}},
                      {"zones/west-b", nullptr}};
  answer({{"/aggregated/instances", {{"items", items}, {"nextPageToken", nullptr}, {"unreachables", nullptr}}},
          {"/regions/west", {{"quotas", {{{"metric", "CPUS"}, {"limit", "24"}, {"usage", nullptr}}, nullptr}}}},
          {"/zones", {{"items", nullptr}}},
          {"/instances/m/stop", {{"name", "operation-1"}, {"status", "DONE"}, {"error", nullptr}}}});
  const auto found =
      run<std::vector<Instance>>([](Client& client) { return list_instances(client, Labels(), "west"); });
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(found[0].spot);
  EXPECT_EQ(found[0].zone, "west-a");
  EXPECT_EQ(found[0].private_address, "10.0.0.2");
  EXPECT_EQ(found[1].public_address, "");
  const auto quotas = run<std::vector<Quota>>([](Client& client) { return list_quotas(client, "west"); });
  EXPECT_EQ(quotas.front().limit, 24);
  EXPECT_TRUE(run<std::vector<std::string>>([](Client& client) { return list_zones(client, "west"); }).empty());
  const auto stopped = run<Operation>([](Client& client) { return stop_instance(client, "z", "m"); });
  EXPECT_FALSE(stopped.error) << "an error of null is none";
}

TEST_F(OtherServers, AnAnswerThatIsNoObjectIsNoBugOfOurs) {
  for (const json& told : {json::array({1}), json("text")}) {
    answer({{"/zones", told}});
    try {
      run<std::vector<std::string>>([](Client& client) { return list_zones(client, "west"); });
      ADD_FAILURE() << told;
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::kUnavailable);
    }
  }
}

// A token is for the server that was named; a redirect is neither followed nor taken for an answer.
TEST_F(OtherServers, ThatSendUsElsewhereAreToldOf) {
  scripted.network.answer = [](const SentRequest& sent) {
    if (sent.endpoint.host != "cloud.lab") throw Error(ErrorCode::kUnavailable, "no route", sent.endpoint.host);
    return http_answer(302, "<html>", {{"location", "https://cloud.lab/login"}});
  };
  try {
    run<std::vector<std::string>>([](Client& client) { return list_zones(client, "west"); });
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(error.message.find("https://cloud.lab/login"), std::string::npos) << error.message;
  }
}

class OtherStores : public OtherServers {
 protected:
  OtherStores() {
    scripted.write_file("/data/file", bytes);
    rest::Crc32c crc;
    crc.update(bytes);
    checksum = crc.base64();
  }
  TransferReport put() {
    TransferRules rules;
    rules.state = "/data/state";
    return run<TransferReport>([&](Client& client) {
      return upload(client, "/data/file", GcsAddress{"data", "key"}, rules, Progress());
    });
  }
  const std::string bytes = "hello world";
  std::string checksum;
};

TEST_F(OtherStores, ListWhatNobodyAskedForOrForEver) {
  const json items = {
      {{"name", "a/1"}, {"size", 7}}, {{"name", "b/1"}, {"size", "7"}}, {{"name", "a/2"}, {"size", "9"}}};
  const auto list = [this](size_t most) {
    return run<std::vector<GcsObject>>([most](Client& client) { return list_objects(client, {"data", "a/"}, most); });
  };
  answer({{"/storage/v1/b/data/o", {{"items", items}}}});
  const std::vector<GcsObject> found = list(10);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].size, 7u);
  EXPECT_EQ(found[1].key, "a/2");
  EXPECT_EQ(list(1).size(), 1u);
  answer({{"/storage/v1/b/data/o", {{"items", nullptr}, {"nextPageToken", "again"}}}});
  EXPECT_THROW(list(10), Error) << "the same page for ever";
}

TEST_F(OtherStores, NeitherGenerationNorChecksumNorRange) {
  scripted.network.answer = [&](const SentRequest& sent) {
    EXPECT_EQ(sent.request.target.find("generation="), std::string::npos);
    if (sent.request.target.find("alt=media") != std::string::npos) return http_answer(200, bytes);
    return http_answer(200, R"({"name": "key", "size": 11})");
  };
  settings.env["STORAGE_EMULATOR_HOST"] = "cloud.lab:4443";
  const auto report = run<TransferReport>([](Client& client) {
    TransferRules rules;
    rules.part_size = 4;
    return download(client, GcsAddress{"data", "key"}, "/data/back", rules, Progress());
  });
  EXPECT_EQ(report.bytes, 11u);
  EXPECT_EQ(report.verified, "length");
  EXPECT_EQ(scripted.simulation.machine(1).disk().files().at("/data/back").bytes, bytes);
}

// Some take the question how far an upload is for its end, and keep the half of it.
TEST_F(OtherStores, AnUploadThatEndedTooSoonIsBegunAnew) {
  int begun = 0;
  bool broken = true;
  scripted.network.answer = [&](const SentRequest& sent) {
    if (sent.endpoint.host != "cloud.lab") throw Error(ErrorCode::kUnavailable, "no route", sent.endpoint.host);
    const auto given = sent.request.headers.find("content-range");
    const std::string range = given == sent.request.headers.end() ? "" : given->second;
    if (range.empty()) {
      ++begun;
      return http_answer(200, "", {{"location", "http://cloud.lab:4443/fake/upload/resumable/1"}});
    }
    EXPECT_EQ(sent.request.target, "/fake/upload/resumable/1");
    if (range.starts_with("bytes */")) return http_answer(200, R"({"name": "key", "size": "5"})");
    if (broken) return http_answer(403, "");
    return http_answer(200, json{{"name", "key"}, {"size", "11"}, {"crc32c", checksum}}.dump());
  };
  EXPECT_THROW(put(), Error);
  broken = false;
  EXPECT_EQ(put().resumed, 0u);
  EXPECT_EQ(begun, 2);
}

// Firebase's emulator ends an upload with its first piece.
TEST_F(OtherStores, AServerThatKnowsNoPiecesGetsTheFileAtOnce) {
  std::vector<std::string> pieces;
  scripted.network.answer = [&](const SentRequest& sent) {
    if (sent.endpoint.host != "cloud.lab") throw Error(ErrorCode::kUnavailable, "no route", sent.endpoint.host);
    if (!sent.request.headers.contains("content-range")) return http_answer(200, "", {{"location", "/fake/up/1"}});
    pieces.push_back(sent.request.body);
    rest::Crc32c crc;
    crc.update(sent.request.body);
    const std::string size = std::to_string(sent.request.body.size());
    return http_answer(200, json{{"name", "key"}, {"size", size}, {"crc32c", crc.base64()}}.dump());
  };
  TransferRules rules;
  rules.part_size = 4;
  const auto report = run<TransferReport>([&](Client& client) {
    return upload(client, "/data/file", GcsAddress{"data", "key"}, rules, Progress());
  });
  EXPECT_EQ(report.bytes, bytes.size());
  EXPECT_EQ(pieces, (std::vector<std::string>{"hell", bytes}));
}

TEST_F(OtherStores, WhatWasNotKeptAsSentIsNoSuccess) {
  scripted.network.answer = [&](const SentRequest& sent) {
    if (sent.endpoint.host != "cloud.lab") throw Error(ErrorCode::kUnavailable, "no route", sent.endpoint.host);
    if (!sent.request.headers.contains("content-range")) return http_answer(200, "", {{"location", "/fake/up/1"}});
    return http_answer(200, R"({"name": "key", "size": "11", "crc32c": "AAAAAA=="})");
  };
  EXPECT_THROW(put(), Error);
}

TEST_F(OtherServers, WhoAsksForATokenIsToldOfTheMissingOnes) {
  scripted.network.answer = [](const SentRequest& sent) {
    if (sent.endpoint.host != "cloud.lab") throw Error(ErrorCode::kUnavailable, "no route", sent.endpoint.host);
    return http_answer(401, R"({"error": {"code": 401, "message": "who are you?"}})");
  };
  try {
    run<std::vector<std::string>>([](Client& client) { return list_zones(client, "west"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kAuth);
    EXPECT_NE(error.hint.find("gcloud auth application-default login"), std::string::npos) << error.hint;
  }
}

}  // namespace
}  // namespace rubato::gcp

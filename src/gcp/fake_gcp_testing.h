// For tests: tests/gcp/fake_gcp.py as a process of its own, and a World of this machine to talk to it.
#pragma once

#include "gcp/client.h"
#include "rest/fake_cloud_testing.h"

namespace rubato::gcp {

class FakeGcpFixture : public rest::FakeCloudFixture {
 protected:
  void SetUp() override {
    rest::FakeCloudFixture::SetUp();
    start(nlohmann::json::object());
  }

  void start(const nlohmann::json& with) {
    const nlohmann::json document = start_server("tests/gcp/fake_gcp.py", with);
    project = document["project"];
    credentials = document["credentials"];
    settings.env = {{"HOME", folder},
                    {"RUBATO_GCP_ENDPOINT", url},
                    {"RUBATO_CHECKIP", url + "/_fake/checkip"},
                    {"GCE_METADATA_HOST", document["metadata"]},
                    {"GOOGLE_APPLICATION_CREDENTIALS", credentials["service_account"]}};
  }

  // Runs a coroutine with a client that was opened as a command opens it.
  template <class Result>
  Result run(std::function<Task<Result>(Client&)> body) {
    std::optional<Result> out;
    runtime.run(run_in<Result>(*this, body, out));
    return std::move(*out);
  }
  template <class Result>
  static Task<int> run_in(FakeGcpFixture& test, std::function<Task<Result>(Client&)> body, std::optional<Result>& out) {
    const std::unique_ptr<Client> client = open_client(test.world, test.project, test.settings);
    Task<Result> task = body(*client);
    out.emplace(co_await std::move(task));
    co_return 0;
  }

  int calls(const std::string& operation) {
    int count = 0;
    for (const nlohmann::json& one : control("GET", "/_fake/requests")) count += one["operation"] == operation ? 1 : 0;
    return count;
  }

  // What was asked to change something: how often Google is asked how far it is depends on the machine's load.
  void compare_with_golden(const std::string& name) {
    nlohmann::json changes = nlohmann::json::array();
    for (nlohmann::json one : control("GET", "/_fake/requests")) {
      const std::string operation = one["operation"];
      if (operation != "instances.insert") one["parameters"].erase("requestId");  // by chance
      // Policies are written until Google knows a new account: how often is by chance, too.
      const bool is_of_iam = operation.find('.') == std::string::npos;
      const bool asks = is_of_iam
                            ? !operation.starts_with("create")
                            : operation.ends_with(".get") || operation.ends_with(".wait") || operation.ends_with("ist");
      // One that was sent again, since the answer was late, is the same.
      if (!asks && (changes.empty() || changes.back() != one)) changes.push_back(one);
    }
    rest::FakeCloudFixture::compare_with_golden("tests/gcp/golden/" + name + ".jsonl", lines_of(changes));
  }

  std::string project;
  nlohmann::json credentials;  // paths of files, by their type
  Settings settings;
};

}  // namespace rubato::gcp

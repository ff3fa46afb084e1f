// For tests: tests/aws/fake_aws.py as a process of its own, and a World of this machine to talk to it.
#pragma once

#include <filesystem>

#include "aws/credentials.h"
#include "rest/fake_cloud_testing.h"

namespace rubato::aws {

class FakeAwsFixture : public rest::FakeCloudFixture {
 protected:
  void SetUp() override {
    rest::FakeCloudFixture::SetUp();
    start(nlohmann::json::object());
  }

  void start(const nlohmann::json& with) {
    const nlohmann::json document = start_server("tests/aws/fake_aws.py", with);
    settings.env = {{"HOME", folder},
                    {"AWS_REGION", "eu-west-1"},
                    {"AWS_ENDPOINT_URL", url},
                    {"AWS_EC2_METADATA_SERVICE_ENDPOINT", document["imds"]},
                    {"AWS_ACCESS_KEY_ID", "AKIAFAKE"},
                    {"AWS_SECRET_ACCESS_KEY", "fake-secret"}};
  }

  // Runs a coroutine with a client that was opened as a command opens it.
  template <class Result>
  Result run(std::function<Task<Result>(Client&)> body) {
    std::optional<Result> out;
    runtime.run(run_in<Result>(*this, body, out));
    return std::move(*out);
  }
  void act(std::function<Task<void>(Client&)> body) { runtime.run(act_in(*this, std::move(body))); }

  template <class Result>
  static Task<int> run_in(FakeAwsFixture& test, std::function<Task<Result>(Client&)> body, std::optional<Result>& out) {
    const std::unique_ptr<Client> client = co_await open_client(test.world, test.settings);
    Task<Result> task = body(*client);
    out.emplace(co_await std::move(task));
    co_return 0;
  }
  static Task<int> act_in(FakeAwsFixture& test, std::function<Task<void>(Client&)> body) {
    const std::unique_ptr<Client> client = co_await open_client(test.world, test.settings);
    Task<void> task = body(*client);
    co_await std::move(task);
    co_return 0;
  }

  void compare_with_golden(const std::string& name) {
    const std::string text = lines_of(control("GET", "/_fake/requests"));
    rest::FakeCloudFixture::compare_with_golden("tests/aws/golden/" + name + ".jsonl", text);
  }

  Settings settings;
};

}  // namespace rubato::aws

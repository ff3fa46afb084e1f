// For tests: tests/aws/fake_aws.py as a process of its own, and a World of this machine to talk to it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "aws/credentials.h"
#include "os/files.h"
#include "os/machine.h"
#include "os/network.h"
#include "os/processes.h"

namespace rubato::aws {

class FakeAwsFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    folder = files.make_temporary_folder("rubato-aws-test-");
    start(nlohmann::json::object());
  }
  void TearDown() override {
    server.reset();
    files.remove_tree(folder);
  }

  void start(const nlohmann::json& with) {
    SpawnSpec spec;
    spec.argv = {"/usr/bin/python3", RUBATO_SOURCE "/tests/aws/fake_aws.py", "--set", with.dump()};
    for (const auto& [name, value] : os::read_environment()) spec.env.push_back(name + "=" + value);
    spec.out.kind = OutputTarget::Kind::kPipe;
    server = processes.spawn(spec);
    std::string line;
    runtime.run(read_line(*server, line));
    const nlohmann::json document = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(document.is_object()) << "is python3-botocore installed? " << line;
    url = document["url"];
    settings.env = {{"HOME", folder},
                    {"AWS_REGION", "eu-west-1"},
                    {"AWS_ENDPOINT_URL", url},
                    {"AWS_EC2_METADATA_SERVICE_ENDPOINT", document["imds"]},
                    {"AWS_ACCESS_KEY_ID", "AKIAFAKE"},
                    {"AWS_SECRET_ACCESS_KEY", "fake-secret"}};
  }

  static Task<int> read_line(Process& process, std::string& line) {
    while (line.find('\n') == std::string::npos) {
      const auto chunk = co_await process.output().pop();
      if (!chunk) break;
      line += chunk->bytes;
    }
    co_return 0;
  }

  nlohmann::json control(const std::string& method, const std::string& target,
                         const nlohmann::json& body = nlohmann::json()) {
    std::string text;
    runtime.run(control_in(method, target, body.is_null() ? "" : body.dump(), text));
    return nlohmann::json::parse(text);
  }
  Task<int> control_in(std::string method, std::string target, std::string body, std::string& text) {
    HttpRequest request;
    request.method = method;
    request.target = target;
    request.body = body;
    const rest::Url where = rest::parse_url(url, "fake");
    const HttpResponse response =
        co_await network.call(where.endpoint, TlsFiles(), std::move(request), runtime.now() + 30s);
    EXPECT_EQ(response.status, 200) << response.body;
    text = response.body;
    co_return 0;
  }
  void set(const nlohmann::json& changes) { control("POST", "/_fake/set", changes); }

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

  ErrorCode code_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      last_error = error.message;
      return error.code;
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::kFailed;
  }

  // Compares what was asked with a file; RUBATO_GOLDEN=write makes it anew.
  void compare_with_golden(const std::string& name) {
    std::string text;
    for (const nlohmann::json& one : control("GET", "/_fake/requests")) text += one.dump() + "\n";
    const std::string path = std::string(RUBATO_SOURCE "/tests/aws/golden/") + name + ".jsonl";
    const auto env = os::read_environment();
    if (const auto mode = env.find("RUBATO_GOLDEN"); mode != env.end() && mode->second == "write") {
      files.make_folders(std::filesystem::path(path).parent_path().string());
      files.write_atomically(path, text);
    }
    EXPECT_EQ(text, files.read(path).value_or("")) << "RUBATO_GOLDEN=write renews " << path;
  }

  os::Runtime runtime;
  os::RealProcesses processes{runtime};
  os::RealNetwork network{runtime};
  os::RealFiles files;
  os::RealConsole console;
  Random random{1};
  MachineFacts machine = os::read_machine_facts();
  World world{runtime, network, processes, files, console, random, machine};
  std::unique_ptr<Process> server;
  std::string folder, url, last_error;
  Settings settings;
};

}  // namespace rubato::aws

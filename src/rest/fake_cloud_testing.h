// For tests: a stand-in for a cloud as a process of its own (tests/aws, tests/gcp), and a World of this machine to talk
// to it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/source_testing.h"
#include "os/files.h"
#include "os/machine.h"
#include "os/network.h"
#include "os/processes.h"
#include "rest/url.h"
#include "world/world.h"

namespace rubato::rest {

class FakeCloudFixture : public ::testing::Test {
 protected:
  void SetUp() override { folder = files.make_temporary_folder("rubato-cloud-test-"); }
  void TearDown() override {
    server.reset();
    files.remove_tree(folder);
  }

  // What it prints when it listens.
  nlohmann::json start_server(const std::string& script, const nlohmann::json& with) {
    SpawnSpec spec;
    spec.argv = {"/usr/bin/python3", source_path(script), "--set", with.dump()};
    for (const auto& [name, value] : os::read_environment()) spec.env.push_back(name + "=" + value);
    spec.out.kind = OutputTarget::Kind::kPipe;
    server = processes.spawn(spec);
    std::string line;
    runtime.run(read_line(*server, line));
    const nlohmann::json document = nlohmann::json::parse(line, nullptr, false);
    EXPECT_TRUE(document.is_object()) << script << " does not start (is python3-botocore installed?): " << line;
    url = document["url"];
    return document;
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

  static std::string lines_of(const nlohmann::json& list) {
    std::string text;
    for (const nlohmann::json& one : list) text += one.dump() + "\n";
    return text;
  }
  // Compares what was asked with a file of this repository; RUBATO_GOLDEN=write makes it anew.
  void compare_with_golden(const std::string& file, const std::string& text) {
    const std::string path = source_path(file);
    const auto env = os::read_environment();
    if (const auto mode = env.find("RUBATO_GOLDEN"); mode != env.end() && mode->second == "write") {
      files.make_folders(std::filesystem::path(path).parent_path().string());
      files.write_atomically(path, text);
    }
    EXPECT_EQ(text, files.read(path).value_or("")) << "RUBATO_GOLDEN=write renews " << path;
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
};

}  // namespace rubato::rest

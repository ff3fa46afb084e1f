// For tests that type commands: those of this folder, and of the folders that the commands live in.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "client/api.h"
#include "core/error.h"
#include "core/timestamp.h"
#include "terminal/testing.h"

namespace rubato::cli {

// A head that was told what to answer. Outlives the Api that a command opens to it.
struct CannedHead {
  using Answer = std::function<nlohmann::json(const ApiRequest&)>;  // may throw an Error
  using Stream = std::function<StreamEnd(const std::function<void(std::string_view)>& sink)>;

  std::map<std::string, Answer> answers;              // by "GET status"
  std::map<std::string, std::deque<Stream>> streams;  // by target, one for each call
  std::vector<ApiRequest> asked;                      // what came, streams as GET
  std::function<bool()> on_pause;                     // false: interrupted
  int pauses = 0;

  void reply(const std::string& what, nlohmann::json document) {
    answers[what] = [document = std::move(document)](const ApiRequest&) { return document; };
  }
  size_t count(const std::string& what) const {
    size_t out = 0;
    for (const ApiRequest& one : asked) out += one.method + " " + one.target == what ? 1 : 0;
    return out;
  }
};

class CannedApi final : public Api {
 public:
  explicit CannedApi(CannedHead& head) : head_(head) {}

  nlohmann::json call(const ApiRequest& request) override {
    head_.asked.push_back(request);
    const auto found = head_.answers.find(request.method + " " + request.target);
    if (found == head_.answers.end()) {
      throw Error(ErrorCode::kNotFound, "not canned: " + request.method + " " + request.target);
    }
    return found->second(request);
  }

  StreamEnd stream(const std::string& target, const std::function<void(std::string_view)>& sink) override {
    ApiRequest request;
    request.target = target;
    head_.asked.push_back(request);
    auto& queue = head_.streams[target];
    if (queue.empty()) throw Error(ErrorCode::kNotFound, "not canned: " + target);
    const CannedHead::Stream next = queue.front();
    queue.pop_front();
    return next(sink);
  }

  void hold_interrupts() override {}
  bool pause(Duration) override {
    ++head_.pauses;
    CHECK(head_.pauses < 10'000);
    return head_.on_pause ? head_.on_pause() : true;
  }

 private:
  CannedHead& head_;
};

// What was typed and what came of it.
struct Typed {
  int code = 0;
  std::string out, err;
};

// Types a command against the head, in a home with one open cluster called "local".
inline Typed type_at(CannedHead& head, const std::vector<std::string>& args,
                     const std::function<void(Shell&)>& change = {}) {
  const std::string home = scratch("rubato_commands_test");
  std::filesystem::create_directories(home + "/rubato/clusters/local/head");
  std::ofstream(home + "/rubato/clusters/local/head/head.json") << "{}";
  Typed typed;
  Shell shell{.env = {{"XDG_STATE_HOME", home}, {"USER", "me"}}};
  shell.out = [&](std::string_view text) { typed.out += text; };
  shell.err = [&](std::string_view text) { typed.err += text; };
  shell.now = [] { return *parse_time("2026-11-15T04:00:00Z"); };
  shell.random_token = [] { return std::string("token-1"); };
  shell.open_api = [&](const ClusterPlace& place) {
    EXPECT_EQ(place.name, "local");
    return std::make_unique<CannedApi>(head);
  };
  if (change) change(shell);
  typed.code = run_cli(args, shell);
  std::filesystem::remove_all(home);
  return typed;
}

}  // namespace rubato::cli

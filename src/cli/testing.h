// For the tests of this folder.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/api.h"
#include "cli/cli.h"
#include "core/error.h"
#include "core/timestamp.h"

namespace rubato::cli {

// A path of this process's own: tests run side by side.
inline std::string scratch(const std::string& name) {
  return ::testing::TempDir() + "/" + name + "." + std::to_string(::getpid());
}

// Runs the function, which must throw a usage Error, and returns that.
template <class Function>
Error usage_error(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUsage) << error.message;
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kFailed, "nothing was thrown");
}

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
Typed type_at(CannedHead& head, const std::vector<std::string>& args, const std::function<void(Shell&)>& change = {});

}  // namespace rubato::cli

#include "provider/external_program.h"

#include <poll.h>

#include <fstream>

#include "provider/external_testing.h"

namespace rubato::provider {
namespace {

using Json = nlohmann::json;

// Does what its requests say, by their method. argv[1]: a file that gets a line for each start.
constexpr const char* kScripted = R"py(#!/usr/bin/env python3
import json, os, select, sys, time
open(sys.argv[1], "a").write("start\n")
mode = sys.argv[2] if len(sys.argv) > 2 else ""
buffer = b""
def next_line():
    global buffer
    while b"\n" not in buffer:
        more = os.read(0, 65536)
        if not more: sys.exit(0)
        buffer += more
    line, buffer = buffer.split(b"\n", 1)
    return json.loads(line)
def say(reply): os.write(1, (json.dumps(reply) + "\n").encode())
def first_time(marker):
    if os.path.exists(marker): return False
    open(marker, "w").close()
    return True
held = []
while True:
    request = next_line()
    method, params, id = request["method"], request["params"], request["id"]
    if method == "hello":
        if mode == "mute": time.sleep(600)
        while mode == "waits" and not os.path.exists(sys.argv[1] + ".greet"): time.sleep(0.01)
        if mode == "rude": sys.exit("no greeting from me")
        if mode == "locked-out":
            say({"id": id, "error": {"code": "auth", "message": "no key"}}); continue
        say({"id": id, "result": {"protocol": 2 if mode == "newer" else 1, "name": "scripted",
                                  "parallel": 2 if mode == "two" else 1}})
        continue
    if method == "echo": say({"id": id, "result": params})
    if method == "die":
        if not params.get("marker") or first_time(params["marker"]):
            print("my last words", file=sys.stderr, flush=True)
            os._exit(3)
        say({"id": id, "result": "alive"})
    if method == "hang": time.sleep(600)
    if method == "late":
        time.sleep(0.2)
        say({"id": id, "result": "late"})
    if method == "garbage": os.write(1, b"Using default zone\n")
    if method == "half": os.write(1, b'{"id": '); os._exit(0)
    if method == "twice": os.write(1, (json.dumps({"id": id, "result": 1}) + "\n").encode() * 2)
    if method == "stranger": say({"id": id + 1000, "result": 1})
    if method == "fail": say({"id": id, "error": params})
    if method == "progress":
        say({"id": id, "progress": "half way"})
        say({"id": id, "result": 1})
    if method == "throttle":
        if first_time(params["marker"]):
            say({"id": id, "error": {"code": "throttled", "message": "slow", "retry_after_s": 0.01}})
        else:
            say({"id": id, "result": "through"})
    if method == "alone":  # what else waits on standard input while this one is not answered?
        waiting = bool(select.select([0], [], [], 0.05)[0] or buffer)
        say({"id": id, "result": not waiting})
    if method == "pair":  # answers only when there are two, the second one first
        held.append(id)
        if len(held) == 2:
            for each in reversed(held): say({"id": each, "result": each})
)py";

class ExternalProgramTest : public ExternalFixture {
 protected:
  ExternalProgramSpec spec(const std::string& mode = "") {
    ExternalProgramSpec spec;
    spec.name = "scripted";
    spec.argv = {write_program("scripted.py", kScripted), folder / "starts", mode};
    spec.env = os::own_environment();
    spec.hello = Json::object();
    return spec;
  }

  static Task<void> ask(ExternalProgram& program, std::string method, Json params, Duration timeout, std::string& out) {
    try {
      const Json result = co_await program.request(method, std::move(params), method + " it", timeout);
      out = result.dump();
    } catch (const Error& error) {
      out = fmt::format("{}: {}", to_string(error.code), error.message);
    }
  }
  static Task<int> ask_all(ExternalProgram& program, Loop& loop, std::vector<std::string> methods, Json params,
                           Duration timeout, std::vector<std::string>& out) {
    Scope scope(loop);
    out.resize(methods.size());
    for (size_t i = 0; i < methods.size(); ++i) scope.spawn(ask(program, methods[i], params, timeout, out[i]));
    co_await scope.join();
    co_return 0;
  }
  std::vector<std::string> at_once(ExternalProgram& program, std::vector<std::string> methods, Json params = {}) {
    std::vector<std::string> out;
    Duration timeout = os::kTestPatience;
    Task<int> task = ask_all(program, runtime, std::move(methods), std::move(params), timeout, out);
    runtime.run(std::move(task));
    return out;
  }
  std::string request(ExternalProgram& program, const std::string& method, Json params = Json::object(),
                      Duration timeout = os::kTestPatience) {
    std::vector<std::string> out;
    Task<int> task = ask_all(program, runtime, {method}, std::move(params), timeout, out);
    runtime.run(std::move(task));
    return out.front();
  }
  size_t starts() {
    const std::string text = os::read_text(folder / "starts");
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
};

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST_F(ExternalProgramTest, IsStartedOnceForManyRequests) {
  ExternalProgram program(world, spec(), log());
  EXPECT_EQ(starts(), 0u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(request(program, "echo", Json{{"i", i}}), fmt::format("{{\"i\":{}}}", i));
  EXPECT_EQ(starts(), 1u);
}

TEST_F(ExternalProgramTest, GetsOneRequestAtATimeUnlessItWantsMore) {
  ExternalProgram program(world, spec(), log());
  for (const std::string& alone : at_once(program, {"alone", "alone", "alone"})) EXPECT_EQ(alone, "true");
  ExternalProgram two(world, spec("two"), log());
  std::vector<std::string> answers = at_once(two, {"pair", "pair"});
  EXPECT_NE(answers[0], answers[1]);  // each got its own, whatever the order
  EXPECT_LT(answers[0], answers[1]);
}

TEST_F(ExternalProgramTest, GetsOneRequestAtATimeForANode) {
  ExternalProgram two(world, spec("two"), log());
  for (const std::string& alone : at_once(two, {"alone", "alone", "alone"}, Json{{"node", "n-1"}})) {
    EXPECT_EQ(alone, "true");
  }
}

TEST_F(ExternalProgramTest, IsAskedAgainAfterItDied) {
  ExternalProgram program(world, spec(), log());
  EXPECT_EQ(request(program, "die", Json{{"marker", folder / "died"}}), "\"alive\"");
  EXPECT_EQ(starts(), 2u);
}

TEST_F(ExternalProgramTest, IsGivenUpForARequestThatKillsItAgainAndAgain) {
  ExternalProgram program(world, spec(), log());
  const std::string sentence = request(program, "die");
  EXPECT_TRUE(has(sentence, "unavailable: die it: the provider's program ended: exit code 3")) << sentence;
  EXPECT_TRUE(has(sentence, "my last words")) << sentence;
  EXPECT_EQ(starts(), 3u);
  EXPECT_EQ(request(program, "echo"), "{}");  // others are served again
}

TEST_F(ExternalProgramTest, IsStoppedWhenItDoesNotAnswer) {
  ExternalProgram program(world, spec(), log());
  EXPECT_EQ(request(program, "echo"), "{}");
  const std::string sentence = request(program, "hang", {}, 200ms);
  EXPECT_EQ(sentence, "unavailable: the provider's program did not answer within 200ms: hang it");
  EXPECT_EQ(request(program, "echo"), "{}");
  EXPECT_EQ(starts(), 2u);
}

TEST_F(ExternalProgramTest, MayNotWriteWordsToStandardOutput) {
  ExternalProgram program(world, spec(), log());
  const std::string sentence = request(program, "garbage");
  EXPECT_TRUE(has(sentence, "the provider's program wrote a line that is not JSON: Using default zone")) << sentence;
  EXPECT_EQ(request(program, "echo"), "{}");
}

TEST_F(ExternalProgramTest, MayNotAnswerWhatNobodyAskedOrTwice) {
  ExternalProgram program(world, spec(), log());
  EXPECT_TRUE(has(request(program, "stranger"), "answered a request that nobody made"));
  EXPECT_EQ(request(program, "twice"), "1");
  EXPECT_EQ(request(program, "echo"), "{}");
}

TEST_F(ExternalProgramTest, IsDeadWhenItEndsInTheMiddleOfAReply) {
  ExternalProgram program(world, spec(), log());
  const std::string sentence = request(program, "half");
  EXPECT_TRUE(has(sentence, "the provider's program ended: exit code 0")) << sentence;
}

TEST_F(ExternalProgramTest, MayBeThrottled) {
  ExternalProgram program(world, spec(), log());
  EXPECT_EQ(request(program, "throttle", Json{{"marker", folder / "throttled"}}), "\"through\"");
}

TEST_F(ExternalProgramTest, HasItsErrorsTold) {
  ExternalProgram program(world, spec(), log());
  EXPECT_EQ(request(program, "fail", Json{{"code", "no-capacity"}, {"message", "none left"}}),
            "conflict: fail it: no-capacity: none left");
  EXPECT_EQ(request(program, "fail", Json{{"code", "auth"}, {"message", "who?"}}), "usage: fail it: auth: who?");
  EXPECT_EQ(starts(), 1u);
}

TEST_F(ExternalProgramTest, HasItsWordsLogged) {
  ExternalProgram program(world, spec(), log());
  request(program, "die", Json{{"marker", folder / "died"}});
  EXPECT_TRUE(has(logged, "provider's program says provider=scripted words=\"my last words\"")) << logged;
}

TEST_F(ExternalProgramTest, ThatIsNotThereIsSaidAtOnce) {
  ExternalProgramSpec missing = spec();
  missing.argv = {folder / "nothing.py"};
  ExternalProgram program(world, std::move(missing), log());
  const std::string sentence = request(program, "echo");
  EXPECT_TRUE(has(sentence, "usage: echo it: the provider's program cannot be started: cannot run")) << sentence;
  EXPECT_TRUE(has(sentence, "No such file")) << sentence;
}

TEST_F(ExternalProgramTest, MustGreet) {
  ExternalProgram locked_out(world, spec("locked-out"), log());
  EXPECT_EQ(request(locked_out, "echo"), "usage: echo it: hello: auth: no key");
  ExternalProgram newer(world, spec("newer"), log());
  EXPECT_TRUE(has(request(newer, "echo"), "speaks version 2 of the protocol; this rubato speaks 1"));
  ExternalProgram rude(world, spec("rude"), log());
  EXPECT_TRUE(has(request(rude, "echo"), "no greeting from me"));
  ExternalProgramSpec slow = spec("mute");
  slow.hello_timeout = 100ms;
  ExternalProgram mute(world, std::move(slow), log());
  EXPECT_TRUE(has(request(mute, "echo"), "did not answer within 100ms: hello"));
}

Task<int> give_up_and_go_on(ExternalProgram& program, Loop& loop, std::string& progress, Json& after) {
  {
    Task<Json> late = program.request("late", Json::object(), "late", 60s);
    const Instant soon = loop.now() + 20ms;
    co_await with_deadline(loop, soon, std::move(late));  // gives it up: its reply answers nobody
  }
  ExternalProgram::OnProgress on_progress = [&progress](std::string sentence) { progress = std::move(sentence); };
  after = co_await program.request("progress", Json::object(), "progress", 60s, std::move(on_progress));
  co_return 0;
}

Task<void> stand_still(Loop& loop, Duration time, std::string then) {
  co_await Sleep(loop, loop.now() + 100ms);
  ::poll(nullptr, 0, static_cast<int>(to_ms(time)));  // the loop does not turn
  std::ofstream(then).put('\n');
}

Task<int> ask_while_standing_still(ExternalProgram& program, Loop& loop, Duration time, std::string then) {
  Scope scope(loop);
  scope.spawn(stand_still(loop, time, std::move(then)));
  const ExternalGreeting greeting = co_await program.greeting();
  co_return greeting.name == "scripted" ? 0 : 1;
}

// A head that was stopped, or swapped out, for longer than the program has to greet.
TEST_F(ExternalProgramTest, IsNotLateBecauseWeStoodStill) {
  ExternalProgramSpec slow = spec("waits");
  slow.hello_timeout = 5s;
  ExternalProgram program(world, slow, log());
  EXPECT_EQ(runtime.run(ask_while_standing_still(program, runtime, 6s, folder / "starts.greet")), 0) << logged;
  EXPECT_EQ(starts(), 1u) << logged;
}

TEST_F(ExternalProgramTest, ForgetsARequestThatWasCancelled) {
  ExternalProgram program(world, spec("two"), log());
  EXPECT_EQ(request(program, "echo"), "{}");
  std::string progress;
  Json after;
  runtime.run(give_up_and_go_on(program, runtime, progress, after));
  EXPECT_EQ(after, 1);
  EXPECT_EQ(progress, "half way");
  EXPECT_EQ(request(program, "echo"), "{}");
  EXPECT_EQ(starts(), 1u);
}

Task<int> give_up_and_ask(ExternalProgram& program, Loop& loop, Duration timeout, std::string method, Json& after) {
  const Json params{{"node", "n-1"}};
  {
    Task<Json> given_up = program.request(method, params, method, timeout);
    const Instant soon = loop.now() + 20ms;
    co_await with_deadline(loop, soon, std::move(given_up));
  }
  after = co_await program.request("alone", params, "alone", os::kTestPatience);
  co_return 0;
}

TEST_F(ExternalProgramTest, StillDoesWhatWasGivenUpAndIsAskedForTheNodeAfterwards) {
  ExternalProgram program(world, spec("two"), log());
  EXPECT_EQ(request(program, "echo"), "{}");
  Json after;
  runtime.run(give_up_and_ask(program, runtime, os::kTestPatience, "late", after));
  EXPECT_EQ(after, true);
  EXPECT_EQ(starts(), 1u);
  runtime.run(give_up_and_ask(program, runtime, 200ms, "hang", after));  // for ever: it is stopped at the deadline
  EXPECT_EQ(after, true);
  EXPECT_EQ(starts(), 2u);
}

TEST_F(ExternalProgramTest, EndsWithWhoeverHasIt) {
  int pid = 0;
  {
    ExternalProgram program(world, spec(), log());
    request(program, "echo");
    const size_t at = logged.find("pid=");
    ASSERT_NE(at, std::string::npos);
    pid = std::stoi(logged.substr(at + 4));
    EXPECT_TRUE(os::is_running(pid));
  }
  EXPECT_TRUE(os::eventually([&] { return !os::is_running(pid); }));
}

}  // namespace
}  // namespace rubato::provider

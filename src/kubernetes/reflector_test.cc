#include "kubernetes/reflector.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/scope.h"
#include "rest/rest_testing.h"

namespace rubato::kubernetes {
namespace {

using nlohmann::json;

// A network whose calls are lists and whose streams are watches, each answered by a test's function.
class ListWatchNetwork final : public Network {
 public:
  std::unique_ptr<Listener> listen(const Endpoint&, const ChannelKey&, Duration) override { throw none(); }
  Task<ConnectResult> connect(Endpoint, ChannelKey, Instant, Duration) override { throw none(); }
  Task<bool> is_local(std::string) override { co_return false; }
  Task<std::vector<std::string>> resolve(std::string) override { co_return std::vector<std::string>(); }
  std::unique_ptr<PortLease> lease_port(uint16_t) override { throw none(); }
  std::vector<std::string> addresses() override { return {}; }
  Task<HttpResponse> call(Endpoint, TlsFiles, HttpRequest request, Instant) override {
    targets.push_back(request.target);
    co_return list(request.target);
  }
  Task<HttpResponse> stream(Endpoint, TlsFiles, HttpRequest request, Instant, Channel<std::string>& chunks) override {
    targets.push_back(request.target);
    HttpResponse response;
    response.status = 200;
    const std::optional<std::string> body = watch(request.target, response);
    if (body) chunks.push(*body);
    // The end of what the test has to say.
    while (!body) co_await Sleep(*loop, loop->now() + 1h);
    if (cut) throw Error(ErrorCode::kUnavailable, "connection reset");
    co_return response;
  }

  std::function<HttpResponse(const std::string& target)> list;
  std::function<std::optional<std::string>(const std::string& target, HttpResponse& response)> watch;
  std::vector<std::string> targets;
  Loop* loop = nullptr;
  bool cut = false;

 private:
  static Error none() { return Error(ErrorCode::kFailed, "only lists and watches"); }
};

class Names final : public ObjectSink {
 public:
  void begin_list(ListStart given) override {
    start = given;
    listed_.clear();
  }
  void end_list() override {
    now = listed_;
    ++lists;
  }
  void put(const json& object) override {
    listed_.insert(name_of(object));
    now.insert(name_of(object));
  }
  void remove(const json& object) override { now.erase(name_of(object)); }
  std::set<std::string> now;
  int lists = 0;
  ListStart start;

 private:
  static std::string name_of(const json& object) { return object["metadata"]["name"]; }
  std::set<std::string> listed_;
};

std::string event_line(const char* type, const char* name, int version) {
  return json{{"type", type},
              {"object", {{"metadata", {{"name", name}, {"resourceVersion", std::to_string(version)}}}}}}
             .dump() +
         "\n";
}

std::string list_body(std::vector<std::string> names, int version, std::string next = "") {
  json items = json::array();
  for (const std::string& name : names) items.push_back({{"metadata", {{"name", name}}}});
  return json{{"metadata", {{"resourceVersion", std::to_string(version)}, {"continue", next}}}, {"items", items}}
      .dump();
}

bool asks(const std::string& target, const std::string& part) { return target.find(part) != std::string::npos; }

// For an hour of virtual time.
Task<void> follow_in(World& given, ListWatchNetwork& network, Names& names) {
  network.loop = &given.clock.loop();
  World world{given.clock, network, given.processes, given.files, given.console, given.random, given.machine};
  ChosenContext chosen;
  chosen.cluster.server = "http://api:80";
  Client client(world, std::make_unique<Access>(world, chosen, std::map<std::string, std::string>{}));
  ReflectorSpec spec;
  spec.resource = pods();
  Reflector reflector(client, spec, names, Log());
  Scope scope(given.clock.loop());
  scope.spawn(reflector.run());
  co_await Sleep(given.clock.loop(), given.clock.now() + 1h);
}

class ReflectorTest : public testing::Test {
 protected:
  void follow() {
    scripted_.run([this](World& given) { return follow_in(given, network_, names_); });
  }

  rest::ScriptedWorld scripted_;
  ListWatchNetwork network_;
  Names names_;
};

TEST_F(ReflectorTest, ReadsAllPagesThenWatchesFromTheirVersion) {
  network_.list = [](const std::string& target) {
    return rest::http_answer(200,
                             asks(target, "continue=more") ? list_body({"c"}, 7) : list_body({"a", "b"}, 7, "more"));
  };
  network_.watch = [](const std::string& target, HttpResponse&) -> std::optional<std::string> {
    if (!asks(target, "resourceVersion=7&")) return std::nullopt;
    return event_line("ADDED", "d", 8) + event_line("DELETED", "a", 9);
  };
  follow();
  EXPECT_EQ(names_.now, (std::set<std::string>{"b", "c", "d"}));
  EXPECT_EQ(names_.lists, 1);
  EXPECT_TRUE(asks(network_.targets.at(3), "resourceVersion=9&"));
}

TEST_F(ReflectorTest, AWatchThatIsCutGoesOnFromTheLastWholeEvent) {
  network_.list = [](const std::string&) { return rest::http_answer(200, list_body({}, 1)); };
  network_.cut = true;
  network_.watch = [](const std::string& target, HttpResponse&) -> std::optional<std::string> {
    if (asks(target, "resourceVersion=1&")) return event_line("ADDED", "a", 2) + "{\"type\":\"ADDED\",\"obj";
    if (asks(target, "resourceVersion=2&")) return event_line("ADDED", "b", 3);
    return std::nullopt;
  };
  follow();
  EXPECT_EQ(names_.now, (std::set<std::string>{"a", "b"}));
  EXPECT_EQ(names_.lists, 1);
}

TEST_F(ReflectorTest, ListsAgainWhenItsVersionIsTooOld) {
  network_.list = [this](const std::string&) {
    return rest::http_answer(200, names_.lists == 0 ? list_body({"old"}, 1) : list_body({"new"}, 50));
  };
  network_.watch = [](const std::string& target, HttpResponse&) -> std::optional<std::string> {
    if (!asks(target, "resourceVersion=1&")) return std::nullopt;
    return std::string("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n");
  };
  follow();
  EXPECT_EQ(names_.now, (std::set<std::string>{"new"}));
  EXPECT_EQ(names_.lists, 2);
  EXPECT_EQ(names_.start.version, 50u);
  EXPECT_FALSE(names_.start.rewound);
}

TEST_F(ReflectorTest, AListThatIsOlderThanWhatWasSeenIsTold) {
  network_.list = [this](const std::string&) {
    return rest::http_answer(200, names_.lists == 0 ? list_body({"new"}, 50) : list_body({"restored"}, 7));
  };
  network_.watch = [](const std::string& target, HttpResponse&) -> std::optional<std::string> {
    if (!asks(target, "resourceVersion=50&")) return std::nullopt;
    return std::string("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n");
  };
  follow();
  EXPECT_EQ(names_.now, (std::set<std::string>{"restored"}));
  EXPECT_TRUE(names_.start.rewound);
}

TEST_F(ReflectorTest, WaitsWhileTheServerIsInTrouble) {
  int asked = 0;
  network_.list = [&](const std::string&) {
    return ++asked < 30 ? rest::http_answer(503, "{}") : rest::http_answer(200, list_body({"a"}, 1));
  };
  network_.watch = [](const std::string&, HttpResponse&) { return std::nullopt; };
  follow();
  EXPECT_EQ(names_.now, (std::set<std::string>{"a"}));
}

}  // namespace
}  // namespace rubato::kubernetes

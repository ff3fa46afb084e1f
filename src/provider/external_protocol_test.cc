#include "provider/external_protocol.h"

#include <gtest/gtest.h>

namespace rubato::provider {
namespace {

using Json = nlohmann::json;

// "" when nothing is thrown.
template <class F>
std::string words_of(F call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code)) + ": " + error.message;
  }
  return "";
}

TEST(ExternalRequest, IsOneLineOfJson) {
  const std::string line = request_line(7, "create", Json{{"node", "a\nb"}}, 90s);
  EXPECT_EQ(line, "{\"id\":7,\"method\":\"create\",\"params\":{\"node\":\"a\\nb\"},\"timeout_s\":90.0}\n");
}

TEST(ExternalRequest, SurvivesBytesThatAreNotText) {
  const std::string line = request_line(1, "create", Json{{"node", "\xff"}}, 1s);
  EXPECT_FALSE(Json::parse(line, nullptr, false).is_discarded());
}

TEST(ExternalReply, IsAResultAnErrorOrProgress) {
  const ExternalReply result = parse_reply(R"({"id": 3, "result": {"nodes": []}})");
  EXPECT_EQ(result.id, 3u);
  EXPECT_EQ(std::get<Json>(result.what)["nodes"], Json::array());
  EXPECT_TRUE(std::get<Json>(parse_reply(R"({"id":3,"result":null})").what).is_null());
  EXPECT_EQ(std::get<std::string>(parse_reply(R"({"id":3,"progress":"booting"})").what), "booting");
  // As JSON-RPC libraries write it.
  EXPECT_EQ(std::get<Json>(parse_reply(R"({"jsonrpc":"2.0","id":3,"result":1,"error":null})").what), 1);
  const ExternalReply failed =
      parse_reply(R"({"id":4,"error":{"code":"throttled","message":"slow down","retry_after_s":2.5}})");
  const auto& failure = std::get<ExternalFailure>(failed.what);
  EXPECT_EQ(failure.code, ExternalCode::kThrottled);
  EXPECT_EQ(failure.message, "slow down");
  EXPECT_EQ(failure.retry_after, Duration(2500ms));
}

TEST(ExternalReply, SaysWhatIsWrongWithALine) {
  const auto problem = [](std::string_view line) { return words_of([&] { parse_reply(line); }); };
  EXPECT_EQ(problem("Starting up..."), "unavailable: wrote a line that is not JSON: Starting up...");
  EXPECT_EQ(problem("\x1b[31mred"), "unavailable: wrote a line that is not JSON: \\x1b[31mred");
  EXPECT_EQ(problem("[1]"), "unavailable: wrote a line that is not a JSON object: [1]");
  EXPECT_NE(problem(R"({"result":1})").find("without the \"id\""), std::string::npos);
  EXPECT_NE(problem(R"({"id":-1,"result":1})").find("without the \"id\""), std::string::npos);
  EXPECT_NE(problem(R"({"id":"1","result":1})").find("without the \"id\""), std::string::npos);
  EXPECT_NE(problem(R"({"id":1})").find("other than one of"), std::string::npos);
  EXPECT_NE(problem(R"({"id":1,"result":1,"error":{"code":"quota"}})").find("other than one of"), std::string::npos);
  EXPECT_NE(problem(R"({"id":1,"error":"no"})").find("\"code\" and \"message\""), std::string::npos);
  EXPECT_NE(problem(R"({"id":1,"error":{"code":5}})").find("\"code\" is not a text"), std::string::npos);
  EXPECT_NE(problem(std::string(kExternalLineMax, 'x')).find("more than"), std::string::npos);
  EXPECT_NE(problem("{\"id\":1,\"result\":" + std::string(100'000, '[')).find("nested too deep"), std::string::npos);
}

TEST(ExternalReply, AnErrorCodeThatNobodyKnowsIsAnInternalOne) {
  const auto failure = std::get<ExternalFailure>(parse_reply(R"({"id":1,"error":{"code":"x","message":"m"}})").what);
  EXPECT_EQ(failure.code, ExternalCode::kInternal);
  EXPECT_EQ(failure.message, "m (error code 'x')");
}

TEST(ExternalError, TellsTheCallerWhatToDo) {
  const auto code = [](std::string_view text) {
    ExternalFailure failure;
    failure.code = parse_external_code(text).value();
    failure.message = "why";
    return to_error(failure, "prog", "create n-1").code;
  };
  EXPECT_EQ(code("no-capacity"), ErrorCode::kConflict);
  EXPECT_EQ(code("quota"), ErrorCode::kConflict);
  EXPECT_EQ(code("auth"), ErrorCode::kUsage);
  EXPECT_EQ(code("invalid"), ErrorCode::kUsage);
  EXPECT_EQ(code("unsupported"), ErrorCode::kUsage);
  EXPECT_EQ(code("not-found"), ErrorCode::kNotFound);
  EXPECT_EQ(code("throttled"), ErrorCode::kUnavailable);
  EXPECT_EQ(code("unavailable"), ErrorCode::kUnavailable);
  EXPECT_EQ(code("internal"), ErrorCode::kUnavailable);
  EXPECT_FALSE(parse_external_code("no_capacity"));
  ExternalFailure failure;
  failure.code = ExternalCode::kQuota;
  failure.message = "64 vCPUs";
  const Error error = to_error(failure, "prog", "create n-1");
  EXPECT_EQ(error.message, "create n-1: quota: 64 vCPUs");
  EXPECT_EQ(error.where, "prog");
  EXPECT_NE(error.hint, "");
}

TEST(ExternalGreeting, HasDefaultsForWhatIsNotSaid) {
  const ExternalGreeting least = parse_greeting(Json{{"protocol", 1}});
  EXPECT_EQ(least.parallel, 1);
  EXPECT_FALSE(least.machines_stay);
  EXPECT_TRUE(least.carry.is_null());
  const ExternalGreeting more = parse_greeting(
      Json::parse(R"({"protocol":1,"name":"x","parallel":1e9,"machines_stay":true,"methods":["failed"],"carry":[1]})"));
  EXPECT_EQ(more.parallel, kExternalParallelMax);
  EXPECT_TRUE(more.machines_stay);
  EXPECT_TRUE(more.knows("failed"));
  EXPECT_FALSE(more.knows("other"));
  EXPECT_EQ(more.carry, Json::array({1}));
  const ExternalGreeting hosts = parse_greeting(Json::parse(R"({"protocol":1,"hosts":["me@h:23"]})"));
  ASSERT_EQ(hosts.hosts.size(), 1u);
  EXPECT_EQ(to_string(hosts.hosts[0]), "me@h:23");
  EXPECT_NE(words_of([] { parse_greeting(Json::parse(R"({"protocol":1,"hosts":["-x"]})")); }), "");
}

TEST(ExternalGreeting, RefusesAnotherProtocol) {
  EXPECT_EQ(words_of([] {
              parse_greeting(Json{{"protocol", 2}});
            }),
            "usage: speaks version 2 of the protocol; this rubato speaks 1");
  EXPECT_NE(words_of([] { parse_greeting(Json::object()); }), "");
  EXPECT_NE(words_of([] { parse_greeting(Json(3)); }), "");
  EXPECT_NE(words_of([] { parse_greeting(Json::parse(R"({"protocol":1,"parallel":0})")); }), "");
}

TEST(ExternalMachines, AreReadyOnceTheyHaveAHost) {
  const NodeId node{"n-1"};
  const ExternalMachine waiting = parse_machine(Json{{"id", "i-5"}}, node);
  EXPECT_FALSE(waiting.ready);
  EXPECT_EQ(waiting.node, node);
  const ExternalMachine ready = parse_machine(
      Json::parse(R"({"host":"10.0.0.5","user":"ubuntu","port":2222,"address":"fd00::5","leftovers":["n-0"]})"), node);
  EXPECT_TRUE(ready.ready);
  EXPECT_EQ(to_string(ready.machine.host), "ubuntu@10.0.0.5:2222");
  EXPECT_EQ(ready.machine.address, "fd00::5");
  ASSERT_EQ(ready.machine.leftovers.size(), 1u);
  EXPECT_EQ(to_string(parse_machine(Json{{"host", "me@h:23"}}, node).machine.host), "me@h:23");
  EXPECT_FALSE(parse_described(Json(), node));
}

TEST(ExternalMachines, ThatCannotBeHadAreToldByNode) {
  EXPECT_TRUE(parse_launch(Json::object()).empty());
  const auto failed = parse_launch(Json::parse(R"({"failed":{"n-2":{"code":"no-capacity","message":"sold out"}}})"));
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed.at(NodeId{"n-2"}).code, ExternalCode::kNoCapacity);
  EXPECT_THROW(parse_launch(Json::array()), Error);
  EXPECT_THROW(parse_launch(Json::parse(R"({"failed":["n-2"]})")), Error);
}

TEST(ExternalMachines, NeverBecomeOptionsOfSsh) {
  const NodeId node{"n-1"};
  for (const char* text : {R"({"host":"-oProxyCommand=evil"})", R"({"host":"a b"})", R"({"host":"h","user":"-l"})",
                           R"({"host":"h","user":"a@b"})", R"({"host":"h","port":70000})", R"({"host":"h","port":1.5})",
                           R"({"host":"h","address":"-x"})", R"({"host":"h","address":"u@h"})", R"({"host":5})",
                           R"({"host":"h","port":"22"})", R"({"node":"n-2","host":"h"})", R"([])"}) {
    EXPECT_NE(words_of([&] { parse_machine(Json::parse(text), node); }), "") << text;
  }
}

TEST(ExternalMachines, InAListSayWhoseTheyAre) {
  const auto list = parse_list(Json::parse(R"({"nodes":[{"node":"b","host":"h"},{"node":"a"}]})"));
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].node.value, "b");
  EXPECT_FALSE(list[1].ready);
  for (const char* text : {R"({"nodes":[{"host":"h"}]})", R"({"nodes":{}})", "[]", "null", R"({"nodes":[5]})"}) {
    EXPECT_NE(words_of([&] { parse_list(Json::parse(text)); }), "") << text;
  }
}

TEST(ExternalLines, AreBounded) {
  LineBuffer lines;
  lines.add("one\r\ntw");
  EXPECT_EQ(next_line(lines), "one");
  EXPECT_EQ(next_line(lines), std::nullopt);
  lines.add("o\n\n");
  EXPECT_EQ(next_line(lines), "two");
  EXPECT_EQ(next_line(lines), "");
  EXPECT_EQ(next_line(lines), std::nullopt);
  lines.add(std::string(kExternalLineMax + 5, 'x'));
  EXPECT_EQ(next_line(lines)->size(), kExternalLineMax + 5);
}

}  // namespace
}  // namespace rubato::provider

#include "core/log.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

namespace rubato {
namespace {

// Noon and a bit, on a day of our own.
constexpr WallTime kNoon{std::chrono::microseconds(1'794'744'000'123'456)};

struct Written {
  std::vector<std::string> lines;
  WallTime time = kNoon;

  Log log(LogLevel least = LogLevel::kInfo, LogFormat format = LogFormat::kHuman) {
    return Log([this](LogLevel, std::string_view line) { lines.emplace_back(line); }, [this] { return time; }, least,
               format);
  }
};

TEST(Log, WritesALineForPeople) {
  Written written;
  written.log().warning("worker died", {{"rank", 3}, {"signal", "SIGKILL"}, {"ratio", 0.5}, {"last", true}});
  EXPECT_EQ(written.lines.at(0), "12:00:00.123 warning worker died rank=3 signal=SIGKILL ratio=0.5 last=true");
}

TEST(Log, WritesALineForMachines) {
  Written written;
  written.log(LogLevel::kInfo, LogFormat::kJson).info("up", {{"node", std::string("n1")}, {"gpus", size_t{8}}});
  EXPECT_EQ(written.lines.at(0),
            R"({"time":"2026-11-15T12:00:00.123Z","level":"info","message":"up","node":"n1","gpus":8})");
}

TEST(Log, TakesTheTimeItIsGiven) {
  Written written;
  const Log log = written.log();
  log.info("a");
  written.time += std::chrono::hours(13) + std::chrono::milliseconds(1);
  log.info("b");
  EXPECT_EQ(written.lines, (std::vector<std::string>{"12:00:00.123 info a", "01:00:00.124 info b"}));
}

TEST(Log, LeavesOutWhatIsBelowItsLevel) {
  Written written;
  const Log log = written.log(LogLevel::kWarning);
  log.debug("a");
  log.info("b");
  log.error("c");
  EXPECT_EQ(written.lines.size(), 1u);
  EXPECT_FALSE(log.enabled(LogLevel::kInfo));
}

TEST(Log, ASilentLogTakesLinesToo) { Log().error("nobody hears"); }

TEST(Log, AChildAddsItsFieldsBeforeTheLinesOwn) {
  Written written;
  const Log parent = written.log();
  const Log child = parent.with({{"job", "bert"}}).with({{"rank", 1}});
  child.info("started", {{"pid", 7}});
  parent.info("other");
  EXPECT_EQ(written.lines.at(0), "12:00:00.123 info started job=bert rank=1 pid=7");
  EXPECT_EQ(written.lines.at(1), "12:00:00.123 info other");
}

TEST(Log, QuotesValuesThatCouldBeMisread) {
  Written written;
  written.log().info("m", {{"a", "two words"}, {"b", "say \"hi\""}, {"c", ""}, {"d", "k=v"}, {"e", 1500ms}});
  EXPECT_EQ(written.lines.at(0), R"(12:00:00.123 info m a="two words" b="say \"hi\"" c="" d="k=v" e=1.5s)");
}

TEST(Log, NothingInAValueBreaksTheLineOrDrivesTheTerminal) {
  Written written;
  written.log().info("one\ntwo", {{"text", "\x1b[31mred\r\n"}});
  EXPECT_EQ(written.lines.at(0), R"(12:00:00.123 info one\ntwo text="\x1b[31mred\x0d\n")");
}

TEST(Log, AFieldNeverHidesTheMessage) {
  Written written;
  written.log(LogLevel::kInfo, LogFormat::kJson).info("real", {{"message", "false"}, {"message", "again"}});
  const auto object = nlohmann::json::parse(written.lines.at(0));
  EXPECT_EQ(object["message"], "real");
  EXPECT_EQ(object["message_"], "false");
  EXPECT_EQ(object["message__"], "again");
}

TEST(Log, LevelsReadBackFromTheirNames) {
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    EXPECT_EQ(parse_log_level(to_string(level)), level);
  }
  EXPECT_EQ(parse_log_level("loud"), std::nullopt);
}

RC_GTEST_PROP(Log, AnyBytesMakeOneLineInEachFormat, (std::string message, std::string value)) {
  const LogRecord record{kNoon, LogLevel::kInfo, message, {{"v", value}}};
  const std::string human = format_human(record);
  RC_ASSERT(human.find('\n') == std::string::npos);
  const std::string json = format_json(record);
  RC_ASSERT(json.find('\n') == std::string::npos);
  RC_ASSERT(nlohmann::json::parse(json).is_object());
}

}  // namespace
}  // namespace rubato

#include "agent/notice.h"

#include <gtest/gtest.h>

namespace rubato::agent {
namespace {

const WallTime kWritten = std::chrono::sys_days(std::chrono::year(2026) / 11 / 15) + 12h;

std::string deadline_of(std::string_view text) {
  const Notice notice = parse_notice(text, kWritten);
  EXPECT_EQ(notice.problem, "") << text;
  return notice.deadline ? format_time(*notice.deadline) : "none";
}

std::string problem_of(std::string_view text) {
  const Notice notice = parse_notice(text, kWritten);
  EXPECT_FALSE(notice.deadline) << text;
  return notice.problem;
}

TEST(Notice, AnEmptyFileHasNoDeadline) {
  EXPECT_EQ(deadline_of(""), "none");
  EXPECT_EQ(deadline_of(" \n"), "none");
}

TEST(Notice, ReadsATime) {
  EXPECT_EQ(deadline_of("2026-11-15T12:00:30Z\n"), "2026-11-15T12:00:30.000Z");
  EXPECT_EQ(deadline_of("2026-11-15t12:00:30.25z"), "2026-11-15T12:00:30.250Z");
  EXPECT_EQ(deadline_of("2026-11-15 12:00:30.123456789Z"), "2026-11-15T12:00:30.123Z");
  EXPECT_EQ(deadline_of("2026-11-15T12:00:30+02:00"), "2026-11-15T10:00:30.000Z");
  EXPECT_EQ(deadline_of("2026-11-15T23:30:00-05:30"), "2026-11-16T05:00:00.000Z");
  EXPECT_EQ(deadline_of("2016-12-31T23:59:60Z"), "2017-01-01T00:00:00.000Z");
}

TEST(Notice, CountsADurationFromWhenItWasWritten) {
  EXPECT_EQ(deadline_of("90s"), "2026-11-15T12:01:30.000Z");
  EXPECT_EQ(deadline_of("2m\n"), "2026-11-15T12:02:00.000Z");
  EXPECT_EQ(deadline_of("30"), "2026-11-15T12:00:30.000Z");
}

TEST(Notice, ReadsJson) {
  EXPECT_EQ(deadline_of(R"({"action":"terminate","time":"2017-09-18T08:22:00Z"})"), "2017-09-18T08:22:00.000Z");
  EXPECT_EQ(deadline_of(R"({"action": "hibernate"})"), "none");
  EXPECT_EQ(deadline_of(R"({"deadline": "2026-11-15T12:00:30Z"})"), "2026-11-15T12:00:30.000Z");
  EXPECT_EQ(deadline_of(R"({"in": "90s"})"), "2026-11-15T12:01:30.000Z");
  EXPECT_EQ(deadline_of(R"({"in": 1.5})"), "2026-11-15T12:00:01.500Z");
}

TEST(Notice, SaysWhatIsWrongWithTheRest) {
  for (const char* text : {"soon", "2026-11-15", "2026-11-15T12:00:30", "2026-02-30T12:00:30Z", "2026-13-01T12:00:30Z",
                           "2026-11-15T24:00:00Z", "2026-11-15T12:60:00Z", "2026-11-15T12:00:30.Z",
                           "2026-11-15T12:00:30Zulu", "2026-11-15T12:00:30+2", "-5s", "[1]", "\xff\xfe"}) {
    EXPECT_NE(problem_of(text).find("neither a time"), std::string::npos) << text;
  }
  EXPECT_EQ(problem_of(R"({"in": "90)"), "it is not whole as JSON");
  EXPECT_EQ(problem_of(R"({"in": []})"), "its \"in\" is not a duration such as 90s");
  EXPECT_EQ(problem_of(R"({"time": 5})"), "its \"time\" is not a time such as 2026-11-15T12:00:30Z");
  EXPECT_EQ(problem_of(R"({"deadline": "90s"})"), "its \"deadline\" is not a time such as 2026-11-15T12:00:30Z");
  EXPECT_EQ(problem_of("{}"), "it has none of \"deadline\", \"time\" and \"in\"");
}

TEST(Notice, LeavesAMarginBeforeTheDeadline) {
  const Notice notice = parse_notice("90s", kWritten);
  EXPECT_EQ(time_to_end(notice, kWritten, 30s), 88s);
  EXPECT_EQ(time_to_end(notice, kWritten + 60s, 30s), 28s);
  EXPECT_EQ(time_to_end(notice, kWritten + 89s, 30s), 0s);
  EXPECT_EQ(time_to_end(notice, kWritten + 24h, 30s), 0s);
}

TEST(Notice, LeavesTheGraceWithoutADeadline) {
  EXPECT_EQ(time_to_end(parse_notice("", kWritten), kWritten, 30s), 30s);
  EXPECT_EQ(time_to_end(parse_notice("soon", kWritten), kWritten, 30s), 30s);
}

TEST(Notice, ADeadlineFarAwayDoesNotOverflow) {
  const Notice last = parse_notice("9999-12-31T23:59:59Z", kWritten);
  EXPECT_GT(time_to_end(last, kWritten, 30s), 8000h);
  EXPECT_EQ(time_to_end(parse_notice("0000-01-01T00:00:00Z", kWritten), kWritten, 30s), 0s);
}

TEST(Notice, IsDescribedForPeople) {
  EXPECT_EQ(describe(parse_notice("90s", kWritten), kWritten + 2s),
            "this machine goes away at 12:01:30 UTC (in 1m28s)");
  EXPECT_EQ(describe(parse_notice("90s", kWritten), kWritten + 100s),
            "this machine goes away at 12:01:30 UTC (10.0s ago)");
  EXPECT_EQ(describe(parse_notice("3d", kWritten), kWritten), "this machine goes away at 2026-11-18T12:00:00.000Z");
  EXPECT_EQ(describe(parse_notice("", kWritten), kWritten), "this machine goes away");
  EXPECT_EQ(describe(parse_notice("{}", kWritten), kWritten),
            "this machine goes away, but it cannot be made out when: it has none of \"deadline\", \"time\" and \"in\"");
}

}  // namespace
}  // namespace rubato::agent

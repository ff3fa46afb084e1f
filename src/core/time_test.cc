#include "core/time.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace rubato {
namespace {

TEST(ParseDuration, ReadsEachUnit) {
  EXPECT_EQ(parse_duration("90"), 90s);
  EXPECT_EQ(parse_duration("1.5s"), 1500ms);
  EXPECT_EQ(parse_duration("250ms"), 250ms);
  EXPECT_EQ(parse_duration("2m"), 120s);
  EXPECT_EQ(parse_duration("1h"), 3600s);
  EXPECT_EQ(parse_duration("0"), 0s);
}

TEST(ParseDuration, RefusesWhatIsNoDuration) {
  for (const char* text : {"", "s", "-1", "-1s", "1x", "1 s", " 1", "inf", "nan", "1e400", "infs"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(ParseDuration, RefusesMoreThanACentury) {
  EXPECT_TRUE(parse_duration("87600h"));
  EXPECT_EQ(parse_duration("1000000h"), std::nullopt);
  EXPECT_EQ(parse_duration("1e300"), std::nullopt);
}

RC_GTEST_PROP(ParseDuration, WholeMillisecondsComeBack, ()) {
  const int64_t ms = *rc::gen::inRange<int64_t>(0, 1'000'000);
  RC_ASSERT(parse_duration(std::to_string(ms / 1000)) == std::chrono::seconds(ms / 1000));
  const Duration parsed = parse_duration(std::to_string(ms) + "ms").value();
  RC_ASSERT(std::chrono::abs(parsed - std::chrono::milliseconds(ms)) <= 1us);
}

TEST(FormatDuration, ShowsTheTwoLeadingUnits) {
  EXPECT_EQ(format_duration(250ms), "250ms");
  EXPECT_EQ(format_duration(1500ms), "1.5s");
  EXPECT_EQ(format_duration(190s), "3m10s");
  EXPECT_EQ(format_duration(62min), "1h02m");
  EXPECT_EQ(format_duration(50h), "2d02h");
  EXPECT_EQ(format_duration(-250ms), "-250ms");
  EXPECT_EQ(format_duration(0s), "0ms");
}

TEST(FormatTime, IsRfc3339InUtc) {
  EXPECT_EQ(format_time(WallTime{}), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(format_time(WallTime(std::chrono::microseconds(1'794'714'886'123'999))), "2026-11-15T03:54:46.123Z");
}

}  // namespace
}  // namespace rubato

#include "cli/times.h"

#include <gtest/gtest.h>

#include "cli/testing.h"

namespace rubato::cli {
namespace {

TEST(Times, WhatWePrintCanBeReadAgain) {
  const auto time = parse_time("2026-11-15T03:54:46.123Z");
  ASSERT_TRUE(time);
  EXPECT_EQ(format_time(*time), "2026-11-15T03:54:46.123Z");
}

TEST(Times, OffsetsFractionsAndDatesAlone) {
  EXPECT_EQ(parse_time("2026-11-15T05:54:46+02:00"), parse_time("2026-11-15 03:54:46Z"));
  EXPECT_EQ(parse_time("2026-11-15"), parse_time("2026-11-15T00:00:00Z"));
  EXPECT_EQ(*parse_time("2026-11-15T00:00:00.5Z") - *parse_time("2026-11-15T00:00:00Z"), 500ms);
}

TEST(Times, WhatIsNoTimeIsRefused) {
  for (const char* text : {"", "now", "2026-13-01", "2026-02-30", "2026-11-15T25:00:00Z", "2026-11-15T00:00:00",
                           "2026-11-15T00:00:00Zx", "20261115", "2026-11-15T00:00:00.Z", "-026-11-15"}) {
    EXPECT_FALSE(parse_time(text)) << text;
  }
}

TEST(Times, APointInThePastMayBeADuration) {
  const WallTime now = *parse_time("2026-11-15T00:10:00Z");
  const auto given = [](std::string text) { return Given{.values = {std::move(text)}, .origin = "--since"}; };
  EXPECT_EQ(past_value(given("10m"), now), *parse_time("2026-11-15T00:00:00Z"));
  EXPECT_EQ(past_value(given("2026-11-15T00:00:01Z"), now), *parse_time("2026-11-15T00:00:01Z"));
  EXPECT_NE(usage_error([&] { past_value(given("yesterday"), now); }).message.find("--since yesterday"),
            std::string::npos);
}

}  // namespace
}  // namespace rubato::cli

#include "terminal/times.h"

#include <gtest/gtest.h>

#include "core/timestamp.h"
#include "terminal/testing.h"

namespace rubato::cli {
namespace {

TEST(Times, APointInThePastMayBeADuration) {
  const WallTime now = *parse_time("2026-11-15T00:10:00Z");
  const auto given = [](std::string text) { return Given{.values = {std::move(text)}, .origin = "--since"}; };
  EXPECT_EQ(past_value(given("10m"), now), *parse_time("2026-11-15T00:00:00Z"));
  EXPECT_EQ(past_value(given("10m ago"), now), *parse_time("2026-11-15T00:00:00Z"));
  EXPECT_EQ(past_value(given("2026-11-15T00:00:01Z"), now), *parse_time("2026-11-15T00:00:01Z"));
  EXPECT_NE(usage_error([&] { past_value(given("yesterday"), now); }).message.find("--since yesterday"),
            std::string::npos);
}

}  // namespace
}  // namespace rubato::cli

#include "core/timestamp.h"

#include <gtest/gtest.h>

namespace rubato {
namespace {

std::string back(std::string_view text) {
  const std::optional<WallTime> time = parse_time(text);
  return time ? format_time(*time) : "none";
}

TEST(Timestamp, ReadsWhatFormatTimeWrites) {
  EXPECT_EQ(back("2026-11-15T03:54:46.123Z"), "2026-11-15T03:54:46.123Z");
  EXPECT_EQ(back("1969-12-31T23:59:59.999Z"), "1969-12-31T23:59:59.999Z");
}

TEST(Timestamp, ReadsOffsetsFractionsSpacesAndDates) {
  EXPECT_EQ(back("2026-11-15T03:54:46Z"), "2026-11-15T03:54:46.000Z");
  EXPECT_EQ(back("2026-11-15 03:54:46.5+01:30"), "2026-11-15T02:24:46.500Z");
  EXPECT_EQ(back("2026-11-15t03:54:46.123456789-00:30"), "2026-11-15T04:24:46.123Z");
  EXPECT_EQ(back("2024-02-29"), "2024-02-29T00:00:00.000Z");
}

TEST(Timestamp, RefusesWhatIsNoTime) {
  for (const char* text : {"", "now", "2026-11-15T", "2026-13-01T00:00:00Z", "2025-02-29", "2026-11-15T24:00:00Z",
                           "2026-11-15T03:54:46", "2026-11-15T03:54:46.Z", "2026-11-15T03:54:46Zx", "-026-11-15"}) {
    EXPECT_EQ(back(text), "none") << text;
  }
}

}  // namespace
}  // namespace rubato

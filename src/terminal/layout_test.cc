#include "terminal/layout.h"

#include <gtest/gtest.h>

namespace rubato::cli {
namespace {

TEST(Layout, WidthCountsColumnsNotBytes) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("größe"), 5u);
  EXPECT_EQ(display_width("日本"), 4u);
  EXPECT_EQ(display_width("e\u0301"), 1u);
  EXPECT_EQ(display_width("\xff\xfe"), 2u);
  EXPECT_EQ(display_width("🚀"), 2u);
}

TEST(Layout, FitCutsBetweenCharacters) {
  EXPECT_EQ(fit("training", 8), "training");
  EXPECT_EQ(fit("training", 5), "trai…");
  EXPECT_EQ(fit("日本語", 4), "日…");
  EXPECT_EQ(fit("x", 0), "");
}

TEST(Layout, ForeignTextCannotMoveTheCursor) {
  EXPECT_EQ(clean("a\x1b[2Jb\r\nc"), "a?[2Jb? c");
  EXPECT_EQ(clean("\u009b"
                  "1m\u202e"),
            "?1m?");
  EXPECT_EQ(clean("\xc3("), "?(");
  EXPECT_EQ(clean("größe 日本"), "größe 日本");
}

TEST(Layout, AgesHaveTwoUnits) {
  EXPECT_EQ(age_text(-3s), "0s");
  EXPECT_EQ(age_text(59999ms), "59s");
  EXPECT_EQ(age_text(190s), "3m10s");
  EXPECT_EQ(age_text(3660s), "1h01m");
  EXPECT_EQ(age_text(100h), "4d04h");
}

TEST(Table, ColumnsLineUpWhateverTheScript) {
  Table table({"ID", "NAME", "WHY"});
  table.add({{"1"}, {"日本"}, {"a"}});
  table.add({{"22"}, {"x"}, {"b"}});
  EXPECT_EQ(table.text({}),
            "ID  NAME  WHY\n"
            "1   日本  a\n"
            "22  x     b\n");
}

TEST(Table, ANarrowTerminalCutsTheEndOfALine) {
  Table table({"ID", "REASON"});
  table.add({{"j-1"}, {"waits for two nodes"}});
  EXPECT_EQ(table.text({.width = 12}), "ID   REASON\nj-1  waits …\n");
  EXPECT_EQ(table.text({.width = 3}), "ID\nj-1\n");
}

TEST(Table, ColourDoesNotCountAsWidth) {
  Table table({"A", "B"});
  table.add({{"up", Hue::kGreen}, {"x"}});
  EXPECT_EQ(table.text({.colour = true}), "\x1b[1mA\x1b[0m   \x1b[1mB\x1b[0m\n\x1b[32mup\x1b[0m  x\n");
}

}  // namespace
}  // namespace rubato::cli

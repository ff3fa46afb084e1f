#include "core/line_buffer.h"

#include <gtest/gtest.h>

#include <vector>

namespace rubato {
namespace {

TEST(LineBuffer, PutsLinesTogetherWhereverTheyAreCut) {
  const std::string text = "one\n\ntwo\r\nthree";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    LineBuffer lines;
    std::vector<std::string> seen;
    for (size_t at = 0; at < text.size(); at += piece) {
      lines.add(std::string_view(text).substr(at, piece));
      while (const auto line = lines.next()) seen.push_back(*line);
    }
    EXPECT_EQ(seen, (std::vector<std::string>{"one", "", "two\r"})) << piece;
    EXPECT_EQ(lines.size(), 5u);
    EXPECT_EQ(lines.take_rest(), "three");
    EXPECT_EQ(lines.size(), 0u);
  }
}

TEST(LineBuffer, GivesTextWithoutTheReturnOfOtherSystems) {
  LineBuffer lines;
  lines.add("a\r\nb\rc\n\r\nd");
  EXPECT_EQ(lines.next_text(), "a");
  EXPECT_EQ(lines.next_text(), "b\rc");
  EXPECT_EQ(lines.next_text(), "");
  EXPECT_EQ(lines.next_text(), std::nullopt);
  lines.add("\n");
  EXPECT_EQ(lines.next_text(), "d");
}

TEST(LineBuffer, StartsAnewAfterTheRestWasTaken) {
  LineBuffer lines;
  lines.add("a\nb");
  EXPECT_EQ(lines.next(), "a");
  EXPECT_EQ(lines.take_rest(), "b");
  lines.add("c\n");
  EXPECT_EQ(lines.next(), "c");
  EXPECT_EQ(lines.next(), std::nullopt);
}

}  // namespace
}  // namespace rubato

#include "archive/ignore.h"

#include <gtest/gtest.h>

namespace rubato::archive {
namespace {

bool ignored(const std::string& text, const std::string& path, bool is_folder = false) {
  return IgnoreFile(text).ignores(path, is_folder).value_or(false);
}

TEST(Ignore, NamesMatchAtAnyDepthAndPathsFromTheTop) {
  EXPECT_TRUE(ignored("a.txt", "a.txt"));
  EXPECT_TRUE(ignored("a.txt", "x/y/a.txt"));
  EXPECT_TRUE(ignored("/a.txt", "a.txt"));
  EXPECT_FALSE(ignored("/a.txt", "x/a.txt"));
  EXPECT_TRUE(ignored("x/a", "x/a"));
  EXPECT_FALSE(ignored("x/a", "y/x/a"));
  EXPECT_FALSE(ignored("a.txt", "a.txt2"));
}

TEST(Ignore, ASlashAtTheEndMeansFoldersOnly) {
  EXPECT_TRUE(ignored("build/", "build", true));
  EXPECT_FALSE(ignored("build/", "build", false));
  EXPECT_TRUE(ignored("build/", "x/build", true));
  EXPECT_FALSE(ignored("/", "x", true));
}

TEST(Ignore, TheLastLineThatMatchesWins) {
  const std::string text = "*.log\n!keep.log\nkeep.log.old\n";
  EXPECT_TRUE(ignored(text, "a.log"));
  EXPECT_FALSE(ignored(text, "keep.log"));
  EXPECT_EQ(IgnoreFile(text).ignores("keep.log", false), std::optional(false));
  EXPECT_EQ(IgnoreFile(text).ignores("other", false), std::nullopt);
  EXPECT_TRUE(ignored("!a\na", "a"));
}

TEST(Ignore, StarsStopAtSlashesAndDoubleStarsDoNot) {
  EXPECT_TRUE(ignored("x/*", "x/a"));
  EXPECT_FALSE(ignored("x/*", "x/a/b"));
  EXPECT_TRUE(ignored("**/b", "b"));
  EXPECT_TRUE(ignored("**/b", "a/c/b"));
  EXPECT_TRUE(ignored("a/**", "a/b/c"));
  EXPECT_FALSE(ignored("a/**", "a", true));
  EXPECT_TRUE(ignored("a/**/b", "a/b"));
  EXPECT_TRUE(ignored("a/**/b", "a/x/y/b"));
  EXPECT_FALSE(ignored("a/**/b", "a/xb"));
  EXPECT_TRUE(ignored("a/x**y", "a/x12y"));
  EXPECT_FALSE(ignored("a/x**y", "a/x/y"));
  EXPECT_TRUE(ignored("a?c", "abc"));
  EXPECT_FALSE(ignored("x/a?c", "x/a/c"));
}

TEST(Ignore, ClassesAreThoseOfGit) {
  EXPECT_TRUE(ignored("[a-c]x", "bx"));
  EXPECT_FALSE(ignored("[!a-c]x", "bx"));
  EXPECT_FALSE(ignored("[^a-c]x", "bx"));
  EXPECT_TRUE(ignored("[]-]x", "]x"));
  EXPECT_TRUE(ignored("[]-]x", "-x"));
  EXPECT_TRUE(ignored("[[:digit:][:upper:]]", "7"));
  EXPECT_FALSE(ignored("[[:digit:]]", "a"));
  EXPECT_FALSE(ignored("[[:nonsense:]a]", "a"));
  EXPECT_FALSE(ignored("[a", "[a"));
  EXPECT_TRUE(ignored("[\\]]", "]"));
  EXPECT_FALSE(ignored("x/a[!b]c", "x/a/c"));
}

TEST(Ignore, EscapesCommentsBlanksAndLineEnds) {
  EXPECT_FALSE(ignored("#a", "#a"));
  EXPECT_TRUE(ignored("\\#a", "#a"));
  EXPECT_TRUE(ignored("\\!a", "!a"));
  EXPECT_TRUE(ignored("a\\*", "a*"));
  EXPECT_FALSE(ignored("a\\*", "ab"));
  EXPECT_TRUE(ignored("a   ", "a"));
  EXPECT_TRUE(ignored("a\\ ", "a "));
  EXPECT_TRUE(ignored("a\\  ", "a "));
  EXPECT_TRUE(ignored("a\r\nb\r\n", "a"));
  EXPECT_TRUE(
      ignored("\xef\xbb\xbf"
              "a",
              "a"));
  EXPECT_FALSE(ignored("a\\", "a\\"));
  EXPECT_FALSE(ignored("\n\n!\n", ""));
}

TEST(Ignore, ManyStarsTakeNoLongTime) {
  std::string pattern = "x/";
  for (int i = 0; i < 60; ++i) pattern += "*a";
  EXPECT_FALSE(ignored(pattern + "b", "x/" + std::string(250, 'a')));  // 2^60 steps by backtracking
}

TEST(IgnoreStack, DeeperFilesWinAndRubatoignoreWinsOverAll) {
  IgnoreStack stack;
  stack.enter("", "*.bin\n/only-top\n", "");
  stack.enter("sub", "!keep.bin\n/here\n", "");
  EXPECT_TRUE(stack.ignores("sub/a.bin", false));
  EXPECT_FALSE(stack.ignores("sub/keep.bin", false));
  EXPECT_TRUE(stack.ignores("sub/here", false));
  EXPECT_FALSE(stack.ignores("sub/only-top", false));
  stack.leave();
  EXPECT_FALSE(stack.ignores("here", false));
  EXPECT_TRUE(stack.ignores("keep.bin", false));

  IgnoreStack both;
  both.enter("", "*.bin\n", "!model.bin\n*.csv\n");
  both.enter("sub", "!a.csv\n", "");
  EXPECT_FALSE(both.ignores("sub/model.bin", false));
  EXPECT_TRUE(both.ignores("sub/a.csv", false));
}

TEST(IgnoreStack, SomeThingsAreNeverPacked) {
  IgnoreStack stack;
  stack.enter("", "!.git\n!*.pyc\n!__pycache__\n", "!.git\n!*.pyc\n!__pycache__\n");
  EXPECT_TRUE(stack.ignores(".git", true));
  EXPECT_TRUE(stack.ignores("sub/.git", false));  // of a worktree or submodule
  EXPECT_TRUE(stack.ignores("a/__pycache__", true));
  EXPECT_TRUE(stack.ignores("a/m.pyc", false));
  EXPECT_FALSE(stack.ignores(".venv", true));
  EXPECT_FALSE(stack.ignores(".github", true));
}

TEST(IgnoreStack, FilesAboveTheTreeCountToo) {
  IgnoreStack stack;
  stack.add_above("x/y", "/x/y/a\n/b\nc\n");
  stack.enter("", "", "");
  EXPECT_TRUE(stack.ignores("a", false));
  EXPECT_FALSE(stack.ignores("b", false));
  EXPECT_TRUE(stack.ignores("d/c", false));
}

}  // namespace
}  // namespace rubato::archive

#include "core/text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "core/error.h"

namespace rubato {
namespace {

using Views = std::vector<std::string_view>;

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,,b", ','), (Views{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (Views{""}));
  EXPECT_EQ(split(",", ','), (Views{"", ""}));
}

RC_GTEST_PROP(Text, JoinUndoesSplit, (std::string text)) { RC_ASSERT(join(split(text, ','), ",") == text); }

TEST(Text, SplitOnceCutsAtTheFirstSeparatorOnly) {
  const auto pair = split_once("key=a=b", '=');
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->first, "key");
  EXPECT_EQ(pair->second, "a=b");
  EXPECT_FALSE(split_once("key", '='));
}

TEST(Text, TrimTakesSpaceFromBothEndsOnly) {
  EXPECT_EQ(trim("  a b\t\n"), "a b");
  EXPECT_EQ(trim(" \n "), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Text, StripTellsWhetherThePrefixWasThere) {
  EXPECT_EQ(strip_prefix("tcp://host", "tcp://"), "host");
  EXPECT_EQ(strip_prefix("host", "tcp://"), std::nullopt);
  EXPECT_EQ(strip_suffix("a.yaml", ".yaml"), "a");
  EXPECT_EQ(strip_suffix("yaml", ".yaml"), std::nullopt);
}

TEST(ShellQuote, LeavesHarmlessWordsAlone) {
  EXPECT_EQ(shell_quote("train.py"), "train.py");
  EXPECT_EQ(shell_quote("--nnodes=1:4"), "--nnodes=1:4");
}

TEST(ShellQuote, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(shell_quote("a b"), "'a b'");
  EXPECT_EQ(shell_quote("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quote("$HOME;`id`"), "'$HOME;`id`'");
  EXPECT_EQ(shell_quote("~"), "'~'");
  EXPECT_EQ(shell_quote("PATH=x"), "'PATH=x'") << "in front of a command it would be an assignment";
}

TEST(ShellQuote, RefusesANulByte) { EXPECT_THROW(shell_quote(std::string_view("a\0b", 3)), Error); }

// What a POSIX shell makes of a word of single-quoted parts and escaped quotes.
std::string unquote(std::string_view word) {
  std::string out;
  bool inside = false;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '\'') {
      inside = !inside;
    } else if (word[i] == '\\' && !inside) {
      out += word[++i];
    } else {
      out += word[i];
    }
  }
  return out;
}

RC_GTEST_PROP(ShellQuote, GivesTheTextBackToTheCommand, ()) {
  std::string text = *rc::gen::string<std::string>();
  std::erase(text, '\0');
  RC_ASSERT(unquote(shell_quote(text)) == text);
}

TEST(ShellQuote, JoinsWordsIntoOneCommandLine) {
  EXPECT_EQ(shell_join({"python3", "-c", "print('x y')"}), "python3 -c 'print('\\''x y'\\'')'");
}

TEST(EditDistance, CountsInsertionsDeletionsChangesAndSwaps) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("max_wrokers", "max_workers"), 1u);
  EXPECT_EQ(edit_distance("same", "same"), 0u);
}

RC_GTEST_PROP(EditDistance, IsSymmetricAndZeroForEqualTextsOnly, (std::string a, std::string b)) {
  RC_ASSERT(edit_distance(a, b) == edit_distance(b, a));
  RC_ASSERT((edit_distance(a, b) == 0) == (a == b));
  RC_ASSERT(edit_distance(a, b) <= std::max(a.size(), b.size()));
}

TEST(Nearest, FindsTheWordThatWasMeant) {
  const std::vector<std::string> known = {"min_workers", "max_workers", "provider"};
  EXPECT_EQ(nearest("max_wrokers", known), "max_workers");
  EXPECT_EQ(nearest("Provider", known), "provider");
  EXPECT_EQ(nearest("banana", known), std::nullopt);
}

TEST(Nearest, TakesTheEarliestOfEquallyNearWords) {
  const std::vector<std::string> known = {"cat", "car"};
  EXPECT_EQ(nearest("caz", known), "cat");
}

TEST(Nearest, NeverReplacesTheWholeWord) {
  const std::vector<std::string> known = {"a", "b"};
  EXPECT_EQ(nearest("x", known), std::nullopt);
  EXPECT_EQ(nearest("", known), std::nullopt);
}

TEST(ConstantTimeEqual, ComparesLikeEquality) {
  EXPECT_TRUE(constant_time_equal("token", "token"));
  EXPECT_FALSE(constant_time_equal("token", "tokem"));
  EXPECT_FALSE(constant_time_equal("token", "tok"));
  EXPECT_TRUE(constant_time_equal("", ""));
}

RC_GTEST_PROP(ConstantTimeEqual, AgreesWithEquality, (std::string a, std::string b)) {
  RC_ASSERT(constant_time_equal(a, b) == (a == b));
  RC_ASSERT(constant_time_equal(a, a));
}

}  // namespace
}  // namespace rubato

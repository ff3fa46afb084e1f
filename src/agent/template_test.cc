#include "agent/template.h"

#include <gtest/gtest.h>

namespace rubato::agent {
namespace {

std::string with_rank(std::string_view text) { return safe_substitute(text, {{"local_rank", "3"}}); }

TEST(SafeSubstitute, KnowsBothFormsAndTheEscape) {
  EXPECT_EQ(with_rank("--gpu=$local_rank"), "--gpu=3");
  EXPECT_EQ(with_rank("out.${local_rank}.log"), "out.3.log");
  EXPECT_EQ(with_rank("$local_rank$local_rank-${local_rank}"), "33-3");
  EXPECT_EQ(with_rank("costs $$5"), "costs $5");
  EXPECT_EQ(with_rank("$$local_rank"), "$local_rank");
  EXPECT_EQ(with_rank("$$$local_rank"), "$3");
}

// As Python 3.11 prints them.
TEST(SafeSubstitute, LeavesEverythingElse) {
  for (const char* text : {"", "plain", "$", "a $ b", "$HOME", "${HOME}", "$local_rank_x", "${local_rank",
                           "${ local_rank}", "$LOCAL_RANK", "$1", "${}", "{local_rank}", "$\xc3\xa9"}) {
    EXPECT_EQ(with_rank(text), text);
  }
  EXPECT_EQ(with_rank("${local_rank}}"), "3}");
  EXPECT_EQ(with_rank("$local_rank.x"), "3.x");
}

}  // namespace
}  // namespace rubato::agent

#include "os/terminal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"

namespace rubato::os {
namespace {

std::deque<std::string> keys(std::string bytes, bool all = true) { return take_keys(bytes, all); }

TEST(TerminalKeys, LettersControlsAndSequencesHaveNames) {
  EXPECT_EQ(keys("jü\r\x04\x03\x7f\t"),
            (std::deque<std::string>{"j", "ü", "enter", "ctrl-d", "ctrl-c", "backspace", "tab"}));
  EXPECT_EQ(keys("\x1b[A\x1bOB\x1b[5~\x1b[6~"), (std::deque<std::string>{"up", "down", "page-up", "page-down"}));
}

TEST(TerminalKeys, ALoneEscapeIsAKeyOnceNothingFollows) {
  std::string bytes = "\x1b";
  EXPECT_TRUE(take_keys(bytes, false).empty());
  EXPECT_EQ(take_keys(bytes, true), std::deque<std::string>{"esc"});
  EXPECT_EQ(keys("\x1bq"), (std::deque<std::string>{"esc", "q"}));
}

TEST(TerminalKeys, WhatIsCutWaitsForItsRest) {
  std::string bytes = "a\x1b[";
  EXPECT_EQ(take_keys(bytes, false), std::deque<std::string>{"a"});
  bytes += "Bb\xc3";
  EXPECT_EQ(take_keys(bytes, false), (std::deque<std::string>{"down", "b"}));
  bytes += "\xbc";
  EXPECT_EQ(take_keys(bytes, false), std::deque<std::string>{"ü"});
}

TEST(TerminalKeys, UnknownSequencesAreSwallowedWhole) {
  EXPECT_EQ(keys("\x1b[1;5Cx"), std::deque<std::string>{"x"});
  EXPECT_EQ(keys("\x1b[200~x"), std::deque<std::string>{"x"});
}

TEST(Terminal, NeedsATerminal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(terminal_width(ends[0]), 0u);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace rubato::os

#include "os/foreground.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "core/error.h"

namespace rubato::os {
namespace {

TEST(Foreground, TellsTheExitCodeOrTheSignal) {
  EXPECT_EQ(run_in_front({"sh", "-c", "exit 7"}).code, 7);
  EXPECT_EQ(run_in_front({"sh", "-c", "kill -9 $$"}).signal, SIGKILL);
}

TEST(Foreground, PassesOnWhatWouldEndUsAlone) {
  const std::string parent = std::to_string(::getpid());
  EXPECT_EQ(run_in_front({"sh", "-c", "kill -TERM " + parent + "; sleep 60"}).signal, SIGTERM);
}

TEST(Foreground, AProgramThatIsNotThereIsNamed) {
  try {
    run_in_front({"no-such-program-here"});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(error.message.find("no-such-program-here"), std::string::npos);
    EXPECT_EQ(error.code, ErrorCode::kUsage);
  }
}

TEST(Captured, GivesItsInputAndTakesBothOutputs) {
  const Captured done = run_captured({"sh", "-c", "cat; echo oh >&2; exit 3"}, "hello", 60s);
  EXPECT_EQ(done.out, "hello");
  EXPECT_EQ(done.err, "oh\n");
  EXPECT_EQ(done.status.code, 3);
  EXPECT_FALSE(done.timed_out);
}

TEST(Captured, InputThatNobodyReadsIsNoTrouble) {
  const std::string much(1 << 20, 'x');
  EXPECT_EQ(run_captured({"sh", "-c", "exit 0"}, much, 60s).status.code, 0);
}

TEST(Captured, WhatIsLeftInTheBackgroundIsNotWaitedFor) {
  const Captured done = run_captured({"sh", "-c", "sleep 600 >/dev/null & echo $!"}, "", 60s);
  EXPECT_FALSE(done.timed_out);
  ::kill(std::stoi(done.out), SIGKILL);
}

TEST(Captured, WhatTakesTooLongIsKilled) {
  const Captured done = run_captured({"sleep", "600"}, "", 50ms);
  EXPECT_TRUE(done.timed_out);
  EXPECT_EQ(done.status.signal, SIGKILL);
}

}  // namespace
}  // namespace rubato::os

#include "world/processes.h"

#include <gtest/gtest.h>

#include <csignal>

namespace rubato {
namespace {

TEST(SignalName, KnowsEverySignalOfThisMachine) {
  EXPECT_EQ(signal_name(SIGHUP), "SIGHUP");
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(SIGUSR1), "SIGUSR1");
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(SIGUSR2), "SIGUSR2");
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(signal_name(SIGCHLD), "SIGCHLD");
  EXPECT_EQ(signal_name(SIGXCPU), "SIGXCPU");
  EXPECT_EQ(signal_name(SIGWINCH), "SIGWINCH");
  EXPECT_EQ(signal_name(SIGSYS), "SIGSYS");
}

TEST(SignalName, NamesRealTimeSignalsByOffset) {
  EXPECT_EQ(signal_name(34), "SIGRTMIN");
  EXPECT_EQ(signal_name(37), "SIGRTMIN+3");
}

TEST(SignalName, FallsBackToTheNumber) {
  EXPECT_EQ(signal_name(0), "signal 0");
  EXPECT_EQ(signal_name(33), "signal 33");
  EXPECT_EQ(signal_name(-4), "signal -4");
  EXPECT_EQ(signal_name(99), "signal 99");
}

TEST(Describe, TellsTheCodeOrTheSignal) {
  EXPECT_EQ(describe(ExitStatus{.code = 3}), "exit code 3");
  EXPECT_EQ(describe(ExitStatus{}), "exit code 0");
  EXPECT_EQ(describe(ExitStatus{.signal = SIGKILL}), "killed by SIGKILL (signal 9)");
  EXPECT_EQ(describe(ExitStatus{.signal = 99}), "killed by signal 99");
}

TEST(ExitStatus, ReturncodeIsNegativeForASignal) {
  EXPECT_EQ((ExitStatus{.code = 7}.returncode()), 7);
  EXPECT_EQ((ExitStatus{.signal = 15}.returncode()), -15);
  EXPECT_FALSE((ExitStatus{.signal = 15}.ok()));
}

}  // namespace
}  // namespace rubato

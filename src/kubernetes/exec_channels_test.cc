#include "kubernetes/exec_channels.h"

#include <gtest/gtest.h>

namespace rubato::kubernetes {
namespace {

TEST(ExecStatus, ReadsSuccessAndExitCodes) {
  const ExecEnd well = read_exec_status(R"({"metadata":{},"status":"Success"})");
  EXPECT_TRUE(well.ended);
  EXPECT_EQ(well.exit_code, 0);
  const ExecEnd failed = read_exec_status(
      R"({"status":"Failure","message":"command terminated with non-zero exit code","reason":"NonZeroExitCode",
          "details":{"causes":[{"reason":"ExitCode","message":"42"}]}})");
  EXPECT_TRUE(failed.ended);
  EXPECT_EQ(failed.exit_code, 42);
}

TEST(ExecStatus, KnowsACommandThatCouldNotBeRun) {
  const ExecEnd end = read_exec_status(R"({"status":"Failure","reason":"InternalError","message":"no such file"})");
  EXPECT_FALSE(end.ended);
  EXPECT_EQ(end.message, "no such file");
}

TEST(ExecStatus, TellsAContainerThatWasNotReachedFromACommandThatIsNotThere) {
  const auto end_of = [](const std::string& message) {
    return read_exec_status(R"({"status":"Failure","reason":"InternalError","code":500,"message":")" + message + "\"}");
  };
  EXPECT_TRUE(end_of("Internal error occurred: unable to upgrade connection: container not found").unreached);
  EXPECT_TRUE(end_of("error dialing backend: dial tcp 10.0.0.7:10250: connect: connection refused").unreached);
  EXPECT_FALSE(end_of("Internal error occurred: error executing command in container: failed to exec in container: "
                      "exec: no such file or directory")
                   .unreached);
}

TEST(ExecStatus, TrustsNoExitCodeThatIsNone) {
  for (const char* code : {"", "0", "-1", "256", "4x", "99999999999999999999"}) {
    const std::string begin = R"({"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":")";
    const std::string text = begin + code + R"("}]}})";
    const ExecEnd end = read_exec_status(text);
    EXPECT_FALSE(end.ended) << code;
    EXPECT_EQ(end.exit_code, 0) << code;
  }
  EXPECT_FALSE(read_exec_status("[]").ended);
  EXPECT_FALSE(read_exec_status("").ended);
}

TEST(ExecChannels, WritesSizesAndPieces) {
  EXPECT_EQ(resize_message(80, 24), R"({"Width":80,"Height":24})");
  EXPECT_EQ(framed_piece("abc"), "3\nabc");
  EXPECT_EQ(framed_piece(""), "0\n");
}

}  // namespace
}  // namespace rubato::kubernetes

#include "core/error.h"

#include <gtest/gtest.h>

namespace rubato {
namespace {

TEST(Error, RendersWhatWhereAndTheFix) {
  const Error error(ErrorCode::kUsage, "no such flag", "job.yaml:3:1", "did you mean --nnodes?");
  EXPECT_EQ(render(error), "error: no such flag\n  at  job.yaml:3:1\n  fix did you mean --nnodes?\n");
}

TEST(Error, LeavesOutEmptyParts) {
  EXPECT_EQ(render(Error(ErrorCode::kFailed, "it broke")), "error: it broke\n");
  EXPECT_EQ(render(Error(ErrorCode::kFailed, "it broke", "", "mend it")), "error: it broke\n  fix mend it\n");
}

TEST(Error, OnlyUsageExitsWithTwo) {
  EXPECT_EQ(exit_code(Error(ErrorCode::kUsage, "")), 2);
  for (const ErrorCode code : {ErrorCode::kFailed, ErrorCode::kUnavailable, ErrorCode::kConflict, ErrorCode::kNotFound,
                               ErrorCode::kNoCapacity, ErrorCode::kQuota, ErrorCode::kAuth}) {
    EXPECT_EQ(exit_code(Error(code, "")), 1) << to_string(code);
  }
}

TEST(Error, IsAStandardExceptionThatTellsItsMessage) {
  try {
    throw Error(ErrorCode::kNotFound, "gone");
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "gone");
  }
}

TEST(CheckDeathTest, AFailedCheckNamesTheConditionAndThePlace) {
  EXPECT_DEATH(CHECK(1 + 1 == 3), "CHECK\\(1 \\+ 1 == 3\\) failed at .*error_test.cc");
  CHECK(true);
}

}  // namespace
}  // namespace rubato

#include "model/worker_sizes.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace rubato {
namespace {

TEST(WorkerSizes, AreANumberARangeOrARangeInSteps) {
  EXPECT_EQ(parse_worker_sizes("4"), (WorkerSizes{4, 4, 1}));
  EXPECT_EQ(parse_worker_sizes("2:8"), (WorkerSizes{2, 8, 1}));
  EXPECT_EQ(parse_worker_sizes("8:32:8"), (WorkerSizes{8, 32, 8}));
  for (const char* text : {"4", "2:8", "8:32:8"}) EXPECT_EQ(to_string(parse_worker_sizes(text)), text);
}

TEST(WorkerSizes, RefuseTheRestAndSayWhy) {
  const auto message = [](const char* text) {
    try {
      parse_worker_sizes(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::kUsage);
      EXPECT_NE(error.hint, "");
      return error.message;
    }
    return std::string();
  };
  for (const char* text : {"", "a", ":", "1:", "1:2:3:4", "1.5", "1 2", "99999999999"})
    EXPECT_NE(message(text).find("is not a number of workers"), std::string::npos) << text;
  EXPECT_EQ(message("0"), "at least one worker is needed");
  EXPECT_EQ(message("4:2"), "the maximum 2 is below the minimum 4");
  EXPECT_EQ(message("1:200000"), "more than 100000 workers");
  EXPECT_EQ(message("2:8:0"), "a step is at least one worker");
  EXPECT_EQ(message("2:8:4"), "2 is not a multiple of the step 4");
  EXPECT_EQ(message("4:10:4"), "10 is not a multiple of the step 4");
}

}  // namespace
}  // namespace rubato

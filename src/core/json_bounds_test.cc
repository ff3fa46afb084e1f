#include "core/json_bounds.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace rubato {
namespace {

constexpr JsonBounds kSmall{.depth_max = 3, .entries_max = 4, .values_max = 8};

TEST(JsonBounds, TakesWhatIsWithinThem) {
  for (const char* text : {"", "1", "{}", "[1,2,3,4]", R"({"a":[[1]]})", R"({"a":1,"b":2,"c":3,"d":4})"}) {
    EXPECT_EQ(beyond_bounds(text, kSmall), std::nullopt) << text;
  }
}

TEST(JsonBounds, NameWhatIsTooMuch) {
  EXPECT_EQ(beyond_bounds("[[[[1]]]]", kSmall), "nested deeper than 3");
  EXPECT_EQ(beyond_bounds("[1,2,3,4,5]", kSmall), "a list or an object of more than 4 entries");
  EXPECT_EQ(beyond_bounds(R"({"a":1,"b":2,"c":3,"d":4,"e":5})", kSmall), "a list or an object of more than 4 entries");
  EXPECT_EQ(beyond_bounds("[[1,2,3],[1,2,3],[1,2,3]]", kSmall), "more than 8 values");
}

TEST(JsonBounds, CountNothingInsideOfStrings) {
  EXPECT_EQ(beyond_bounds(R"(["[[[[,,,,,,,,\"[[[["])", kSmall), std::nullopt);
  EXPECT_EQ(beyond_bounds(R"("\\",1,1,1)", kSmall), std::nullopt);
  EXPECT_EQ(beyond_bounds("\"never ends [[[[[[[[[", kSmall), std::nullopt);
  EXPECT_EQ(beyond_bounds("\"ends with a \\", kSmall), std::nullopt);
}

TEST(JsonBounds, EndAtTheFirstExcessAndSayIt) {
  const std::string brackets(10'000'000, '[');
  EXPECT_TRUE(beyond_bounds(brackets, JsonBounds{}));
  try {
    check_json_bounds(brackets, JsonBounds{}, "the request's body");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUsage);
    EXPECT_EQ(error.message, "the request's body is too much: nested deeper than 32");
  }
}

}  // namespace
}  // namespace rubato

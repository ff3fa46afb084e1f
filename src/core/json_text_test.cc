#include "core/json_text.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"

namespace rubato {
namespace {

std::string error_of(std::string_view text, const JsonTextLimits& limits = {}) {
  try {
    JsonText(text, "state.json", limits);
  } catch (const Error& error) {
    return error.where + " " + error.message;
  }
  return "";
}

TEST(JsonText, KnowsWhereEachValueStands) {
  const std::string text = "{\n  \"ä\": [1, -2.5e3,\n \"x\\u00e9\\ud83d\\ude00\\n\", null, true]}";
  const JsonText document(text, "a.json");
  const JsonNode& list = *document.root().find("ä");
  EXPECT_EQ(document.where(list.offset), "a.json:2:8");
  EXPECT_EQ(list.items[1].number, -2500);
  EXPECT_EQ(list.items[2].text, "xé😀\n");
  EXPECT_EQ(document.where(list.items[2].offset), "a.json:3:2");
  EXPECT_TRUE(list.items[3].is_null());
  EXPECT_TRUE(list.items[4].boolean);
  EXPECT_EQ(document.root().find("b"), nullptr);
}

TEST(JsonText, ReadsWhatPythonWrites) {
  const JsonText document("[NaN, Infinity, -Infinity, 1e999, -1e-999]", "a");
  EXPECT_TRUE(std::isnan(document.root().items[0].number));
  EXPECT_EQ(document.root().items[1].number, HUGE_VAL);
  EXPECT_EQ(document.root().items[2].number, -HUGE_VAL);
  EXPECT_EQ(document.root().items[3].number, HUGE_VAL);
  EXPECT_EQ(document.root().items[4].number, 0);
}

TEST(JsonText, RefusesWhatIsNotJson) {
  EXPECT_EQ(error_of("{\"a\": 1,\n \"a\": 2}"), "state.json:2:2 'a' is there twice");
  EXPECT_EQ(error_of("[1,]"), "state.json:1:4 this is not JSON: a value is expected here");
  EXPECT_EQ(error_of("[1 2]"), "state.json:1:4 this is not JSON: ',' or ']' is expected here");
  EXPECT_EQ(error_of("{a: 1}"), "state.json:1:2 this is not JSON: a field's name in quotes is expected here");
  for (const char* text : {"", " ", "[", "{\"a\"", "01", "+1", "1.", ".5", "1e", "tru", "\"a", "\"\\x\"", "\"\\ud800\"",
                           "[1] 2", "\"\t\"", "-", "{\"a\":}", "[[]"}) {
    EXPECT_NE(error_of(text), "") << text;
  }
}

TEST(JsonText, HasBounds) {
  EXPECT_NE(error_of(std::string(40, '[') + std::string(40, ']')), "");
  EXPECT_NE(error_of("[1,2,3,4]", {.values_max = 4}), "");
  EXPECT_NE(error_of("[1,2,3,4]", {.bytes_max = 4}), "");
}

TEST(JsonText, AnyBytesGiveAnErrorOrADocument) {
  const std::string seed = R"({"now": 1.5, "nodes": [{"id": "n\u00e9", "resources": {"GPU": 4}}, null, true, -1e-3]})";
  Random random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string text = seed;
    for (uint64_t k = random.below(4) + 1; k > 0; --k) {
      const size_t at = random.below(text.size());
      if (random.chance(0.3))
        text.erase(at, random.below(8));
      else
        text[at] = random.chance(0.5) ? static_cast<char>(random.below(256)) : "[]{}\",:\\u0e-"[random.below(12)];
      if (text.empty()) break;
    }
    error_of(text);
  }
}

}  // namespace
}  // namespace rubato

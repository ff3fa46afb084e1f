#include "model/yaml_value.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace rubato {
namespace {

using nlohmann::ordered_json;

ordered_json read(const std::string& text) { return value_of(Yaml::parse(text, "v.yaml")); }

TEST(YamlValue, ReadsPlainWordsAsPyYamlDoes) {
  EXPECT_EQ(read("[1, -3, 0x1f, 1.5, -0.25, true, no, On, ~, '1', null]"),
            ordered_json::parse(R"([1, -3, 31, 1.5, -0.25, true, false, true, null, "1", null])"));
  EXPECT_EQ(
      read("[012, 12:30, 1e5, 10.0.0.1, 2026-01-02, $Latest, n, yess, +, .]"),
      ordered_json::parse(R"(["012", "12:30", "1e5", "10.0.0.1", "2026-01-02", "$Latest", "n", "yess", "+", "."])"));
}

TEST(YamlValue, WritesBlocks) {
  const ordered_json value = {{"a", {{"b", ordered_json::array({1, ordered_json{{"c", "x: y"}, {"d", "no"}}})}}},
                              {"script", "#!/bin/sh\necho ${A}\n\nexit\n"},
                              {"empty", ordered_json::object()},
                              {"float", 1.0}};
  const std::string text =
      "a:\n  b:\n    - 1\n    - c: \"x: y\"\n      d: \"no\"\nscript: |\n  #!/bin/sh\n  echo ${A}\n\n  exit\n"
      "empty: {}\nfloat: 1.0\n";
  EXPECT_EQ(yaml_text(value), text);
  EXPECT_EQ(read(text), value);
}

TEST(YamlValue, OddTextsComeBack) {
  for (const char* text : {"",
                           " ",
                           "a ",
                           "- x",
                           "? x",
                           "{x}",
                           "[x",
                           "*a",
                           "&a",
                           "!t",
                           "%x",
                           "@x",
                           "`x`",
                           "a: b",
                           "a #b",
                           "#",
                           "~",
                           "null",
                           "true",
                           "1",
                           "1.5",
                           "0x1",
                           "a\nb",
                           "\na",
                           "a\n\n",
                           "a\tb",
                           " a\nb",
                           "'",
                           "\"",
                           "\\",
                           "\x01",
                           "\x7f",
                           "\xc2\x85",
                           "\xe2\x80\xa8",
                           "\xef\xbb\xbf",
                           "\xf0\x9f\x98\x80",
                           "...",
                           "---",
                           "a:",
                           ":a",
                           "ä\nö",
                           "x,y",
                           "=",
                           "<<",
                           "12:30"}) {
    const ordered_json value = {{"key", text}, {"list", ordered_json::array({text})}, {std::string("k") + text, 1}};
    EXPECT_EQ(read(yaml_text(value)), value) << yaml_text(value);
  }
}

RC_GTEST_PROP(YamlValue, AnyPrintableTextComesBack, ()) {
  auto text =
      *rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab1 0.:-#'\"\\{}[],&*!|>%@`~\n\t$=?yn")));
  const ordered_json value = {{"key", text}, {"list", ordered_json::array({ordered_json::array({text}), text})}};
  RC_ASSERT(read(yaml_text(value)) == value);
}

}  // namespace
}  // namespace rubato

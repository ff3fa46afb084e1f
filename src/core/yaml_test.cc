#include "core/yaml.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>

#include "core/error.h"

namespace rubato {
namespace {

Yaml parse(std::string_view text) { return Yaml::parse(text, "f.yaml"); }

// The error of something that must throw one.
Error error_of(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kFailed, "nothing was thrown");
}

Error parse_error(std::string_view text) {
  const Error error = error_of([&] { parse(text); });
  EXPECT_EQ(error.code, ErrorCode::kUsage) << error.message;
  return error;
}

TEST(Yaml, KnowsWhereEachNodeStands) {
  const Yaml root = parse("name: demo\nnodes:\n  - a\n  -   b\n");
  EXPECT_EQ(root.where(), "f.yaml:1:1");
  EXPECT_EQ(root.find("name")->where(), "f.yaml:1:7");
  EXPECT_EQ(root.find("nodes")->items()[1].where(), "f.yaml:4:7");
  EXPECT_EQ(root.entries()[1].key.where(), "f.yaml:2:1");
}

TEST(Yaml, TheLastOfTwoKeysWinsWhereThatIsAskedFor) {
  std::vector<Error> duplicates;
  const Yaml root = Yaml::parse_last_wins("a: 1\nb: 2\na: 3\na: 4\n", "f.yaml", duplicates);
  EXPECT_EQ(root.find("a")->as_int(), 4);
  EXPECT_EQ(root.find("a")->where(), "f.yaml:4:4");
  EXPECT_EQ(root.entries().size(), 2u);
  ASSERT_EQ(duplicates.size(), 2u);
  EXPECT_EQ(duplicates[1].where, "f.yaml:4:1");
  EXPECT_EQ(duplicates[1].message, "the key \"a\" appears twice, first in line 1");
  EXPECT_EQ(parse_error("a: 1\na: 2\n").where, "f.yaml:2:1");
}

TEST(Yaml, AnEmptyFileIsNull) {
  EXPECT_TRUE(parse("").is_null());
  EXPECT_TRUE(parse("# only a comment\n").is_null());
  EXPECT_EQ(parse("").where(), "f.yaml:1:1");
}

TEST(Yaml, TellsNullFromQuotedText) {
  for (const char* text : {"~", "null", "Null", "NULL"}) EXPECT_TRUE(parse(text).is_null()) << text;
  EXPECT_TRUE(parse("a:").find("a")->is_null());
  EXPECT_TRUE(parse("''").is_scalar());
  EXPECT_EQ(parse("'~'").as_string(), "~");
  EXPECT_EQ(parse("!!str null").as_string(), "null");
}

TEST(Yaml, KeepsTheStyle) {
  EXPECT_FALSE(parse("8").quoted());
  for (const char* text : {"'8'", "\"8\"", "|\n  8", ">\n  8", "!!str 8"}) EXPECT_TRUE(parse(text).quoted()) << text;
}

TEST(Yaml, AsStringGivesTheTextAsWritten) {
  EXPECT_EQ(parse("1.10").as_string(), "1.10");
  EXPECT_EQ(parse("no").as_string(), "no");
  EXPECT_EQ(parse("\"a\\0b\"").as_string(), std::string("a\0b", 3));
}

TEST(Yaml, ReadsNumbers) {
  EXPECT_EQ(parse("12").as_int(), 12);
  EXPECT_EQ(parse("+12").as_int(), 12);
  EXPECT_EQ(parse("0x1F").as_int(), 31);
  EXPECT_EQ(parse("0o644").as_int(), 0644);
  EXPECT_EQ(parse("-9223372036854775808").as_int(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(parse("9223372036854775807").as_int(), std::numeric_limits<int64_t>::max());
  EXPECT_DOUBLE_EQ(parse("-1.5e3").as_double(), -1500);
  EXPECT_DOUBLE_EQ(parse("3").as_double(), 3);
}

RC_GTEST_PROP(Yaml, EveryWholeNumberComesBack, (int64_t number)) {
  RC_ASSERT(Yaml::parse(std::to_string(number), "f").as_int() == number);
}

TEST(Yaml, ReadsWholeNumbersAsPyYamlAndJsonSchemasDo) {
  EXPECT_EQ(parse("3.0").as_int(), 3);
  EXPECT_EQ(parse("-3.000").as_int(), -3);
  EXPECT_EQ(parse("1_000_000").as_int(), 1'000'000);
  EXPECT_EQ(parse("0.0").as_int(), 0);
}

TEST(Yaml, RefusesWhatIsNoWholeNumber) {
  for (const char* text : {"1.5", "3.", ".0", "3.0.0", "_1", "-_1", "_", "3.01", "1_000.5", "1e3", "a",
                           "1 2", "--1", "+-1", "0x", "0x-1", "-", "", "[1]", "{}", "9223372036854775808",
                           "99999999999999999999999", "-9223372036854775809"}) {
    EXPECT_THROW(parse(text).as_int(), Error) << text;
  }
}

TEST(Yaml, RefusesANumberWithALeadingZeroBecauseItIsOctalToSome) {
  const Error error = error_of([] { parse("mode: 0644").find("mode")->as_int(); });
  EXPECT_EQ(error.where, "f.yaml:1:7");
  EXPECT_NE(error.hint.find("0o"), std::string::npos);
  EXPECT_EQ(parse("0").as_int(), 0);
}

TEST(Yaml, TellsHowAQuotedNumberIsFixed) {
  const Error error = error_of([] { parse("n: '8'").find("n")->as_int(); });
  EXPECT_EQ(error.message, "expected a whole number, found the text \"8\"");
  EXPECT_EQ(error.hint, "remove the quotes");
}

TEST(Yaml, NamesTheBoundsANumberIsOutsideOf) {
  const Yaml nine = parse("9");
  EXPECT_EQ(error_of([&] { nine.as_int(1, 8); }).message, "9 is not between 1 and 8");
  EXPECT_EQ(error_of([&] { nine.as_int(10); }).message, "9 is less than 10");
  EXPECT_EQ(nine.as_int(9, 9), 9);
}

TEST(Yaml, RefusesInfinityAndNotANumber) {
  for (const char* text : {"inf", "nan", ".inf", "1e999", "0x10", "1.5x", "-", "1_0"}) {
    EXPECT_THROW(parse(text).as_double(), Error) << text;
  }
}

TEST(Yaml, ReadsTheBooleansOfYaml11) {
  for (const char* text : {"true", "Yes", "on", "TRUE"}) EXPECT_TRUE(parse(text).as_bool()) << text;
  for (const char* text : {"false", "No", "off", "OFF"}) EXPECT_FALSE(parse(text).as_bool()) << text;
  for (const char* text : {"y", "1", "tRUE", "'yes'", "~", "[]"}) EXPECT_THROW(parse(text).as_bool(), Error) << text;
}

TEST(Yaml, ReadsDurations) {
  EXPECT_EQ(parse("2m").as_duration(), 120s);
  EXPECT_EQ(parse("30").as_duration(), 30s);
  EXPECT_THROW(parse("soon").as_duration(), Error);
}

TEST(Yaml, AWrongKindIsNamed) {
  EXPECT_EQ(error_of([] { parse("[a]").as_string(); }).message, "expected text, found a list");
  EXPECT_EQ(error_of([] { parse("a").items(); }).message, "expected a list, found \"a\"");
  EXPECT_EQ(error_of([] { parse("- a").entries(); }).message, "expected a mapping, found a list");
  EXPECT_EQ(error_of([] { parse("").as_string(); }).message, "expected text, found nothing");
}

TEST(Yaml, NullIsAnEmptyListAndAnEmptyMapping) {
  EXPECT_TRUE(parse("").items().empty());
  EXPECT_TRUE(parse("").entries().empty());
  EXPECT_FALSE(parse("").find("a"));
}

TEST(Yaml, RefusesADuplicateKeyAndNamesBothLines) {
  const Error error = parse_error("a: 1\nb: 2\na: 3\n");
  EXPECT_EQ(error.message, "the key \"a\" appears twice, first in line 1");
  EXPECT_EQ(error.where, "f.yaml:3:1");
}

TEST(Yaml, RefusesADuplicateKeyThatIsQuotedOnce) { parse_error("{a: 1, 'a': 2}"); }

TEST(Yaml, PointsAtTheQuoteThatIsNeverClosed) {
  const Error error = parse_error("a: 1\nb: \"open\nc: 2\n");
  EXPECT_EQ(error.message, "this quote is never closed");
  EXPECT_EQ(error.where, "f.yaml:2:4");
  EXPECT_EQ(parse_error("'open").where, "f.yaml:1:1");
}

TEST(Yaml, PointsAtATab) {
  const Error error = parse_error("a:\n\tb: 1\n");
  EXPECT_EQ(error.where, "f.yaml:2:1");
  EXPECT_NE(error.hint.find("tabs"), std::string::npos);
}

TEST(Yaml, PointsAtAByteThatIsNoText) {
  const Error error = parse_error("a: 1\nb: \xff\n");
  EXPECT_EQ(error.where, "f.yaml:2:4");
  parse_error(std::string_view("a: \0", 4));
}

TEST(Yaml, RefusesOtherBrokenGrammar) {
  for (const char* text :
       {"[a", "{a: 1", "a: b: c", "- a\nb: 1", "a: *none", "a: !python/object:os.system x", "%YAML 3\n---\na"}) {
    parse_error(text);
  }
}

TEST(Yaml, RefusesASecondDocument) {
  const Error error = parse_error("a: 1\n---\nb: 2\n");
  EXPECT_EQ(error.where, "f.yaml:2:1");
  EXPECT_EQ(parse("---\na: 1\n...\n").find("a")->as_int(), 1) << "one document with markers is one";
}

TEST(Yaml, RefusesKeysThatAreNotText) {
  parse_error("? [a]\n: 1\n");
  parse_error("~: 1\n");
  EXPECT_EQ(parse("1: x").find("1")->as_string(), "x");
}

TEST(Yaml, AnAliasStandsForItsAnchor) {
  const Yaml root = parse("a: &x [1, 2]\nb: *x\n");
  EXPECT_EQ(root.find("b")->items().size(), 2u);
  EXPECT_EQ(root.find("b")->where(), "f.yaml:1:4");
  EXPECT_EQ(parse("[&x 1, &x 2, *x]").items()[2].as_int(), 2) << "the latest anchor of a name counts";
}

TEST(Yaml, AMistypedAliasGetsASuggestion) {
  EXPECT_EQ(parse_error("a: &common 1\nb: *comon\n").hint, "did you mean \"common\"?");
}

TEST(Yaml, RefusesAnAliasInsideItsOwnAnchor) {
  EXPECT_EQ(parse_error("a: &x\n  b: *x\n").message, "the alias \"x\" stands inside its own anchor");
}

TEST(Yaml, MergedKeysLoseAgainstTheMappingsOwn) {
  const Yaml root = parse("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n");
  const Yaml use = *root.find("use");
  EXPECT_EQ(use.find("x")->as_int(), 1);
  EXPECT_EQ(use.find("y")->as_int(), 3);
  EXPECT_EQ(use.entries().size(), 2u);
  EXPECT_FALSE(use.find("<<"));
}

TEST(Yaml, TheEarlierOfSeveralMergedMappingsWins) {
  const Yaml root = parse("{a: &a {x: 1}, b: &b {x: 2, y: 2}, c: {<<: [*a, *b]}}");
  EXPECT_EQ(root.find("c")->find("x")->as_int(), 1);
  EXPECT_EQ(root.find("c")->find("y")->as_int(), 2);
}

TEST(Yaml, RefusesAMergeOfWhatIsNoMapping) {
  parse_error("<<: 1");
  parse_error("<<: [1]");
  parse_error("<<: [[{a: 1}]]");
  parse_error("a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a\n");
  EXPECT_EQ(parse("'<<': 1").find("<<")->as_int(), 1) << "a quoted << is a key like others";
}

TEST(Yaml, RefusesABillionLaughs) {
  std::string text = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string name = "a" + std::to_string(i), last = "*a" + std::to_string(i - 1);
    text += name + ": &" + name + " [" + last;
    for (int j = 0; j < 8; ++j) text += "," + last;
    text += "]\n";
  }
  EXPECT_NE(parse_error(text).message.find("nodes"), std::string::npos);
}

TEST(Yaml, RefusesMergesThatAddUpToTooMuch) {
  std::string text = "base: &b {";
  for (int i = 0; i < 1000; ++i) text += "k" + std::to_string(i) + ": 1, ";
  text += "}\nall:\n";
  for (int i = 0; i < 200; ++i) text += "  - {<<: *b}\n";
  parse_error(text);
}

TEST(Yaml, RefusesDeepNestingAlsoThroughAliases) {
  EXPECT_NE(parse_error(std::string(100000, '[')).message.find("deep"), std::string::npos);
  std::string text = "a0: &a0 [x]\n";
  for (int i = 1; i < 100; ++i) {
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  }
  EXPECT_NE(parse_error(text).message.find("deep"), std::string::npos);
}

TEST(Yaml, KeepsToTheLimitsItIsGiven) {
  const YamlLimits limits{.bytes_max = 30, .depth_max = 2, .nodes_max = 4};
  EXPECT_EQ(Yaml::parse("[1, 2, 3]", "f", limits).items().size(), 3u);
  EXPECT_THROW(Yaml::parse("[1, 2, 3, 4]", "f", limits), Error);
  EXPECT_THROW(Yaml::parse("[[1]]", "f", limits), Error);
  EXPECT_THROW(Yaml::parse("# a comment longer than thirty bytes", "f", limits), Error);
}

TEST(Yaml, AMessageShowsALongTextCut) {
  const Error error = error_of([] { parse(std::string(500, 'x')).as_int(); });
  EXPECT_LT(error.message.size(), 120u);
}

RC_GTEST_PROP(Yaml, AnyInputGivesATreeOrAnError, ()) {
  const std::string alphabet = "ab:-[]{}*&<'\"|>#!~ \n\t,?%01";
  const std::string text = *rc::gen::container<std::string>(rc::gen::elementOf(alphabet));
  try {
    Yaml::parse(text, "f");
  } catch (const Error& error) {
    RC_ASSERT(error.where.starts_with("f:"));
  }
}

TEST(StrictMapping, ReadsWhatIsThereAndWhatIsNot) {
  StrictMapping fields(parse("name: demo\nempty:\n"), "the job");
  EXPECT_EQ(fields.require("name").as_string(), "demo");
  EXPECT_FALSE(fields.find("empty")) << "a key without a value is as good as absent";
  EXPECT_FALSE(fields.find("nodes"));
  EXPECT_NO_THROW(fields.finish());
}

TEST(StrictMapping, RefusesAnUnknownKeyAndNamesTheNearest) {
  StrictMapping fields(parse("name: demo\nmax_wrokers: 3\n"), "the cluster");
  fields.require("name");
  fields.find("max_workers");
  const Error error = error_of([&] { fields.finish(); });
  EXPECT_EQ(error.message, "the cluster has the unknown key \"max_wrokers\"");
  EXPECT_EQ(error.where, "f.yaml:2:1");
  EXPECT_EQ(error.hint, "did you mean \"max_workers\"?");
}

TEST(StrictMapping, ListsTheKnownKeysWhenNoneIsNear) {
  StrictMapping fields(parse("banana: 1\nkiwi: 2\n"), "the job");
  fields.find("name");
  fields.allow("labels");
  const Error error = error_of([&] { fields.finish(); });
  EXPECT_EQ(error.message, "the job has the unknown key \"banana\" (and 1 more)");
  EXPECT_EQ(error.hint, "known keys: labels, name");
}

TEST(StrictMapping, NamesTheMissingKey) {
  StrictMapping fields(parse("nmae: demo\nimage:\n"), "the job");
  EXPECT_EQ(error_of([&] { fields.require("name"); }).hint, "did you mean it by \"nmae\"?");
  EXPECT_EQ(error_of([&] { fields.require("queue"); }).message, "the job lacks the key \"queue\"");
  EXPECT_EQ(error_of([&] { fields.require("image"); }).where, "f.yaml:2:7");
}

TEST(StrictMapping, TakesNullAsEmptyAndRefusesOtherKinds) {
  StrictMapping nothing(parse(""), "the job");
  EXPECT_NO_THROW(nothing.finish());
  EXPECT_EQ(error_of([] { StrictMapping(parse("[1]"), "the job"); }).message, "the job must be a mapping, not a list");
}

}  // namespace
}  // namespace rubato

#include "terminal/flags.h"

#include <gtest/gtest.h>

#include "terminal/testing.h"

namespace rubato::cli {
namespace {

const Command& sample() {
  static const Command table{
      .name = "run",
      .positional = {.name = "script.py [args...]", .remainder = true},
      .flags = {{.name = "nnodes", .kind = FlagKind::kValue, .value = "N", .env = "PET_NNODES"},
                {.name = "nproc-per-node", .kind = FlagKind::kValue, .value = "N", .env = "PET_NPROC_PER_NODE"},
                {.name = "node-rank", .kind = FlagKind::kValue, .value = "N"},
                {.name = "module", .short_name = 'm', .env = "PET_MODULE"},
                {.name = "redirects", .short_name = 'r', .kind = FlagKind::kValue, .value = "0-3"},
                {.name = "label", .kind = FlagKind::kRepeat, .value = "TEXT"},
                {.name = "nnodes-of-ours", .kind = FlagKind::kValue, .value = "N", .abbreviates = false}}};
  return table;
}

using Words = std::vector<std::string>;

ParsedCommand parse(const Words& arguments, const Environment& env = {}) {
  return parse_command(sample(), arguments, env);
}

TEST(Flags, DashesAndUnderscoresAreTheSame) {
  EXPECT_EQ(parse({"--nproc-per-node", "2", "s"}).value("nproc-per-node"), "2");
  EXPECT_EQ(parse({"--nproc_per_node", "2", "s"}).value("nproc-per-node"), "2");
  EXPECT_EQ(parse({"--nproc_per-node=2", "s"}).value("nproc-per-node"), "2");
}

TEST(Flags, AUniquePrefixIsEnough) {
  EXPECT_EQ(parse({"--nproc", "2", "s"}).value("nproc-per-node"), "2");
  EXPECT_EQ(parse({"--nn=3", "s"}).value("nnodes"), "3");  // the flag that is not to be abbreviated is not in the way
  EXPECT_TRUE(parse({"--mod", "s"}).has("module"));
}

TEST(Flags, AnAmbiguousPrefixNamesWhatItCouldBe) {
  const Error error = usage_error([] { parse({"--n", "2", "s"}); });
  EXPECT_EQ(error.message, "'--n' could be --nnodes, --nproc-per-node, --node-rank");
}

TEST(Flags, AnUnknownFlagSuggestsTheNearest) {
  const Error error = usage_error([] { parse({"--nprocs-per-node", "2", "s"}); });
  EXPECT_EQ(error.message, "unknown flag '--nprocs-per-node'");
  EXPECT_EQ(error.hint, "did you mean --nproc-per-node? see 'rubato run --help'");
  EXPECT_EQ(usage_error([] {
              parse({"--nnodes-of", "2"});
            }).hint,
            "did you mean --nnodes-of-ours? see 'rubato run --help'");
  EXPECT_EQ(usage_error([] { parse({"--xyzzy", "s"}); }).hint, "see 'rubato run --help'");
  EXPECT_EQ(usage_error([] { parse({"-x", "s"}); }).message, "unknown flag '-x'");
}

TEST(Flags, ShortFlagsTakeTheirValueInEveryFormOfArgparse) {
  EXPECT_EQ(parse({"-r", "3", "s"}).value("redirects"), "3");
  EXPECT_EQ(parse({"-r3", "s"}).value("redirects"), "3");
  EXPECT_EQ(parse({"-r=3", "s"}).value("redirects"), "3");
  const ParsedCommand both = parse({"-mr3", "s"});
  EXPECT_TRUE(both.has("module"));
  EXPECT_EQ(both.value("redirects"), "3");
}

TEST(Flags, AValueMayBeANegativeNumberButNoFlag) {
  EXPECT_EQ(parse({"--nnodes", "-1", "s"}).value("nnodes"), "-1");
  const Error error = usage_error([] { parse({"--nnodes", "--module", "s"}); });
  EXPECT_EQ(error.message, "--nnodes needs a value");
  EXPECT_EQ(error.hint, "write --nnodes N");
  EXPECT_EQ(usage_error([] { parse({"--nnodes"}); }).message, "--nnodes needs a value");
}

TEST(Flags, ASwitchTakesNoValue) {
  EXPECT_EQ(usage_error([] { parse({"--module=1", "s"}); }).message, "--module takes no value");
}

TEST(Flags, TheLastValueCountsAndRepeatsAreKept) {
  EXPECT_EQ(parse({"--nnodes", "1", "--nnodes", "2", "s"}).value("nnodes"), "2");
  EXPECT_EQ(parse({"--label", "a", "--label", "b", "s"}).find("label")->values, (Words{"a", "b"}));
}

TEST(Flags, WhatFollowsTheProgramBelongsToIt) {
  const ParsedCommand parsed = parse({"--nnodes", "1", "train.py", "--nnodes", "7", "-x"});
  EXPECT_EQ(parsed.value("nnodes"), "1");
  EXPECT_EQ(parsed.positionals, (Words{"train.py", "--nnodes", "7", "-x"}));
}

// Compared with argparse of Python 3.6 to 3.13: all agree.
TEST(Flags, TheSeparatorIsTreatedAsArgparseDoes) {
  EXPECT_EQ(parse({"--", "s.py", "--foo"}).positionals, (Words{"s.py", "--foo"}));
  EXPECT_EQ(parse({"s.py", "--", "--foo"}).positionals, (Words{"s.py", "--foo"}));
  EXPECT_EQ(parse({"s.py", "--foo", "--", "x"}).positionals, (Words{"s.py", "--foo", "--", "x"}));
  EXPECT_EQ(parse({"--", "s.py", "--", "--", "x"}).positionals, (Words{"s.py", "--", "--", "x"}));
  EXPECT_EQ(parse({"--", "-m", "s"}).positionals, (Words{"-m", "s"}));
  EXPECT_EQ(parse({"-", "x"}).positionals, (Words{"-", "x"}));
}

TEST(Flags, AVariableStandsInForAFlag) {
  const ParsedCommand parsed = parse({"s"}, {{"PET_NNODES", "4"}, {"PET_MODULE", "1"}});
  EXPECT_EQ(parsed.value("nnodes"), "4");
  EXPECT_EQ(parsed.find("nnodes")->origin, "PET_NNODES");
  EXPECT_TRUE(parsed.has("module"));
  EXPECT_EQ(parse({"--nnodes", "2", "s"}, {{"PET_NNODES", "4"}}).find("nnodes")->origin, "--nnodes");
}

TEST(Flags, AVariableOfASwitchIsZeroOrOne) {
  EXPECT_FALSE(parse({"s"}, {{"PET_MODULE", "0"}}).has("module"));
  EXPECT_FALSE(parse({"s"}, {{"PET_MODULE", ""}}).has("module"));
  EXPECT_EQ(usage_error([] { parse({"s"}, {{"PET_MODULE", "maybe"}}); }).message, "PET_MODULE=maybe: expected 0 or 1");
}

TEST(Flags, HelpStopsTheReading) {
  EXPECT_TRUE(parse({"--help", "--xyzzy"}).help);
  EXPECT_TRUE(parse({"-h"}).help);
  EXPECT_FALSE(parse({"train.py", "--help"}).help);
}

TEST(Flags, ACommandWithoutRemainderRefusesMoreWords) {
  const Command table{.name = "completion", .positional = {.name = "SHELL", .at_most = 1}};
  EXPECT_EQ(parse_command(table, {"bash"}, {}).positionals, (Words{"bash"}));
  const Error error = usage_error([&] { parse_command(table, {"bash", "zsh"}, {}); });
  EXPECT_EQ(error.message, "unexpected argument 'zsh'");
}

TEST(Flags, BadValuesNameTheirOrigin) {
  EXPECT_EQ(bad_value({.values = {"x"}, .origin = "--nnodes"}, "no").message, "--nnodes x: no");
  EXPECT_EQ(bad_value({.values = {"x"}, .origin = "PET_NNODES", .joint = '='}, "no").message, "PET_NNODES=x: no");
  EXPECT_EQ(bad_value({.values = {""}, .origin = "--nnodes"}, "no").message, "--nnodes '': no");
}

TEST(Flags, AnEmptyArgumentIsNotTheDefault) {
  const Command down{.name = "down",
                     .positional = {.name = "CLUSTER", .at_most = 1},
                     .flags = {{.name = "cluster", .kind = FlagKind::kValue, .value = "NAME", .env = "RUBATO_CLUSTER"},
                               {.name = "state", .kind = FlagKind::kValue, .value = "FILE|-"}}};
  const Error error = usage_error([&] { parse_command(down, {""}, {}); });
  EXPECT_EQ(error.message, "an empty argument was given for CLUSTER");
  EXPECT_NE(error.hint.find("is a variable of your shell not set?"), std::string::npos);
  EXPECT_EQ(usage_error([&] { parse_command(down, {"--cluster", ""}, {}); }).message, "--cluster needs a value");
  EXPECT_EQ(usage_error([&] { parse_command(down, {"--state="}, {}); }).message, "--state needs a value");
  EXPECT_FALSE(parse_command(down, {}, {{"RUBATO_CLUSTER", ""}}).has("cluster"));
  EXPECT_EQ(parse({"train.py", ""}).positionals, (Words{"train.py", ""}));
}

}  // namespace
}  // namespace rubato::cli

#include "cli/cli.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/help.h"
#include "cli/testing.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

struct Result {
  int code = 0;
  std::string out, err;
  std::optional<LaunchSpec> launched;
};

Result type(std::vector<std::string> args, Environment env = {}) {
  Result result;
  Shell shell{.env = std::move(env)};
  shell.out = [&](std::string_view text) { result.out += text; };
  shell.err = [&](std::string_view text) { result.err += text; };
  shell.launch = [&](const LaunchSpec& spec) {
    result.launched = spec;
    return 7;
  };
  result.code = run_cli(args, shell);
  return result;
}

TEST(Cli, HelpListsTheCommandsThatAreNotHidden) {
  const Result result = type({"--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.out.find("doctor"), std::string::npos);
  EXPECT_EQ(result.out.find("docs"), std::string::npos);
  EXPECT_EQ(type({"help"}).out, result.out);
}

TEST(Cli, WithoutWordsItShowsHelpAndFails) {
  const Result result = type({});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("Usage"), std::string::npos);
}

TEST(Cli, EveryCommandExplainsItselfInThreeWays) {
  for (const Command* command : all_commands()) {
    const std::string name(command->name);
    std::vector<std::string> parts;
    for (const std::string_view word : split(command->name, ' ')) parts.emplace_back(word);
    const auto with = [&](std::vector<std::string> before, const char* after) {
      before.insert(before.end(), parts.begin(), parts.end());
      if (after != nullptr) before.emplace_back(after);
      return type(before);
    };
    const Result result = with({}, "--help");
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find(command->usage), std::string::npos) << name;
    EXPECT_EQ(with({}, "-h").out, result.out);
    EXPECT_EQ(with({"help"}, nullptr).out, result.out);
  }
}

TEST(Cli, HelpLinesFitATerminal) {
  for (const Command* command : all_commands()) {
    std::istringstream lines(command_help(*command, false));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(Cli, ColourIsOnlyWhereItIsWanted) {
  EXPECT_EQ(command_help(run_table(), false).find('\x1b'), std::string::npos);
  EXPECT_NE(command_help(run_table(), true).find('\x1b'), std::string::npos);
}

TEST(Cli, AnUnknownCommandSuggestsTheNearest) {
  const Result result = type({"docter"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "error: unknown command 'docter'\n  fix did you mean rubato doctor? see 'rubato --help'\n");
  EXPECT_NE(type({"train.py"}).err.find("did you mean rubato run train.py?"), std::string::npos);
  EXPECT_NE(type({"--nnodes"}).err.find("did you mean rubato run --nnodes?"), std::string::npos);
  EXPECT_NE(type({"--verison"}).err.find("did you mean rubato --version?"), std::string::npos);
  EXPECT_NE(type({"--cluster", "a", "jobs"}).err.find("flags stand after the command: rubato COMMAND --cluster"),
            std::string::npos);
  EXPECT_NE(type({"xyzzy"}).err.find("see 'rubato --help'"), std::string::npos);
}

TEST(Cli, AGroupOfCommandsNeedsOneMoreWord) {
  const Result result = type({"job", "j-1"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("write rubato job show j-1"), std::string::npos);
  EXPECT_EQ(type({"config"}).err,
            "error: rubato config needs a subcommand: check, show, explain, migrate, schema\n"
            "  fix write rubato config check, or see 'rubato help config check'\n");
}

TEST(Cli, HelpOfAGroupListsItsCommands) {
  const Result result = type({"help", "config"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("config migrate"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("submit"), std::string::npos);
  EXPECT_EQ(type({"config", "--help"}).out, result.out);
  EXPECT_EQ(type({"help", "nothing"}).code, 2);
  EXPECT_NE(type({"help", "cofnig"}).err.find("did you mean rubato config?"), std::string::npos);
  EXPECT_NE(type({"docs", "--json"}).err.find("--json needs --openapi"), std::string::npos);
}

TEST(Cli, WordsOfOtherToolsAndSlipsGetASuggestion) {
  const auto hint = [](std::vector<std::string> parts) {
    const Result result = type(std::move(parts));
    EXPECT_EQ(result.code, 2);
    const size_t at = result.err.find("did you mean ");
    return at == std::string::npos ? result.err : result.err.substr(at, result.err.find('?') - at);
  };
  EXPECT_EQ(hint({"cancel", "j-1"}), "did you mean rubato stop");
  EXPECT_EQ(hint({"kill", "j-1"}), "did you mean rubato stop");
  EXPECT_EQ(hint({"ps"}), "did you mean rubato jobs");
  EXPECT_EQ(hint({"queue"}), "did you mean rubato jobs");
  EXPECT_EQ(hint({"job", "list"}), "did you mean rubato jobs");
  EXPECT_EQ(hint({"job", "logs", "x"}), "did you mean rubato logs");
  EXPECT_EQ(hint({"job", "shwo", "x"}), "did you mean rubato job show");
  EXPECT_EQ(hint({"config", "chek", "c.yaml"}), "did you mean rubato config check");
  EXPECT_EQ(hint({"shutdown"}), "did you mean rubato down");
  EXPECT_EQ(type({"config", "xyzzy"}).err,
            "error: unknown command 'config xyzzy'\n"
            "  fix write rubato config check; there are: check, show, explain, migrate, schema\n");
}

TEST(Cli, VersionComesAsTextAndAsJson) {
  EXPECT_TRUE(type({"version"}).out.starts_with("rubato "));
  EXPECT_EQ(type({"--version"}).out, type({"version"}).out);
  const auto json = nlohmann::json::parse(type({"version", "--json"}).out);
  for (const char* key : {"version", "commit", "build", "compiler"}) EXPECT_TRUE(json.contains(key)) << key;
}

TEST(Cli, RunHandsTheSpecToTheLauncherAndReturnsItsCode) {
  const std::string script = scratch("rubato_cli_test") + ".py";
  std::ofstream(script) << "pass\n";
  const Result result = type({"run", "--nproc-per-node", "2", script, "--x"}, {{"PET_MAX_RESTARTS", "3"}});
  std::filesystem::remove(script);
  ASSERT_TRUE(result.launched) << result.err;
  EXPECT_EQ(result.code, 7);
  EXPECT_EQ(result.launched->nproc, 2);
  EXPECT_EQ(result.launched->max_restarts, 3);
  EXPECT_EQ(result.launched->args, std::vector<std::string>{"--x"});
}

TEST(Cli, RunRefusesAMissingScriptAndAFolder) {
  const Result missing = type({"run", "/no/such/train.py"});
  EXPECT_EQ(missing.code, 1) << "as torchrun's";
  EXPECT_NE(missing.err.find("there is no script '/no/such/train.py'"), std::string::npos);
  EXPECT_NE(type({"run", "/proc"}).err.find("'/proc' is a folder"), std::string::npos);
  EXPECT_FALSE(missing.launched);
}

TEST(Cli, ErrorsGoToStandardErrorWithCodeTwo) {
  const Result result = type({"run", "--nprocs-per-node", "2", "t.py"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "error: unknown flag '--nprocs-per-node'\n"
            "  fix did you mean --nproc-per-node? see 'rubato run --help'\n");
}

TEST(Cli, CompletionKnowsEveryFlag) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Result result = type({"completion", shell});
    EXPECT_EQ(result.code, 0);
    for (const Command* command : all_commands()) {
      if (command->hidden) continue;
      for (const Flag& flag : command->flags) {
        if (flag.hidden) continue;
        EXPECT_NE(result.out.find(flag.name), std::string::npos) << shell << " " << flag.name;
      }
    }
    EXPECT_NE(result.out.find("show"), std::string::npos);
  }
  EXPECT_EQ(type({"completion"}).code, 2);
  EXPECT_EQ(type({"completion", "tcsh"}).code, 2);
}

// The words of a line, up to a redirection or comment; what is in single quotes is one.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> parts(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (!quoted && (c == '>' || c == '<' || c == '#')) {
      break;
    } else if (!quoted && c == ' ') {
      if (!parts.back().empty()) parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

// What the reference shows can be typed: every flag of every example is one.
TEST(Cli, EveryExampleIsUnderstood) {
  for (const Command* command : all_commands()) {
    for (const auto& [what, line] : command->examples) {
      std::vector<std::string> parts = words_of(line);
      parts.erase(std::ranges::find(parts, "|"), parts.end());  // what another program is told
      ASSERT_FALSE(parts.empty());
      EXPECT_EQ(parts.front(), "rubato") << line;
      parts.erase(parts.begin());
      const FoundCommand found = find_command(parts);
      ASSERT_EQ(found.command, command) << line;
      parts.erase(parts.begin(), parts.begin() + static_cast<long>(found.length));
      EXPECT_NO_THROW(parse_command(*command, parts, {})) << line;
    }
  }
}

TEST(Cli, DocsHaveEveryCommandAndFlag) {
  const std::string text = type({"docs"}).out;
  for (const Command* command : all_commands()) {
    EXPECT_EQ(text.find("## rubato " + std::string(command->name)) != std::string::npos, !command->hidden);
  }
  EXPECT_NE(text.find("`--nnodes N\\|MIN:MAX[:STEP]`"), std::string::npos);
  EXPECT_NE(text.find("`PET_NNODES`"), std::string::npos);
}

}  // namespace
}  // namespace rubato::cli

// Flags: command lines from tables. One table of descriptors makes parsing, help, completion and the reference.
//
// The parser keeps argparse's manners, because torchrun's users type what argparse taught them: dashes and
// underscores are the same, a unique prefix is enough, `--flag=value` and `-r3` work, an environment variable
// stands in for a flag that was not given.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace rubato::cli {

using Environment = std::map<std::string, std::string>;

enum class FlagKind {
  kSwitch,  // present or not
  kValue,   // the last one given counts
  kRepeat,  // all given count
};

struct Flag {
  std::string_view name;  // without the dashes, words joined by '-'
  char short_name = 0;
  FlagKind kind = FlagKind::kSwitch;
  std::string_view value;  // what stands for the value in help: "N|auto"
  std::string_view help;   // one line
  std::string_view group;
  std::string_view default_text;
  std::string_view env;      // the variable that stands in for it, or empty
  bool abbreviates = true;   // a unique prefix will do
  std::string_view choices;  // words for completion, with spaces between
  std::string_view names;    // for completion: what 'rubato complete' lists: jobs, nodes, subjects, clusters
  bool hidden = false;       // not in help: said by one rubato to another
};

// What comes after the flags.
struct Positional {
  std::string_view name;  // "script.py [args...]"
  std::string_view help;
  std::string_view choices;  // words for completion, with spaces between
  std::string_view names;    // as in Flag
  bool remainder = false;    // the first one ends our flags: what follows belongs to the program
  int at_most = 0;           // without remainder
};

struct Command {
  std::string_view name;
  std::string_view summary;  // one line for the list of commands
  std::string_view usage;    // "rubato run [flags] script.py [args...]"
  std::string_view about;    // a paragraph, or empty
  Positional positional;
  std::vector<Flag> flags;                                              // in the order of help; groups together
  std::vector<std::pair<std::string_view, std::string_view>> examples;  // what for, command line
  bool hidden = false;
};

// One flag as it was given.
struct Given {
  std::vector<std::string> values;  // empty for a switch; several only for kRepeat
  std::string origin;               // "--nnodes" or "PET_NNODES": names it in errors
  char joint = ' ';                 // between origin and value in errors: '=' for a variable
};

struct ParsedCommand {
  std::map<std::string, Given, std::less<>> given;  // by Flag::name
  std::vector<std::string> positionals;
  bool separated = false;  // a "--" stood around the program: what follows was meant for it
  bool help = false;       // -h or --help came before the program; the rest was not read

  const Given* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // The value, or `fallback` when the flag was not given.
  std::string value(std::string_view name, std::string_view fallback = {}) const;
};

// Throws a usage Error that names the word and the nearest flag.
ParsedCommand parse_command(const Command& command, const std::vector<std::string>& args, const Environment& env);

// "ORIGIN VALUE: WHY" as a usage Error, for a value that does not mean anything.
Error bad_value(const Given& given, std::string_view why, std::string hint = {});

}  // namespace rubato::cli

// Help texts and the Markdown reference, made from the tables of commands. No I/O: `--help` answers at once.
#pragma once

#include <string>

#include "terminal/flags.h"

namespace rubato::cli {

std::string overall_help(bool colour);
// The commands of `config` and its like; empty when there is no such group.
std::string group_help(const std::string& group, bool colour);
std::string command_help(const Command& command, bool colour);

// docs/cli.md: all commands that are not hidden.
std::string reference_markdown();

}  // namespace rubato::cli

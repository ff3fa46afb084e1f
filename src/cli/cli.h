// The binary's front door: picks the command, prints help and errors, returns the exit code.
#pragma once

#include <string>
#include <vector>

#include "client/shell.h"

namespace rubato::cli {

// Exit codes: 0, 1 for a failure, 2 for wrong words. `args` without the program's name.
int run_cli(const std::vector<std::string>& args, const Shell& shell);

int main(int argc, char** argv);

}  // namespace rubato::cli

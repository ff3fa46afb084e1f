// The binary's front door: picks the command, prints help and errors, returns the exit code.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags.h"
#include "model/launch_spec.h"

namespace rubato::cli {

// What a command sees of the outside; tests give their own.
struct Shell {
  Environment env;
  bool colour = false;                           // on standard output
  std::function<void(std::string_view)> out;     // data
  std::function<void(std::string_view)> err;     // errors and words
  std::function<int(const LaunchSpec&)> launch;  // `rubato run`
};

// Exit codes: 0, 1 for a failure, 2 for wrong words. `args` without the program's name.
int run_cli(const std::vector<std::string>& args, const Shell& shell);

int main(int argc, char** argv);

}  // namespace rubato::cli

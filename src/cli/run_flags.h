// The words of `rubato run` → LaunchSpec. Pure: no file, no clock, no environment but the one that is passed in.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "model/launch_spec.h"
#include "os/python.h"
#include "world/world.h"

namespace rubato::cli {

// Throws a usage Error that names the flag or variable and what to write instead.
LaunchSpec parse_run(const std::vector<std::string>& args, const Environment& env, const MachineFacts& machine);

// The same, from words that were parsed with run_table().
LaunchSpec launch_spec(const ParsedCommand& parsed, const MachineFacts& machine);

// Throws a usage Error when Python could not run what was found at the program's path.
void check_script(const LaunchSpec& spec, os::ScriptKind found);

}  // namespace rubato::cli

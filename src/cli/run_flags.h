// The words of `rubato run` → LaunchSpec. Pure: no file, no clock, no environment but the one that is passed in.
#pragma once

#include <string>
#include <vector>

#include "model/launch_spec.h"
#include "os/python.h"
#include "terminal/flags.h"
#include "world/world.h"

namespace rubato::cli {

// Throws a usage Error that names the flag or variable and what to write instead.
LaunchSpec parse_run(const std::vector<std::string>& args, const Environment& env, const MachineFacts& machine);

// `launch` stands for torch.distributed.launch: scripts read their rank from --local-rank, unless --use-env is given.
enum class RunVerb { kRun, kLaunch };

// The same, from words that were parsed with run_table() or launch_table().
LaunchSpec launch_spec(const ParsedCommand& parsed, const Environment& env, const MachineFacts& machine,
                       RunVerb verb = RunVerb::kRun);

// Whether torchrun's parser of flags would refuse these words itself, which ends it with 2. What it refuses later (a
// name that it does not know, flags that exclude each other, a script that is not there) ends it with 1.
bool is_refused_by_argparse(const ParsedCommand& parsed);

// Throws a usage Error when Python could not run what was found at the program's path. "-" is standard input.
void check_script(const LaunchSpec& spec, os::ScriptKind found);

}  // namespace rubato::cli

// `rubato run` after its flags are read: builds the World of this machine and runs the agent in it.
#pragma once

#include "model/launch_spec.h"

namespace rubato::cli {

// Returns the exit code of the process. Throws an Error for what it cannot go on after.
int run_command(const LaunchSpec& spec);

}  // namespace rubato::cli

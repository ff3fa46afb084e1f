// `rubato complete`: names for the completion scripts.
#pragma once

#include "cli/cli.h"

namespace rubato::cli {

// One name a line. Quick, and silent when there is no cluster, or its head does not answer.
int complete_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

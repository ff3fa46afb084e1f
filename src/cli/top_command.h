// `rubato top`. Returns the exit code.
#pragma once

#include "cli/cli.h"

namespace rubato::cli {

int top_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

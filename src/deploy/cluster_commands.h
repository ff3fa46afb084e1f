// `rubato up` and `rubato down`. Each returns the exit code.
#pragma once

#include "client/shell.h"

namespace rubato::cli {

int up_command(const ParsedCommand& parsed, const Shell& shell);
int down_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

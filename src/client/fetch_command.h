// `rubato fetch`: what a job has written, from the head into a folder here.
#pragma once

#include "client/shell.h"

namespace rubato::cli {

// Returns the exit code. The folder is there whole, or not at all.
int fetch_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

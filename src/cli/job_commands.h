// The commands about jobs that are there already. Each returns the exit code.
#pragma once

#include "cli/cli.h"

namespace rubato::cli {

int jobs_command(const ParsedCommand& parsed, const Shell& shell);
int job_show_command(const ParsedCommand& parsed, const Shell& shell);
int logs_command(const ParsedCommand& parsed, const Shell& shell);
int stop_command(const ParsedCommand& parsed, const Shell& shell);
int rerun_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

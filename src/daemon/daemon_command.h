// `rubato daemon`: heads and agents that outlive the connection over which they are started.
#pragma once

#include "client/shell.h"
#include "terminal/flags.h"

namespace rubato::cli {

int daemon_command(const ParsedCommand& parsed, const Shell& shell);
// Its exit code is the command's, as a shell tells it.
int while_heard_command(const ParsedCommand& parsed, const Shell& shell);
int supervise_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

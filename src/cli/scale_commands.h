// Commands of the autoscaler: request, audit, why --last.
#pragma once

#include "cli/cli.h"
#include "terminal/flags.h"

namespace rubato::cli {

int drain_command(const ParsedCommand& parsed, const Shell& shell);
int node_lost_command(const ParsedCommand& parsed, const Shell& shell);
int request_command(const ParsedCommand& parsed, const Shell& shell);
int audit_command(const ParsedCommand& parsed, const Shell& shell);

// `rubato why --last`: the newest decisions of the autoscaler.
int why_last_command(const ParsedCommand& parsed, const Shell& shell);

// The body of POST requests. Throws a usage Error when nothing, or nothing sensible, is asked for.
nlohmann::json request_body(const ParsedCommand& parsed);

}  // namespace rubato::cli

// The commands that tell how the cluster is, and why. Each returns the exit code.
#pragma once

#include "cli/cli.h"

namespace rubato::cli {

int status_command(const ParsedCommand& parsed, const Shell& shell);
int events_command(const ParsedCommand& parsed, const Shell& shell);
int why_command(const ParsedCommand& parsed, const Shell& shell);
int replay_command(const ParsedCommand& parsed, const Shell& shell);

// The Why of a job, or else of a node of that name. Throws kNotFound when it is neither.
nlohmann::json ask_why(Api& api, const std::string& subject);

}  // namespace rubato::cli

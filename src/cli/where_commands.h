// The commands that tell what and where clusters are. Each returns the exit code.
#pragma once

#include "cli/cli.h"

namespace rubato::cli {

int get_head_ip_command(const ParsedCommand& parsed, const Shell& shell);
int get_worker_ips_command(const ParsedCommand& parsed, const Shell& shell);
int monitor_command(const ParsedCommand& parsed, const Shell& shell);
int clusters_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

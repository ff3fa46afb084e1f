// The commands that act on a cluster's machines. Each returns the exit code.
#pragma once

#include "client/shell.h"

namespace rubato::cli {

int exec_command(const ParsedCommand& parsed, const Shell& shell);
int connect_command(const ParsedCommand& parsed, const Shell& shell);
int attach_command(const ParsedCommand& parsed, const Shell& shell);
int rsync_up_command(const ParsedCommand& parsed, const Shell& shell);
int rsync_down_command(const ParsedCommand& parsed, const Shell& shell);

// `rubato submit CLUSTER.yaml SCRIPT`: whether the words after `submit` mean that, and doing it.
bool is_submit_to_cluster(const cli::Command& table, const std::vector<std::string>& arguments);
int submit_to_command(const cli::Command& table, const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

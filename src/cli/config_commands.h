// `rubato config check|show|explain|migrate|schema`. Each returns the exit code; none needs a cluster.
#pragma once

#include "cli/cli.h"
#include "model/cluster_file.h"

namespace rubato::cli {

int config_check_command(const ParsedCommand& parsed, const Shell& shell);
int config_show_command(const ParsedCommand& parsed, const Shell& shell);
int config_explain_command(const ParsedCommand& parsed, const Shell& shell);
int config_migrate_command(const ParsedCommand& parsed, const Shell& shell);
int config_schema_command(const ParsedCommand& parsed, const Shell& shell);

// Reads and checks a cluster file for a command that goes on with it: prints what is wrong to standard error.
// nullopt when there are errors; the exit code is then 2.
std::optional<ClusterFile> usable_cluster_file(const std::string& path, const Shell& shell);

}  // namespace rubato::cli

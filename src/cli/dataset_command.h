// `rubato dataset get`: datasets of buckets into a folder of this machine, which keeps them for the next job.
#pragma once

#include "cli/cli.h"
#include "terminal/flags.h"

namespace rubato::cli {

const Command& dataset_get_table();
int dataset_get_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

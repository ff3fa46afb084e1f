// `rubato allocate`: the decision about adaptive jobs, without a cluster.
#pragma once

#include "cli/cli.h"
#include "terminal/flags.h"

namespace rubato::cli {

const Command& allocate_table();
int allocate_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

// `rubato allocate`: the decision about adaptive jobs, without a cluster.
#pragma once

#include "cli/cli.h"

namespace rubato::cli {

int allocate_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

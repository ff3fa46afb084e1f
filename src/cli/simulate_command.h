// `rubato simulate`: a cluster, a workload and faults in virtual time. Needs no cluster.
#pragma once

#include "cli/cli.h"

namespace rubato::cli {

int simulate_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

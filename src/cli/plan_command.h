// `rubato plan`: the autoscaler's decision, without a cluster.
#pragma once

#include "cli/cli.h"

namespace rubato::cli {

int plan_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli

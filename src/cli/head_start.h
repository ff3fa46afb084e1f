// Starting a cluster's head on this machine, and waiting until it answers.
#pragma once

#include "cli/cli.h"
#include "cli/cluster_tools.h"
#include "cli/head_command.h"

namespace rubato::cli {

// With an identity, which is made if there is none. Throws with the head's own error, or its last words, when it does
// not come up. `accept_loss`: as head_command's.
void start_head_process(ClusterTools& tools, const Shell& shell, const ClusterPlace& place, Api& api,
                        const HeadSettings& settings, Duration timeout, bool accept_loss = false);

}  // namespace rubato::cli

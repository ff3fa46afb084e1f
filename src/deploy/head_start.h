// Starting a cluster's head on this machine, under a supervisor, and waiting until it answers; and ending the
// supervision.
#pragma once

#include "client/head_settings.h"
#include "client/shell.h"
#include "deploy/cluster_tools.h"

namespace rubato::cli {

struct StartHead {
  HeadSettings settings;
  Duration timeout = 60s;
  bool accept_loss = false;   // as HeadStart's
  bool is_supervised = true;  // false: for this once; nobody starts it again
};

// With an identity, which is made if there is none. One that its supervisor has started meanwhile is taken as it is.
// Throws with the head's own error, or its last words, when it does not come up. The supervisor then goes on trying if
// the cluster was up before, and ends if this was its first start.
void start_head_process(ClusterTools& tools, const Shell& shell, const ClusterPlace& place, Api& api,
                        const StartHead& start);

// For a head that runs: it has a supervisor from now on. Nothing happens when it has one.
void ensure_supervisor(ClusterTools& tools, const Shell& shell, const ClusterPlace& place);

// Nobody starts the head again; whether it runs does not change. The supervisor is gone on return.
void end_supervision(ClusterTools& tools, const ClusterPlace& place, Api& api);

}  // namespace rubato::cli

// PastApi: what a cluster that is down has left in its folder, in the documents of its head's API. Only GETs that need
// no head: status, jobs, jobs/ID, jobs/ID/why, jobs/ID/logs, events, replay, nodes/ID/log.
#pragma once

#include <memory>

#include "cli/api.h"
#include "cli/cluster_home.h"

namespace rubato::cli {

// Null when the folder has no journal: there is nothing to read. Nothing is read before the first call.
std::unique_ptr<Api> open_past_api(const ClusterPlace& place);

}  // namespace rubato::cli

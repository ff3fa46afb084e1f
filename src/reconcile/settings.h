// What of a new cluster file changes no node now, and still is to be said: limits, times, prices. Pure.
#pragma once

#include <vector>

#include "model/cluster_spec.h"
#include "reconcile/nodes.h"

namespace rubato::reconcile {

// {"setting", "idle_timeout", 0, "5m → 1m"}; {"setting", "priority of small", 0, "0 → 1"}.
std::vector<PlannedChange> setting_changes(const ClusterSpec& before, const ClusterSpec& after);

}  // namespace rubato::reconcile

// The autoscaler's documents: demand, decisions with their reasons, costs. Pure.
#pragma once

#include <optional>
#include <vector>

#include "api/scale_documents.h"
#include "cluster/state.h"
#include "head/shared_records.h"
#include "reconcile/nodes.h"

namespace rubato::head {

// For `rubato status`: what is wanted, what comes, and why nothing more does.
api::Autoscaler autoscaler_document(const cluster::State& state, WallTime now);

// Owned, leaked, cost so far. `there`: what the provider has; nullopt: it could not tell.
api::Audit audit_document(const cluster::State& state, const std::optional<std::vector<NodeId>>& there, WallTime now);

std::vector<api::PlannedChange> changes_document(const std::vector<reconcile::PlannedChange>& changes);

// What `up` and the autoscaler would do with this file.
api::Plan plan_document(const cluster::State& state, const ClusterSpec& next, WallTime now);

// A launch, a removal, or that nothing is launched; nullopt for any other event.
std::optional<api::ScaleDecision> decision_document(const cluster::Record& record);

// Of a node that may be gone, from records about it, oldest first; nullopt when there are none.
std::optional<api::Why> why_from_records(const NodeId& node, const SharedRecords& records);

}  // namespace rubato::head

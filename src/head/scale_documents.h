// The autoscaler's documents: demand, decisions with their reasons, costs. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "cluster/state.h"

namespace rubato::head {

// For `rubato status`: what is wanted, what comes, and why nothing more does.
nlohmann::json autoscaler_document(const cluster::State& state, WallTime now);

// Owned, leaked, cost so far. `there`: what the provider has; nullopt: it could not tell.
nlohmann::json audit_document(const cluster::State& state, const std::optional<std::vector<NodeId>>& there,
                              WallTime now);

// What `up` and the autoscaler would do with this file: {"changes", "launches", "terminate", "cost_per_hour", ...}.
nlohmann::json plan_document(const cluster::State& state, const ClusterSpec& next, WallTime now);

// A launch, a removal, or that nothing is launched; nullopt for any other event.
std::optional<nlohmann::json> decision_document(const cluster::Record& record);

// Of a node that may be gone, from records about it, oldest first; nullopt when there are none.
std::optional<nlohmann::json> why_from_records(const NodeId& node, const std::vector<cluster::Record>& records);

// Into a why document: what `reasons` has.
void add_reasons(nlohmann::json& document, const cluster::Reasons& reasons);

}  // namespace rubato::head

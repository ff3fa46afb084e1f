// Reasons of a scaling plan, for people.
#pragma once

#include "policy/scale_outcome.h"

namespace rubato::policy {

// Why these nodes: `nodes` are those of the packing that the launch stands for.
ScaleReason why_launch(const ScaleProblem& problem, const Draft& draft, const PlannedLaunch& launch,
                       const std::vector<size_t>& nodes);

// One reason for all bundles that the same limit keeps waiting.
std::vector<ScaleReason> why_unfulfilled(const ScaleProblem& problem, const Draft& draft,
                                         const std::vector<Unfulfilled>& unfulfilled);

ScaleReason why_min_workers(const ScaleProblem& problem, const Binding& binding);

ScaleReason why_cost(const ScalePlan& plan);

// "$0.096", "$12.24", "$1521": what the eye needs.
std::string dollars(double amount);

}  // namespace rubato::policy

// The autoscaler for people: pure functions of the API's documents.
#pragma once

#include <string>

#include "api/scale_documents.h"
#include "terminal/layout.h"

namespace rubato::cli {

// Demand, launches, and why there are no more; empty when all is quiet.
std::string autoscaler_text(const api::Autoscaler& autoscaler, const Style& look);

std::string audit_text(const api::Audit& audit, const Style& look);

// Of a plan for a cluster file. `open`: the cluster is up, and its own demand was planned for.
std::string file_plan_text(const api::Plan& plan, bool open, const Style& look);

// One decision with its reasons.
std::string decision_text(const api::ScaleDecision& decision, const Style& look);

}  // namespace rubato::cli

// The autoscaler for people: pure functions of the API's documents.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/layout.h"

namespace rubato::cli {

// Of the "autoscaler" of a status document: demand, launches, and why there are no more; empty when all is quiet.
std::string autoscaler_text(const nlohmann::json& autoscaler, const Look& look);

std::string audit_text(const nlohmann::json& audit, const Look& look);

// Of a plan document for a cluster file. `open`: the cluster is up, and its own demand was planned for.
std::string file_plan_text(const nlohmann::json& plan, bool open, const Look& look);

// One decision with its reasons.
std::string decision_text(const nlohmann::json& decision, const Look& look);

}  // namespace rubato::cli

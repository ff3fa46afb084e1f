// Signs that a job of another project is still run by that project's own controller: then we leave it alone. Pure.
//
// Two controllers of one job delete each other's pods. Theirs shows itself by pods that belong to the job and are not
// ours, and by writing the job's status (metadata.managedFields) after us, or of late.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "elasticjob/job.h"

namespace rubato::elasticjob {

// Fills in who wrote the status, and when.
void read_status_writers(Job& job, const nlohmann::json& document);

bool is_run_by_another(const Job& job, WallTime now);

// The labels by which the kind's own controller finds its pods of this job.
std::string foreign_selector(const Job& job);

// A pod of the job that lives and that we did not make.
bool is_foreign_pod(const Job& job, const nlohmann::json& document);

// The status with one more condition, as a merge patch; null: it has it already, or its kind has no conditions.
nlohmann::json aside_patch(const Job& job, const std::string& message, WallTime now);

}  // namespace rubato::elasticjob

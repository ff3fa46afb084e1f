// Jobs for people: pure functions of the API's documents.
#pragma once

#include <string>
#include <vector>

#include "api/job_documents.h"
#include "terminal/layout.h"

namespace rubato::cli {

// "no jobs" with the next command when there is none.
std::string jobs_text(const std::vector<api::JobSummary>& jobs, const Style& look);
Table jobs_table(const std::vector<api::JobSummary>& jobs, const Style& look);

std::string job_text(const api::Job& job, const Style& look);
std::string job_text(const api::JobDetail& job, const Style& look);

// "2/2:4": how many workers there are, of how many that there may be.
std::string workers_text(const api::JobSummary& job);

// succeeded, failed or stopped: nothing more will happen to it.
bool has_ended(const api::JobSummary& job);

// The nodes whose part of the job's output is "held" there, "kept" at the head, or "missing".
std::vector<std::string> outputs_in(const api::Job& job, const std::string& state);
// A warning for each output that is missing; empty: none is.
std::string missing_outputs_text(const api::Job& job);

// A warning about a job that the cluster, as its file is now, can never start; empty: it can.
std::string never_fits_text(const api::Job& job);

// What can be typed next about the job.
std::string next_commands(const std::string& id, const std::string& cluster_flag);

// "train (j-12ab34cd) failed: WHY", and the first traceback; for the end of --wait.
std::string end_text(const api::Job& job, const Style& look);

}  // namespace rubato::cli

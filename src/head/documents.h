// Documents: a state as the JSON that the API promises (docs/openapi.yaml). Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "cluster/observed.h"
#include "cluster/state.h"
#include "head/job_logs.h"

namespace rubato::head {

nlohmann::json event_document(const cluster::Record& record);
nlohmann::json node_document(const cluster::State& state, const cluster::Node& node, WallTime now);
nlohmann::json job_summary(const cluster::Job& job);
nlohmann::json job_document(const cluster::State& state, const cluster::Job& job);
// Lines that are missing in a job's log because a disk was full: all of them, and by rank.
nlohmann::json missing_lines_document(const std::map<int, MissingLines>& missing);
// Into summaries of jobs, where there are any.
void add_missing(nlohmann::json& jobs, const MissingByJob& missing);
// Summaries: jobs with seats, the oldest first; the queue in its order, with "queue_place" from 1; then `ended`
// in the order given.
nlohmann::json job_summaries(const cluster::State& state, const std::vector<const cluster::Job*>& ended);
// GET jobs. `all`: ended ones too.
nlohmann::json jobs_document(const cluster::State& state, bool all);
// `events`: the last few records, oldest first.
nlohmann::json status_document(const cluster::State& state, const std::vector<cluster::Record>& events, WallTime now);
// What stands against it, and what would change that.
nlohmann::json reasons_document(const cluster::Reasons& reasons);
nlohmann::json why_job(const cluster::State& state, const cluster::Observed& observed, const cluster::Job& job,
                       WallTime now);
nlohmann::json why_node(const cluster::State& state, const cluster::Node& node);

}  // namespace rubato::head

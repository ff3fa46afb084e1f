// A state as the documents that the API promises (src/api). Pure.
#pragma once

#include <vector>

#include "api/cluster_documents.h"
#include "cluster/observed.h"
#include "cluster/state.h"
#include "head/job_logs.h"
#include "head/shared_records.h"

namespace rubato::head {

api::Event event_document(const cluster::Record& record);
api::Events events_document(const SharedRecords& records);
api::Node node_document(const cluster::State& state, const cluster::Node& node, WallTime now);
api::Nodes nodes_document(const cluster::State& state, WallTime now);
api::JobSummary job_summary(const cluster::Job& job);
// Its place in the queue, and who is before it; empty for a job that does not wait. The longer the queue, the longer it
// takes: beside the loop.
api::QueuePlace queue_document(const cluster::State& state, const cluster::Job& job);
// With its place in the queue, if it waits: beside the loop.
api::Job job_document(const cluster::State& state, const cluster::Job& job);
// Lines that are missing in a job's log because a disk was full: all of them, and by rank.
api::MissingLines missing_lines_document(const std::map<int, MissingLines>& missing);
// Into summaries of jobs, where there are any.
void add_missing(std::vector<api::JobSummary>& jobs, const MissingByJob& missing);
// Summaries: jobs with seats, the oldest first; the queue in its order, with "queue_place" from 1; then `ended`
// in the order given.
std::vector<api::JobSummary> job_summaries(const cluster::State& state, const std::vector<const cluster::Job*>& ended);
// GET jobs. `all`: ended ones too.
api::Jobs jobs_document(const cluster::State& state, bool all);
// `events`: the last few records, oldest first.
api::Status status_document(const cluster::State& state, const SharedRecords& events, WallTime now);
// What stands against it, and what would change that.
std::vector<api::Obstacle> obstacles(const std::vector<cluster::Reasons::Obstacle>& list);
std::vector<api::Change> changes_of(const cluster::Reasons& reasons);
api::Reasons reasons_document(const cluster::Reasons& reasons);
// Without its place in the queue.
api::Why why_job(const cluster::State& state, const cluster::Observed& observed, const cluster::Job& job, WallTime now);
api::Why why_node(const cluster::State& state, const cluster::Node& node);

}  // namespace rubato::head

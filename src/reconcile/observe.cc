#include "reconcile/observe.h"

namespace rubato::reconcile {

using cluster::CheckpointMissed;
using cluster::Event;
using cluster::Job;
using cluster::JobPhase;
using cluster::Observed;
using cluster::SeatDone;
using cluster::SeatFailed;
using cluster::SeatVacated;
using cluster::State;
using elastic::ErrandReport;
using elastic::ErrandState;

namespace {

void observe_seat(const Job& job, const NodeId& node, const ErrandReport& report, std::vector<Event>& events) {
  const bool running = job.phase == JobPhase::kRunning && report.generation == job.generation;
  const bool last = cluster::gathering(job.phase) && job.failure_pending && report.generation + 1 == job.generation;
  if (report.state == ErrandState::kFailed && (running || last) && !job.failed.contains(node)) {
    events.push_back(SeatFailed{job.id, report.generation, node, report.failures, report.fenced});
  }
}

// Whatever was asked of it since: that these workers ended well stays true. False: their last lines are on the way.
bool observe_end(const Job& job, const NodeId& node, const ErrandReport& report, std::vector<Event>& events) {
  const bool now = report.state == ErrandState::kSucceeded;
  const Generation generation = now ? report.generation : report.succeeded;
  if (generation == 0) return true;
  const bool of_this =
      job.phase == JobPhase::kRunning && generation == job.generation && job.seat_on(node) && !job.done.contains(node);
  const bool of_last = generation == job.ran && job.unfinished.contains(node);
  if (!of_this && !of_last) return true;
  if (report.state == ErrandState::kRunning || report.state == ErrandState::kPreparing) return false;
  events.push_back(SeatDone{job.id, generation, node});
  return true;
}

template <class Value>
void forget_node(std::map<JobId, std::map<NodeId, Value>>& by_job, const NodeId& node) {
  for (auto it = by_job.begin(); it != by_job.end();) {
    it->second.erase(node);
    it = it->second.empty() ? by_job.erase(it) : std::next(it);
  }
}

}  // namespace

void forget(Observed& observed, const NodeId& node) {
  forget_node(observed.ready, node);
  forget_node(observed.problems, node);
  for (auto it = observed.finishing.begin(); it != observed.finishing.end();) {
    it->second.erase(node);
    it = it->second.empty() ? observed.finishing.erase(it) : std::next(it);
  }
}

std::vector<Event> observe(const State& state, Observed& observed, const NodeId& node,
                           const std::vector<ErrandReport>& reports) {
  std::vector<Event> events;
  std::map<JobId, const ErrandReport*> by_job;
  for (const ErrandReport& report : reports) by_job[report.job] = &report;

  // Agents repeat a missed checkpoint for as long as they wait: it is new when the seat has become ready.
  std::map<JobId, Generation> was_ready;
  for (const auto& [id, report] : by_job) {
    if (observed.of(id, node, report->generation)) was_ready[id] = report->generation;
  }
  forget(observed, node);
  for (const auto& [id, report] : by_job) {
    const auto it = state.jobs.find(id);
    if (it == state.jobs.end() || cluster::ended(it->second.phase)) continue;
    const Job& job = it->second;
    if (report->state == ErrandState::kPreparing && !report->problem.empty())
      observed.problems[id][node] = report->problem;
    if (report->state == ErrandState::kReady) observed.ready[id][node] = {report->generation, report->port};
    if (!observe_end(job, node, *report, events)) observed.finishing[id].insert(node);
    if (job.seat_on(node)) observe_seat(job, node, *report, events);
    if (!report->forced.empty() && report->generation == job.generation && report->state == ErrandState::kReady &&
        !was_ready.contains(id)) {
      events.push_back(CheckpointMissed{id, report->generation, node, report->forced});
    }
  }

  // Workers that were to go: gone when the agent says so, or does not know the job (it holds none of it then).
  const auto here = state.jobs_on.find(node);
  if (here == state.jobs_on.end()) return events;
  for (const JobId& id : here->second) {
    const Job& job = state.jobs.at(id);
    if (!job.leaving.contains(node) || job.seat_on(node)) continue;
    const auto report = by_job.find(id);
    if (report == by_job.end() || report->second->state == ErrandState::kGone) events.push_back(SeatVacated{id, node});
  }
  return events;
}

}  // namespace rubato::reconcile

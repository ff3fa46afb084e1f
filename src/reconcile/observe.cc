#include "reconcile/observe.h"

#include <algorithm>

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
using elastic::JobOrderReport;
using elastic::JobOrderState;

namespace {

// A record must fit into the journal, and a job keeps no more of them: the first ones, which tell the cause.
std::vector<elastic::Failure> first_failures(std::vector<elastic::Failure> failures) {
  if (failures.size() <= elastic::kFailuresMax) return failures;
  std::ranges::stable_sort(failures, {}, &elastic::Failure::at);
  failures.resize(elastic::kFailuresMax);
  return failures;
}

void observe_seat(const Job& job, const NodeId& node, const JobOrderReport& report, std::vector<Event>& events) {
  const bool running = job.phase == JobPhase::kRunning && report.generation == job.generation;
  const bool last =
      cluster::gathering(job.phase) && job.restarts.failure_pending && report.generation + 1 == job.generation;
  const bool failed = report.state == JobOrderState::kFailed;
  // Some have failed while others of its group live on.
  const bool partly = running && report.in_place && !report.failures.empty();
  if (((failed && (running || last)) || partly) && !job.failed.contains(node)) {
    events.push_back(SeatFailed{job.id, report.generation, node, first_failures(report.failures), report.fenced});
  }
}

// A node of a round that lives on while the next one gathers: what failed there since.
void observe_kept(const Job& job, const NodeId& node, const JobOrderReport& report, std::vector<Event>& events) {
  if (!cluster::gathering(job.phase) || !job.in_place || !report.in_place || report.failures.empty()) return;
  if (report.in_place->planned != job.ran || job.failed.contains(node)) return;
  const auto of_round = [&](const cluster::Seat& seat) { return seat.node == node; };
  if (std::ranges::any_of(job.round, of_round))
    events.push_back(SeatFailed{job.id, job.ran, node, first_failures(report.failures), report.fenced});
}

void observe_in_place(Observed& observed, const Job& job, const NodeId& node, const JobOrderReport& report) {
  if (!report.in_place) return;
  observed.in_place[job.id][node] = *report.in_place;
  const bool late = job.in_place && (report.in_place->planned != job.generation || !report.in_place->settled);
  if (job.phase == JobPhase::kRunning && job.seat_on(node) && (late || !report.in_place->broken.empty()))
    observed.unsettled[job.id].insert(node);
  if (cluster::gathering(job.phase) && job.in_place && report.generation == job.generation &&
      report.state == JobOrderState::kFailed)
    observed.declined[job.id].insert(node);
}

// Whatever was asked of it since: that these workers ended well stays true. False: their last lines are on the way.
bool observe_end(const Job& job, const NodeId& node, const JobOrderReport& report, std::vector<Event>& events) {
  const bool now = report.state == JobOrderState::kSucceeded;
  const Generation generation = now ? report.generation : report.succeeded;
  if (generation == 0) return true;
  const bool of_this =
      job.phase == JobPhase::kRunning && generation == job.generation && job.seat_on(node) && !job.done.contains(node);
  const bool of_last = generation == job.ran && job.unfinished.contains(node);
  if (!of_this && !of_last) return true;
  if (report.state == JobOrderState::kRunning || report.state == JobOrderState::kPreparing) return false;
  events.push_back(SeatDone{job.id, generation, node});
  return true;
}

void forget_node(std::map<JobId, std::set<NodeId>>& by_job, const NodeId& node) {
  for (auto it = by_job.begin(); it != by_job.end();) {
    it->second.erase(node);
    it = it->second.empty() ? by_job.erase(it) : std::next(it);
  }
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
  forget_node(observed.in_place, node);
  forget_node(observed.finishing, node);
  forget_node(observed.unsettled, node);
  forget_node(observed.declined, node);
}

std::vector<Event> observe(const State& state, Observed& observed, const NodeId& node,
                           const std::vector<JobOrderReport>& reports) {
  std::vector<Event> events;
  std::map<JobId, const JobOrderReport*> by_job;
  for (const JobOrderReport& report : reports) by_job[report.job] = &report;

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
    if (report->state == JobOrderState::kPreparing && !report->problem.empty())
      observed.problems[id][node] = report->problem;
    if (report->state == JobOrderState::kReady) observed.ready[id][node] = {report->generation, report->port};
    if (!observe_end(job, node, *report, events)) observed.finishing[id].insert(node);
    if (job.seat_on(node)) observe_seat(job, node, *report, events);
    observe_kept(job, node, *report, events);
    observe_in_place(observed, job, node, *report);
    if (const cluster::Seat* seat = job.seat_on(node); seat && job.leaving.contains(node) && report->in_place) {
      // Of a seat with fewer workers than before: who left it has ended.
      const bool fewer = job.phase == JobPhase::kRunning && report->in_place->planned == job.generation &&
                         report->in_place->living <= seat->workers;
      if (fewer) events.push_back(SeatVacated{id, node});
    }
    if (!report->forced.empty() && report->generation == job.generation && report->state == JobOrderState::kReady &&
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
    if (report != by_job.end() && report->second->state != JobOrderState::kGone) continue;
    if (report != by_job.end() && !report->second->forced.empty() && job.phase != JobPhase::kStopping)
      events.push_back(CheckpointMissed{id, report->second->generation, node, report->second->forced});
    events.push_back(SeatVacated{id, node});
  }
  return events;
}

}  // namespace rubato::reconcile

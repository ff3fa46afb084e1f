#include "head/documents.h"

#include <fmt/format.h>

#include <algorithm>

#include "head/scale_documents.h"
#include "policy/place.h"
#include "policy/queue.h"
#include "reconcile/fence.h"
#include "reconcile/nodes.h"
#include "reconcile/scale_input.h"

namespace rubato::head {

using cluster::Job;
using cluster::JobPhase;
using cluster::later;
using cluster::Node;
using cluster::NodePhase;
using cluster::State;

namespace {

constexpr size_t kEndedShown = 10;
constexpr size_t kAheadShown = 5;

std::optional<WallTime> unless_never(WallTime time) { return time == WallTime{} ? std::nullopt : std::optional(time); }

api::Change change(const std::string& text, WallTime when = {}) { return {text, unless_never(when)}; }

std::string phase_text(const Job& job) {
  if (job.phase == JobPhase::kQueued && !job.reasons.against.empty()) return job.reasons.against.front().text;
  return job.reason;
}

api::Decision decision_of(const Job& job) {
  return {job.decided, unless_never(job.decided_at), job.phase == JobPhase::kQueued ? "held in the queue" : job.reason};
}

api::Output output_document(const NodeId& node, const cluster::Output& output) {
  using Phase = cluster::Output::Phase;
  api::Output document;
  document.node = node.value;
  document.state = output.phase == Phase::kKept ? "kept" : output.phase == Phase::kMissing ? "missing" : "held";
  document.files = output.files;
  document.bytes = output.bytes;
  if (!output.reason.empty()) document.reason = output.reason;
  return document;
}

std::vector<api::Member> members_of(const Job& job) {
  std::vector<api::Member> members;
  int64_t rank = 0;
  for (const cluster::Seat& seat : job.seats) {
    const bool done = job.done.contains(seat.node);
    const bool failed = job.failed.contains(seat.node);
    const char* state = done ? "done" : failed ? "failed" : job.phase == JobPhase::kRunning ? "running" : "gathering";
    members.push_back({seat.node.value, {rank}, seat.workers, state});
    rank += seat.workers;
  }
  for (const auto& [node, workers] : job.leaving) {
    if (!job.seat_on(node)) members.push_back({node.value, {}, workers, "leaving"});
  }
  return members;
}

}  // namespace

api::QueuePlace queue_document(const State& state, const Job& job) {
  api::QueuePlace document;
  if (job.phase != JobPhase::kQueued) return document;
  const policy::QueuePlace found = policy::queue_place(state, job, kAheadShown);
  document.place = static_cast<int64_t>(found.place);
  document.of = static_cast<int64_t>(state.queued.size());
  document.ahead.emplace();
  for (const Job* one : found.ahead)
    document.ahead->push_back({one->id.value, one->spec.name, one->spec.owner, one->spec.priority});
  return document;
}

std::vector<api::Obstacle> obstacles(const std::vector<cluster::Reasons::Obstacle>& list) {
  std::vector<api::Obstacle> out;
  for (const cluster::Reasons::Obstacle& one : list)
    out.push_back({one.text, one.where.empty() ? std::nullopt : std::optional(one.where)});
  return out;
}

std::vector<api::Change> changes_of(const cluster::Reasons& reasons) {
  std::vector<api::Change> out;
  for (const std::string& text : reasons.changes) out.push_back(change(text));
  return out;
}

api::Event event_document(const cluster::Record& record) {
  api::Event document;
  document.offset = record.offset;
  document.time = record.time;
  document.type = cluster::type_name(record.event);
  document.text = cluster::describe(record.event);
  document.data = cluster::event_fields(record.event);
  if (const auto job = cluster::job_of(record.event)) document.job = job->value;
  if (const auto node = cluster::node_of(record.event)) document.node = node->value;
  return document;
}

api::Events events_document(const SharedRecords& records) {
  api::Events document;
  for (const auto& record : records) document.events.push_back(event_document(*record));
  return document;
}

api::Node node_document(const State& state, const Node& node, WallTime now) {
  api::Node document;
  document.id = node.id.value;
  document.type = node.type;
  document.head = node.head;
  document.phase = to_string(node.phase);
  document.step = node.step;
  document.detail = node.detail;
  document.updating = !node.refreshing.empty();
  document.since = node.since;
  document.age_s = to_seconds(std::max<Duration>(0s, now - node.requested));
  document.address = node.info.address;
  document.host = node.info.host;
  document.resources = node.resources;
  document.used = cluster::used_on(state, node.id);
  if (const auto here = state.jobs_on.find(node.id); here != state.jobs_on.end()) {
    for (const JobId& id : here->second) document.jobs.push_back(id.value);
  }
  document.why = node.reason;
  if (node.phase == NodePhase::kDraining) document.deadline = unless_never(node.deadline);
  return document;
}

api::Nodes nodes_document(const State& state, WallTime now) {
  api::Nodes document;
  for (const auto& [id, node] : state.nodes) document.nodes.push_back(node_document(state, node, now));
  return document;
}

api::JobSummary job_summary(const Job& job) {
  api::JobSummary document;
  document.id = job.id.value;
  document.name = job.spec.name;
  document.phase = to_string(job.phase);
  document.owner = job.spec.owner;
  document.priority = job.spec.priority;
  document.workers = job.workers();
  document.workers_min = job.spec.workers_min;
  document.workers_max = job.spec.workers_max;
  document.workers_step = job.spec.workers_step;
  document.generation = job.generation;
  document.restarts_used = job.restarts.used;
  document.max_restarts = job.spec.max_restarts;
  document.reason = phase_text(job);
  document.submitted = unless_never(job.submitted);
  document.started = unless_never(job.started);
  document.ended = unless_never(job.ended_at);
  return document;
}

namespace {

api::Adaptive adaptive_document(const Job& job) {
  api::Adaptive document;
  if (job.sized > 0) document.workers.value = job.sized;
  if (job.worthwhile > 0) document.worthwhile.value = job.worthwhile;
  document.reason = job.size_reason;
  document.change_cost_s = cluster::change_cost_s(job);
  document.profile = to_json(*job.profile);
  return document;
}

}  // namespace

api::Job job_document(const State& state, const Job& job) {
  api::Job document;
  static_cast<api::JobSummary&>(document) = job_summary(job);
  document.spec = to_json(job.spec);
  document.members = members_of(job);
  if (job.phase == JobPhase::kRunning) document.master = fmt::format("{}:{}", job.master_addr, job.master_port);
  if (!job.rerun_of.empty()) document.rerun_of = job.rerun_of;
  if (!job.moved.empty()) document.moved = job.moved;
  for (const elastic::Failure& failure : job.restarts.failures) document.failures.push_back(cluster::to_json(failure));
  for (const auto& [node, output] : job.outputs) document.outputs.push_back(output_document(node, output));
  if (cluster::ended(job.phase)) {
    document.exit = fmt::format("{}{}{}", to_string(job.phase), job.reason.empty() ? "" : ": ", job.reason);
    document.cause = to_string(job.end_cause);
  }
  if (job.profile) document.adaptive = adaptive_document(job);
  if (job.phase == JobPhase::kQueued) document.queue = queue_document(state, job);
  return document;
}

api::MissingLines missing_lines_document(const std::map<int, MissingLines>& missing) {
  api::MissingLines document;
  for (const auto& [rank, one] : missing) {
    document.lines += one.lines;
    document.bytes += one.bytes;
    document.ranks.push_back({rank, one.lines, one.bytes});
  }
  return document;
}

void add_missing(std::vector<api::JobSummary>& jobs, const MissingByJob& missing) {
  if (missing.empty()) return;
  for (api::JobSummary& job : jobs) {
    const auto found = missing.find(JobId{job.id});
    if (found != missing.end()) job.missing_lines = missing_lines_document(found->second);
  }
}

std::vector<api::JobSummary> job_summaries(const State& state, const std::vector<const Job*>& ended) {
  std::vector<const Job*> active;
  for (const JobId& id : state.active) active.push_back(&state.jobs.at(id));
  std::ranges::sort(active, {}, [](const Job* job) { return std::pair(job->submitted, job->id); });
  std::vector<api::JobSummary> out;
  for (const Job* job : active) out.push_back(job_summary(*job));
  int64_t place = 0;
  for (const Job* job : policy::queue_order(state)) {
    out.push_back(job_summary(*job));
    out.back().queue_place = ++place;
  }
  for (const Job* job : ended) out.push_back(job_summary(*job));
  return out;
}

api::Jobs jobs_document(const State& state, bool all) {
  std::vector<const Job*> ended;
  for (const JobId& id : state.ended_jobs) {
    if (all) ended.push_back(&state.jobs.at(id));
  }
  return {job_summaries(state, ended)};
}

api::Status status_document(const State& state, const SharedRecords& events, WallTime now) {
  api::Status document;
  document.cluster.name = state.spec ? state.spec->name : "";
  document.cluster.head.pid = state.head_pid;
  document.cluster.head.version = state.head_version;
  document.cluster.head.epoch = state.epoch;
  document.cluster.head.since = unless_never(state.head_since);
  document.cluster.time = now;
  document.cluster.shutting_down = state.shutting_down;
  document.cluster.journal.offset = state.offset;
  for (const auto& [id, node] : state.nodes) {
    document.nodes.push_back(node_document(state, node, now));
    if (!node.usable()) continue;
    document.totals.resources += node.resources;
    document.totals.used += cluster::used_on(state, id);
  }
  std::vector<const Job*> ended;
  const size_t ended_shown = std::min(kEndedShown, state.ended_jobs.size());
  for (size_t i = state.ended_jobs.size() - ended_shown; i < state.ended_jobs.size(); ++i)
    ended.push_back(&state.jobs.at(state.ended_jobs[i]));
  document.jobs = job_summaries(state, ended);
  document.totals.queued = state.queued.size();
  document.totals.running = std::ranges::count_if(
      state.active, [&](const JobId& id) { return state.jobs.at(id).phase == JobPhase::kRunning; });
  document.autoscaler = autoscaler_document(state, now);
  document.events = events_document(events).events;
  return document;
}

api::Reasons reasons_document(const cluster::Reasons& reasons) {
  return {obstacles(reasons.against), changes_of(reasons)};
}

// Nodes of a job that nobody hears.
void add_silence(const State& state, const cluster::Observed& observed, const Job& job,
                 std::vector<api::Obstacle>& against, std::vector<api::Change>& changes) {
  std::set<NodeId> nodes;
  for (const cluster::Seat& seat : job.seats) {
    if (!observed.silent.contains(seat.node)) continue;
    nodes.insert(seat.node);
    against.push_back({fmt::format("node {} is silent: its workers may go on for their lease of {}", seat.node.value,
                                   format_duration(cluster::round_lease_of(state, job))),
                       {}});
  }
  if (const std::string reason = reconcile::fence_reason(state, observed, job); !reason.empty()) {
    against.push_back({reason, {}});
    for (const auto& [node, cut_off] : job.cut_off) nodes.insert(node);
  }
  for (const NodeId& node : nodes)
    changes.push_back(
        change(fmt::format("it is heard again, or its machine is known to be off: rubato node lost {}", node.value)));
}

api::Why why_job(const State& state, const cluster::Observed& observed, const Job& job, WallTime now) {
  std::vector<api::Obstacle> against = obstacles(job.reasons.against);
  std::vector<api::Change> changes = changes_of(job.reasons);
  add_silence(state, observed, job, against, changes);
  if (cluster::gathering(job.phase)) {
    Duration longest{};
    bool hopeless = false;
    for (const cluster::Seat& seat : job.seats) {
      longest = std::max(longest, policy::patience(job, seat.node));
      if (observed.of(job.id, seat.node, job.generation)) continue;
      const std::string* problem = observed.problem_of(job.id, seat.node);
      hopeless |= problem != nullptr;
      against.push_back(
          {fmt::format("node {} {}", seat.node.value, problem ? "cannot get ready: " + *problem : "is not ready yet"),
           {}});
    }
    changes.push_back(change(hopeless ? "it goes on without such nodes, or fails if there are no others"
                                      : "it goes on without nodes that are not ready",
                             later(job.since, longest)));
    if (job.not_before > now) changes.push_back(change("the back-off after a crash ends", job.not_before));
  }
  if (job.phase == JobPhase::kStopping && !job.leaving.empty()) {
    against.push_back({fmt::format("workers on {} nodes have not ended yet", job.leaving.size()), {}});
    changes.push_back(change("SIGKILL after the grace", later(job.since, job.spec.grace)));
  }
  if (job.spec.timeout > 0s && job.started != WallTime{} && !cluster::ended(job.phase)) {
    changes.push_back(change("its timeout stops it", later(job.started, job.spec.timeout)));
  }
  if (cluster::ended(job.phase)) {
    against.clear();
    changes = {change("rubato rerun " + job.id.value)};
  }
  api::Why document;
  document.subject = fmt::format("job {} ({})", job.id.value, job.spec.name);
  document.phase = to_string(job.phase);
  document.wanted = job.reasons.wanted;
  document.state = phase_text(job);
  if (!job.moved.empty()) document.state += "; last move: " + job.moved;
  document.decision = decision_of(job);
  document.against = std::move(against);
  document.changes = std::move(changes);
  return document;
}

api::Why why_node(const State& state, const Node& node) {
  api::Why document;
  std::string wanted = "nothing: its type is not in the cluster file";
  if (state.spec && state.spec->types.contains(node.type)) {
    const NodeType& type = state.spec->types.at(node.type);
    wanted = fmt::format("at least {} nodes of type '{}' ({})", type.min_workers, node.type, type.min_where);
  }
  if (node.head) wanted = "the head's machine: it is a node for as long as there is a cluster";
  if (node.phase == NodePhase::kStarting)
    document.changes.push_back(
        change("it is given up if its agent has not joined", later(node.since, reconcile::kJoinMax)));
  if (node.phase == NodePhase::kDraining) {
    const auto here = state.jobs_on.find(node.id);
    const size_t jobs = here == state.jobs_on.end() ? 0 : here->second.size();
    document.against.push_back(
        {fmt::format("{} job{} still ha{} workers there", jobs, jobs == 1 ? "" : "s", jobs == 1 ? "s" : "ve"), {}});
    if (node.deadline == WallTime{}) {
      document.changes.push_back(change("these workers have moved or ended"));
    } else {
      document.changes.push_back(change(node.noticed ? "these workers have moved, or end with the machine"
                                                     : "these workers have moved, or are killed",
                                        node.deadline));
    }
  }
  if (node.phase == NodePhase::kUp && state.spec && !node.head) {
    const Duration timeout = reconcile::idle_timeout(*state.spec, node.type);
    if (node.idle_since == WallTime{}) {
      document.changes.push_back(
          change(fmt::format("its work ends; it is removed {} later if nothing needs it", format_duration(timeout))));
    } else {
      document.changes.push_back(change("it is removed if nothing needs it until then (idle_timeout, min_workers)",
                                        later(node.idle_since, timeout)));
    }
  }
  document.subject = fmt::format("node {}", node.id.value);
  document.phase = to_string(node.phase);
  document.wanted = node.reasons.wanted.empty() ? wanted : node.reasons.wanted;
  document.state = node.reason;
  document.decision = {node.changed, node.since, node.reason};
  document.others = obstacles(node.reasons.others);
  for (api::Obstacle& one : obstacles(node.reasons.against)) document.against.push_back(std::move(one));
  for (api::Change& one : changes_of(node.reasons)) document.changes.push_back(std::move(one));
  return document;
}

}  // namespace rubato::head

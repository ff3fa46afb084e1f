#include "head/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "head/scale_documents.h"
#include "policy/place.h"
#include "policy/queue.h"
#include "reconcile/nodes.h"
#include "reconcile/scale_input.h"

namespace rubato::head {

using cluster::Job;
using cluster::JobPhase;
using cluster::later;
using cluster::Node;
using cluster::NodePhase;
using cluster::State;
using nlohmann::json;

namespace {

constexpr size_t kEndedShown = 10;
constexpr size_t kAheadShown = 5;

void add_time(json& document, const char* name, WallTime time) {
  if (time != WallTime{}) document[name] = format_time(time);
}

json obstacle(const std::string& text, const std::string& where) {
  json document = {{"text", text}};
  if (!where.empty()) document["where"] = where;
  return document;
}

json change(const std::string& text, WallTime when = {}) {
  json document = {{"text", text}};
  add_time(document, "when", when);
  return document;
}

std::string phase_words(const Job& job) {
  if (job.phase == JobPhase::kQueued && !job.reasons.against.empty()) return job.reasons.against.front().text;
  return job.reason;
}

// Its place in the queue, and who is before it; empty for a job that does not wait.
json queue_document(const State& state, const Job& job) {
  if (job.phase != JobPhase::kQueued) return json::object();
  const std::vector<const Job*> queue = policy::queue_order(state);
  const auto at = std::ranges::find(queue, job.id, [](const Job* one) { return one->id; });
  json ahead = json::array();
  for (auto it = queue.begin(); it != at && ahead.size() < kAheadShown; ++it) {
    ahead.push_back({{"id", (*it)->id.value},
                     {"name", (*it)->spec.name},
                     {"owner", (*it)->spec.owner},
                     {"priority", (*it)->spec.priority}});
  }
  return {{"place", at - queue.begin() + 1}, {"of", queue.size()}, {"ahead", std::move(ahead)}};
}

json decision_of(const Job& job) {
  json decision = {{"offset", job.decided},
                   {"text", job.phase == JobPhase::kQueued ? "held in the queue" : job.reason}};
  add_time(decision, "time", job.decided_at);
  return decision;
}

json output_document(const NodeId& node, const cluster::Output& output) {
  using Phase = cluster::Output::Phase;
  json document = {{"node", node.value},
                   {"state", output.phase == Phase::kKept      ? "kept"
                             : output.phase == Phase::kMissing ? "missing"
                                                               : "held"},
                   {"files", output.files},
                   {"bytes", output.bytes}};
  if (!output.reason.empty()) document["reason"] = output.reason;
  return document;
}

}  // namespace

json event_document(const cluster::Record& record) {
  json document = {{"offset", record.offset},
                   {"time", format_time(record.time)},
                   {"type", cluster::type_name(record.event)},
                   {"text", cluster::describe(record.event)},
                   {"data", cluster::event_fields(record.event)}};
  if (const auto job = cluster::job_of(record.event)) document["job"] = job->value;
  if (const auto node = cluster::node_of(record.event)) document["node"] = node->value;
  return document;
}

json node_document(const State& state, const Node& node, WallTime now) {
  json jobs = json::array();
  if (const auto here = state.jobs_on.find(node.id); here != state.jobs_on.end()) {
    for (const JobId& id : here->second) jobs.push_back(id.value);
  }
  return {{"id", node.id.value},
          {"type", node.type},
          {"head", node.head},
          {"phase", to_string(node.phase)},
          {"step", node.step},
          {"detail", node.detail},
          {"updating", !node.refreshing.empty()},
          {"since", format_time(node.since)},
          {"age_s", to_seconds(std::max<Duration>(0s, now - node.requested))},
          {"address", node.info.address},
          {"host", node.info.host},
          {"resources", to_json(node.resources)},
          {"used", to_json(cluster::used_on(state, node.id))},
          {"jobs", std::move(jobs)},
          {"why", node.reason}};
}

json job_summary(const Job& job) {
  json document = {{"id", job.id.value},
                   {"name", job.spec.name},
                   {"phase", to_string(job.phase)},
                   {"owner", job.spec.owner},
                   {"priority", job.spec.priority},
                   {"workers", job.workers()},
                   {"workers_min", job.spec.workers_min},
                   {"workers_max", job.spec.workers_max},
                   {"generation", job.generation},
                   {"restarts_used", job.restarts_used},
                   {"max_restarts", job.spec.max_restarts},
                   {"reason", phase_words(job)}};
  add_time(document, "submitted", job.submitted);
  add_time(document, "started", job.started);
  add_time(document, "ended", job.ended_at);
  return document;
}

json job_document(const State& state, const Job& job) {
  json document = job_summary(job);
  document["spec"] = to_json(job.spec);
  json members = json::array();
  int rank = 0;
  for (const cluster::Seat& seat : job.seats) {
    const bool done = job.done.contains(seat.node);
    const bool failed = job.failed.contains(seat.node);
    members.push_back({{"node", seat.node.value},
                       {"rank_first", rank},
                       {"workers", seat.workers},
                       {"state", done                              ? "done"
                                 : failed                          ? "failed"
                                 : job.phase == JobPhase::kRunning ? "running"
                                                                   : "gathering"}});
    rank += seat.workers;
  }
  for (const auto& [node, workers] : job.leaving) {
    if (!job.seat_on(node))
      members.push_back({{"node", node.value}, {"rank_first", nullptr}, {"workers", workers}, {"state", "leaving"}});
  }
  document["members"] = std::move(members);
  if (job.phase == JobPhase::kRunning) document["master"] = fmt::format("{}:{}", job.master_addr, job.master_port);
  if (!job.rerun_of.empty()) document["rerun_of"] = job.rerun_of;
  document["failures"] = json::array();
  for (const elastic::Failure& failure : job.failures) document["failures"].push_back(cluster::to_json(failure));
  document["outputs"] = json::array();
  for (const auto& [node, output] : job.outputs) document["outputs"].push_back(output_document(node, output));
  if (cluster::ended(job.phase)) {
    document["exit"] = fmt::format("{}{}{}", to_string(job.phase), job.reason.empty() ? "" : ": ", job.reason);
    document["cause"] = to_string(job.end_cause);
  }
  if (const json queue = queue_document(state, job); !queue.empty()) document["queue"] = queue;
  return document;
}

json missing_lines_document(const std::map<int, MissingLines>& missing) {
  MissingLines all;
  json ranks = json::array();
  for (const auto& [rank, one] : missing) {
    all.lines += one.lines;
    all.bytes += one.bytes;
    ranks.push_back({{"rank", rank}, {"lines", one.lines}, {"bytes", one.bytes}});
  }
  return {{"lines", all.lines}, {"bytes", all.bytes}, {"ranks", std::move(ranks)}};
}

void add_missing(json& jobs, const MissingByJob& missing) {
  if (missing.empty()) return;
  for (json& job : jobs) {
    const auto found = missing.find(JobId{job.at("id").get<std::string>()});
    if (found != missing.end()) job["missing_lines"] = missing_lines_document(found->second);
  }
}

json job_summaries(const State& state, const std::vector<const Job*>& ended) {
  std::vector<const Job*> active;
  for (const JobId& id : state.active) active.push_back(&state.jobs.at(id));
  std::ranges::sort(active, {}, [](const Job* job) { return std::pair(job->submitted, job->id); });
  json out = json::array();
  for (const Job* job : active) out.push_back(job_summary(*job));
  int place = 0;
  for (const Job* job : policy::queue_order(state)) {
    out.push_back(job_summary(*job));
    out.back()["queue_place"] = ++place;
  }
  for (const Job* job : ended) out.push_back(job_summary(*job));
  return out;
}

json jobs_document(const State& state, bool all) {
  std::vector<const Job*> ended;
  for (const JobId& id : state.ended_jobs) {
    if (all) ended.push_back(&state.jobs.at(id));
  }
  return {{"jobs", job_summaries(state, ended)}};
}

json status_document(const State& state, const std::vector<cluster::Record>& events, WallTime now) {
  json nodes = json::array(), recent = json::array();
  Resources all, used;
  for (const auto& [id, node] : state.nodes) {
    nodes.push_back(node_document(state, node, now));
    if (!node.usable()) continue;
    all += node.resources;
    used += cluster::used_on(state, id);
  }
  std::vector<const Job*> ended;
  const size_t ended_shown = std::min(kEndedShown, state.ended_jobs.size());
  for (size_t i = state.ended_jobs.size() - ended_shown; i < state.ended_jobs.size(); ++i)
    ended.push_back(&state.jobs.at(state.ended_jobs[i]));
  for (const cluster::Record& record : events) recent.push_back(event_document(record));
  json head = {{"pid", state.head_pid}, {"version", state.head_version}, {"epoch", state.epoch}};
  add_time(head, "since", state.head_since);
  return {{"cluster",
           {{"name", state.spec ? state.spec->name : ""},
            {"head", std::move(head)},
            {"time", format_time(now)},
            {"shutting_down", state.shutting_down},
            {"journal", {{"offset", state.offset}}}}},
          {"nodes", std::move(nodes)},
          {"jobs", job_summaries(state, ended)},
          {"totals",
           {{"resources", to_json(all)},
            {"used", to_json(used)},
            {"queued", state.queued.size()},
            {"running",
             std::ranges::count_if(state.active,
                                   [&](const JobId& id) { return state.jobs.at(id).phase == JobPhase::kRunning; })}}},
          {"autoscaler", autoscaler_document(state, now)},
          {"events", std::move(recent)}};
}

json reasons_document(const cluster::Reasons& reasons) {
  json against = json::array(), changes = json::array();
  for (const cluster::Reasons::Obstacle& o : reasons.against) against.push_back(obstacle(o.text, o.where));
  for (const std::string& text : reasons.changes) changes.push_back(change(text));
  return {{"against", std::move(against)}, {"changes", std::move(changes)}};
}

json why_job(const State& state, const cluster::Observed& observed, const Job& job, WallTime now) {
  json against = json::array(), changes = json::array();
  for (const cluster::Reasons::Obstacle& o : job.reasons.against) against.push_back(obstacle(o.text, o.where));
  for (const std::string& text : job.reasons.changes) changes.push_back(change(text));
  if (cluster::gathering(job.phase)) {
    Duration longest{};
    bool hopeless = false;
    for (const cluster::Seat& seat : job.seats) {
      longest = std::max(longest, policy::patience(job, seat.node));
      if (observed.of(job.id, seat.node, job.generation)) continue;
      const std::string* problem = observed.problem_of(job.id, seat.node);
      hopeless |= problem != nullptr;
      against.push_back(obstacle(
          fmt::format("node {} {}", seat.node.value, problem ? "cannot get ready: " + *problem : "is not ready yet"),
          ""));
    }
    changes.push_back(change(hopeless ? "it goes on without such nodes, or fails if there are no others"
                                      : "it goes on without nodes that are not ready",
                             later(job.since, longest)));
    if (job.not_before > now) changes.push_back(change("the back-off after a crash ends", job.not_before));
  }
  if (job.phase == JobPhase::kStopping && !job.leaving.empty()) {
    against.push_back(obstacle(fmt::format("workers on {} nodes have not ended yet", job.leaving.size()), ""));
    changes.push_back(change("SIGKILL after the grace", later(job.since, job.spec.grace)));
  }
  if (job.spec.timeout > 0s && job.started != WallTime{} && !cluster::ended(job.phase)) {
    changes.push_back(change("its timeout stops it", later(job.started, job.spec.timeout)));
  }
  if (cluster::ended(job.phase)) {
    against = json::array();
    changes = json::array({change("rubato rerun " + job.id.value)});
  }
  return {{"subject", fmt::format("job {} ({})", job.id.value, job.spec.name)},
          {"phase", to_string(job.phase)},
          {"wanted", job.reasons.wanted},
          {"queue", queue_document(state, job)},
          {"state", phase_words(job)},
          {"decision", decision_of(job)},
          {"against", std::move(against)},
          {"changes", std::move(changes)}};
}

json why_node(const State& state, const Node& node) {
  json against = json::array(), changes = json::array();
  std::string wanted = "nothing: its type is not in the cluster file";
  if (state.spec && state.spec->types.contains(node.type)) {
    const NodeType& type = state.spec->types.at(node.type);
    wanted = fmt::format("at least {} nodes of type '{}' ({})", type.min_workers, node.type, type.min_where);
  }
  if (node.head) wanted = "the head's machine: it is a node for as long as there is a cluster";
  if (node.phase == NodePhase::kStarting)
    changes.push_back(change("it is given up if its agent has not joined", later(node.since, reconcile::kJoinMax)));
  if (node.phase == NodePhase::kDraining) {
    const auto here = state.jobs_on.find(node.id);
    const size_t jobs = here == state.jobs_on.end() ? 0 : here->second.size();
    against.push_back(obstacle(
        fmt::format("{} job{} still ha{} workers there", jobs, jobs == 1 ? "" : "s", jobs == 1 ? "s" : "ve"), ""));
    changes.push_back(change("these workers have moved or ended"));
  }
  if (node.phase == NodePhase::kUp && state.spec && !node.head) {
    const Duration timeout = reconcile::idle_timeout(*state.spec, node.type);
    if (node.idle_since == WallTime{}) {
      changes.push_back(
          change(fmt::format("its work ends; it is removed {} later if nothing needs it", format_duration(timeout))));
    } else {
      changes.push_back(change("it is removed if nothing needs it until then (idle_timeout, min_workers)",
                               later(node.idle_since, timeout)));
    }
  }
  json decision = {{"offset", node.changed}, {"time", format_time(node.since)}, {"text", node.reason}};
  json out = {{"subject", fmt::format("node {}", node.id.value)},
              {"phase", to_string(node.phase)},
              {"wanted", wanted},
              {"state", node.reason},
              {"decision", std::move(decision)},
              {"against", std::move(against)},
              {"changes", std::move(changes)}};
  add_reasons(out, node.reasons);
  return out;
}

}  // namespace rubato::head

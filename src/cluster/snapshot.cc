#include <fmt/format.h>

#include "cluster/event_fields.h"
#include "cluster/state.h"

namespace rubato::cluster {

constexpr NodePhase last_of(NodePhase) { return NodePhase::kRemoving; }
constexpr JobPhase last_of(JobPhase) { return JobPhase::kStopped; }
constexpr Output::Phase last_of(Output::Phase) { return Output::Phase::kMissing; }

template <class Io>
void fields(Io& io, Node& n) {
  io("id", n.id);
  io("type", n.type);
  io("hash", n.hash);
  io("phase", n.phase);
  io("requested", n.requested);
  io("since", n.since);
  io("changed", n.changed);
  io("reason", n.reason);
  io("agent", n.agent);
  io("agent_started", n.agent_started);
  io("info", n.info);
  io("resources", n.resources);
  io("own_disk", n.own_disk);
  io("head", n.head);
  io("runtime", n.runtime);
  io("refreshing", n.refreshing);
  io("recipe", n.recipe);
  io("recipes_before", n.recipes_before);
  io("update", n.update);
  io("restart", n.restart);
  io("retired", n.retired);
  io("step", n.step);
  io("detail", n.detail);
  io("step_since", n.step_since);
  io("offering", n.offering);
  io("reasons", n.reasons);
  io("idle_since", n.idle_since);
  io("never_was", n.never_was);
  io("silent", n.silent);
  io("deadline", n.deadline);
  io("noticed", n.noticed);
}

template <class Io>
void fields(Io& io, Evacuation& e) {
  io("node", e.node);
  io("cause", e.cause);
  io("at", e.at);
  io("deadline", e.deadline);
  io("workers", e.workers);
  io("stopped", e.stopped);
  io("saved", e.saved);
}

template <class Io>
void fields(Io& io, Output& o) {
  io("phase", o.phase);
  io("generation", o.generation);
  io("rank", o.rank);
  io("files", o.files);
  io("bytes", o.bytes);
  io("reason", o.reason);
}

template <class Io>
void fields(Io& io, CutOff& c) {
  io("agent", c.agent);
  io("address", c.address);
  io("port", c.port);
  io("round", c.round);
}
template <class Io>
void fields(Io& io, Beside& b) {
  io("agent", b.agent);
  io("round", b.round);
}

template <class Io>
void fields(Io& io, Job& j) {
  io("id", j.id);
  io("spec", j.spec);
  io("request_id", j.request_id);
  io("rerun_of", j.rerun_of);
  io("phase", j.phase);
  io("submitted", j.submitted);
  io("since", j.since);
  io("started", j.started);
  io("ended_at", j.ended_at);
  io("queued_since", j.queued_since);
  io("generation", j.generation);
  io("seats", j.seats);
  io("done", j.done);
  io("ran", j.ran);
  io("unfinished", j.unfinished);
  io("round", j.round);
  io("round_lease_us", j.round_lease);
  io("cut_off", j.cut_off);
  io("in_place", j.in_place);
  io("plan", j.plan);
  io("beside", j.beside);
  io("breaks", j.restarts.breaks);
  io("failed", j.failed);
  io("leaving", j.leaving);
  io("holding", j.holding);
  io("shunned", j.shunned);
  io("strikes", j.strikes);
  io("master_addr", j.master_addr);
  io("master_port", j.master_port);
  io("rescaled", j.rescaled);
  io("outputs", j.outputs);
  io("output_here_generation", j.output_here_generation);
  io("output_here_rank", j.output_here_rank);
  io("restarts_used", j.restarts.used);
  io("quick_crashes", j.restarts.quick_crashes);
  io("failure_pending", j.restarts.failure_pending);
  io("lost_since_failure", j.restarts.lost);
  io("last_uptime_us", j.restarts.uptime);
  io("last_crash", j.last_crash);
  io("not_before", j.not_before);
  io("failures", j.restarts.failures);
  io("stop_failed", j.stop_failed);
  io("end_cause", j.end_cause);
  io("reason", j.reason);
  io("reasons", j.reasons);
  io("decided", j.decided);
  io("decided_at", j.decided_at);
  io("profile", j.profile);
  io("profiled", j.profiled);
  io("sized", j.sized);
  io("worthwhile", j.worthwhile);
  io("size_reason", j.size_reason);
  io("change_in_place_s", j.change_in_place_s);
  io("change_anew_s", j.change_anew_s);
  io("evacuation", j.evacuation);
  io("moved", j.moved);
}

template <class Io>
void fields(Io& io, TypeHealth& h) {
  io("failures", h.failures);
  io("not_before", h.not_before);
}

template <class Io>
void fields(Io& io, Shortage& s) {
  io("code", s.code);
  io("failures", s.failures);
  io("since", s.since);
  io("until", s.until);
  io("error", s.error);
}

template <class Io>
void fields(Io& io, Spent& s) {
  io("nodes", s.nodes);
  io("time_us", s.time);
  io("micros", s.micros);
}

template <class Io>
void fields(Io& io, State& s) {
  io("offset", s.offset);
  io("time", s.time);
  io("epoch", s.epoch);
  io("head_version", s.head_version);
  io("head_pid", s.head_pid);
  io("head_since", s.head_since);
  io("spec", s.spec);
  io("spec_text", s.spec_text);
  io("old_recipes", s.old_recipes);
  io("no_restart", s.no_restart);
  io("shutting_down", s.shutting_down);
  io("nodes", s.nodes);
  io("next_node", s.next_node);
  io("health", s.health);
  io("last_join", s.last_join);
  io("born", s.born);
  io("wanted_bundles", s.wanted_bundles);
  io("learned", s.learned);
  io("devices", s.devices);
  io("shortages", s.shortages);
  io("spent", s.spent);
  io("strays", s.strays);
  io("held", s.held);
  io("held_at", s.held_at);
  io("held_time", s.held_time);
  io("jobs", s.jobs);
  io("active", s.active);
  io("queued", s.queued);
  io("ended_jobs", s.ended_jobs);
  io("jobs_on", s.jobs_on);
  io("outputs_on", s.outputs_on);
  io("requests", s.requests);
}

// What is not written because it follows from the rest.
void derive(State& state) {
  state.held_digest = digest(state.held);
  for (auto& [id, job] : state.jobs) {
    if (job.decided != 0) job.reasons_digest = digest(job.reasons);
    if (!job.cut_off.empty()) state.beside_cut_off.insert(id);
  }
  state.index = index_of(state);
}

// What everything else takes for granted: an index names only jobs that are there.
void check_indexes(const State& state) {
  const auto check = [&](const JobId& id) {
    if (!state.jobs.contains(id)) throw Error(ErrorCode::kFailed, "it names a job that it does not hold: " + id.value);
  };
  for (const JobId& id : state.active) check(id);
  for (const JobId& id : state.queued) check(id);
  for (const JobId& id : state.ended_jobs) check(id);
  for (const auto& [node, ids] : state.jobs_on) {
    for (const JobId& id : ids) check(id);
  }
  for (const auto& [node, ids] : state.outputs_on) {
    for (const JobId& id : ids) {
      check(id);
      if (!state.jobs.at(id).outputs.contains(node))
        throw Error(ErrorCode::kFailed, "it names an output that it does not hold: " + id.value);
    }
  }
  for (const auto& [request, id] : state.requests) check(id);
}

// No worker count is negative, or more than any sum of them can take.
void check_workers(const State& state) {
  constexpr int kMost = 1'000'000;
  const auto check = [](const JobId& id, int workers) {
    if (workers >= 0 && workers <= kMost) return;
    throw Error(ErrorCode::kFailed, fmt::format("job {} has {} workers on a node", id.value, workers));
  };
  for (const auto& [id, job] : state.jobs) {
    for (const Seat& seat : job.seats) check(id, seat.workers);
    for (const auto& [node, workers] : job.leaving) check(id, workers);
  }
}

// A snapshot from before there were recipes: its nodes were made by its file.
void add_recipes(State& state) {
  if (!state.spec || !state.spec->recipes.empty()) return;
  state.spec = with_recipes(std::move(*state.spec), state.spec_text);
  for (auto& [id, node] : state.nodes) node.recipe = recipe_for(*state.spec, node.type, node.head);
}

std::string encode_snapshot(const State& state) {
  Json json = write_value(state);
  json["v"] = kRecordVersion;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

State decode_snapshot(std::string_view bytes) {
  try {
    const Json json = Json::parse(bytes);
    if (read_integer<int64_t>(json.at("v")) > kRecordVersion) {
      throw Error(ErrorCode::kFailed, "written by a newer rubato", "", "use that version, or a newer one");
    }
    State state;
    read_value(json, state);
    add_recipes(state);
    check_indexes(state);
    check_workers(state);
    derive(state);
    return state;
  } catch (const Json::exception& e) {
    throw Error(ErrorCode::kFailed, std::string("not a snapshot of a cluster: ") + e.what(), "journal snapshot");
  } catch (const Error& e) {
    throw Error(e.code, e.message, "journal snapshot", e.hint);
  }
}

}  // namespace rubato::cluster

// The fields of each event, as they stand in the journal. Names here are a format: add, never rename.
#pragma once

#include "cluster/event.h"
#include "cluster/fields.h"

namespace rubato {

constexpr Market last_of(Market) { return Market::kSpot; }

template <class Io>
void fields(Io& io, Offering& o) {
  io("zone", o.zone);
  io("market", o.market);
  io("price_per_hour", o.price_per_hour);
}

}  // namespace rubato

namespace rubato::elastic {

template <class Io>
void fields(Io& io, MemberInfo& m) {
  io("agent", m.id);
  io("host", m.host);
  io("machine", m.machine);
  io("address", m.address);
  io("addresses", m.addresses);
  io("peer_port", m.peer_port);
  io("nproc", m.nproc);
  io("role", m.role);
}

template <class Io>
void fields(Io& io, Failure& f) {
  io("host", f.host);
  io("rank", f.rank);
  io("local_rank", f.local_rank);
  io("pid", f.pid);
  io("generation", f.generation);
  io("exit_code", f.exit_code);
  io("signal", f.signal);
  io("at_us", f.at);
  io("message", f.message);
  io("traceback", f.traceback);
  io("error_file", f.error_file);
}

}  // namespace rubato::elastic

namespace rubato::cluster {

constexpr JobResult last_of(JobResult) { return JobResult::kStopped; }
constexpr JobEndCause last_of(JobEndCause) { return JobEndCause::kSameCrash; }
constexpr LaunchFailure last_of(LaunchFailure) { return LaunchFailure::kAuth; }

template <class Io>
void fields(Io& io, Reasons::Obstacle& o) {
  io("text", o.text);
  io("where", o.where);
}
template <class Io>
void fields(Io& io, Reasons& r) {
  io("wanted", r.wanted);
  io("against", r.against);
  io("changes", r.changes);
  io("others", r.others);
}
template <class Io>
void fields(Io& io, Bundle& b) {
  io("each", b.each);
  io("count", b.count);
}
template <class Io>
void fields(Io& io, Seat& s) {
  io("node", s.node);
  io("agent", s.agent);
  io("workers", s.workers);
}

template <class Io>
void fields(Io& io, elastic::PlannedWorker& w) {
  io("id", w.id);
  io("local_rank", w.local_rank);
  io("node", w.node);
}
template <class Io>
void fields(Io& io, elastic::MeetingPlace& p) {
  io("host", p.host);
  io("port", p.port);
  io("token", p.token);
}
template <class Io>
void fields(Io& io, elastic::GroupPlan& p) {
  io("members", p.members);
  io("departing", p.departing);
  io("store", p.store);
}

template <class Io>
void fields(Io& io, HeadStarted& e) {
  io("epoch", e.epoch);
  io("version", e.version);
  io("pid", e.pid);
  io("restarted_after", e.restarted_after);
}
template <class Io>
void fields(Io& io, ClusterConfigured& e) {
  io("spec", e.spec);
  io("text", e.text);
  io("no_restart", e.no_restart);
  io("restart", e.restart);
}
template <class Io>
void fields(Io&, ShutdownRequested&) {}
template <class Io>
void fields(Io& io, JournalLost& e) {
  io("first", e.first);
  io("last", e.last);
  io("epoch", e.epoch);
  io("cause", e.cause);
  io("kept_in", e.kept_in);
}
template <class Io>
void fields(Io& io, NodeRequested& e) {
  io("node", e.node);
  io("node_type", e.type);
  io("hash", e.hash);
  io("why", e.why);
  io("offering", e.offering);
  io("reasons", e.reasons);
  io("runtime", e.runtime);
  io("head", e.head);
}
template <class Io>
void fields(Io& io, NodeStepped& e) {
  io("node", e.node);
  io("step", e.step);
  io("detail", e.detail);
}
template <class Io>
void fields(Io& io, NodeUpdating& e) {
  io("node", e.node);
  io("runtime", e.runtime);
  io("why", e.why);
}
template <class Io>
void fields(Io& io, NodeRefreshing& e) {
  io("node", e.node);
  io("runtime", e.runtime);
}
template <class Io>
void fields(Io& io, NodeRefreshed& e) {
  io("node", e.node);
  io("runtime", e.runtime);
  io("error", e.error);
}
template <class Io>
void fields(Io& io, NodeCreated& e) {
  io("node", e.node);
  io("runtime", e.runtime);
}
template <class Io>
void fields(Io& io, NodeFailed& e) {
  io("node", e.node);
  io("error", e.error);
  io("code", e.code);
}
template <class Io>
void fields(Io& io, NodeJoined& e) {
  io("node", e.node);
  io("agent", e.agent);
  io("info", e.info);
  io("resources", e.resources);
  io("own_disk", e.own_disk);
  io("started", e.started);
}
template <class Io>
void fields(Io& io, NodeLost& e) {
  io("node", e.node);
  io("reason", e.reason);
  io("silent", e.silent);
}
template <class Io>
void fields(Io& io, NodeDraining& e) {
  io("node", e.node);
  io("reason", e.reason);
  io("reasons", e.reasons);
  io("update", e.update);
  io("deadline", e.deadline);
  io("noticed", e.noticed);
}
template <class Io>
void fields(Io& io, NodeKept& e) {
  io("node", e.node);
  io("reason", e.reason);
}
template <class Io>
void fields(Io& io, NodeRemoving& e) {
  io("node", e.node);
  io("reason", e.reason);
  io("reasons", e.reasons);
}
template <class Io>
void fields(Io& io, NodeGone& e) {
  io("node", e.node);
  io("unreachable", e.unreachable);
}
template <class Io>
void fields(Io& io, StrayFound& e) {
  io("node", e.node);
}
template <class Io>
void fields(Io& io, ResourcesRequested& e) {
  io("bundles", e.bundles);
}
template <class Io>
void fields(Io& io, ScaleHeld& e) {
  io("reasons", e.reasons);
}
template <class Io>
void fields(Io& io, JobSubmitted& e) {
  io("job", e.job);
  io("spec", e.spec);
  io("request_id", e.request_id);
  io("rerun_of", e.rerun_of);
}
template <class Io>
void fields(Io& io, JobHeld& e) {
  io("job", e.job);
  io("reasons", e.reasons);
}
template <class Io>
void fields(Io& io, JobPlaced& e) {
  io("job", e.job);
  io("generation", e.generation);
  io("seats", e.seats);
  io("cause", e.cause);
  io("reasons", e.reasons);
  io("shunned", e.shunned);
  io("in_place", e.in_place);
  io("broken", e.broken);
}
template <class Io>
void fields(Io& io, RestartCharged& e) {
  io("job", e.job);
  io("used", e.used);
  io("quick_crashes", e.quick_crashes);
  io("backoff_us", e.backoff);
  io("cause", e.cause);
  io("crash", e.crash);
  io("saved", e.saved);
}
template <class Io>
void fields(Io& io, JobStarted& e) {
  io("job", e.job);
  io("generation", e.generation);
  io("master_addr", e.master_addr);
  io("master_port", e.master_port);
  io("moved", e.moved);
  io("plan", e.plan);
  io("in_place", e.in_place);
  io("change", e.change);
}
template <class Io>
void fields(Io& io, SeatFailed& e) {
  io("job", e.job);
  io("generation", e.generation);
  io("node", e.node);
  io("failures", e.failures);
  io("fenced", e.fenced);
}
template <class Io>
void fields(Io& io, SeatDone& e) {
  io("job", e.job);
  io("generation", e.generation);
  io("node", e.node);
}
template <class Io>
void fields(Io& io, SeatVacated& e) {
  io("job", e.job);
  io("node", e.node);
}
template <class Io>
void fields(Io& io, CheckpointMissed& e) {
  io("job", e.job);
  io("generation", e.generation);
  io("node", e.node);
  io("workers", e.workers);
}
template <class Io>
void fields(Io& io, OutputKept& e) {
  io("job", e.job);
  io("node", e.node);
  io("generation", e.generation);
  io("files", e.files);
  io("bytes", e.bytes);
}
template <class Io>
void fields(Io& io, OutputMissing& e) {
  io("job", e.job);
  io("node", e.node);
  io("reason", e.reason);
}
template <class Io>
void fields(Io& io, JobProfiled& e) {
  io("job", e.job);
  io("profile", e.profile);
}
template <class Io>
void fields(Io& io, JobSized& e) {
  io("job", e.job);
  io("workers", e.workers);
  io("worthwhile", e.worthwhile);
  io("reason", e.reason);
}
template <class Io>
void fields(Io& io, JobStopping& e) {
  io("job", e.job);
  io("failed", e.failed);
  io("reason", e.reason);
}
template <class Io>
void fields(Io& io, JobEnded& e) {
  io("job", e.job);
  io("result", e.result);
  io("reason", e.reason);
  io("cause", e.cause);
}

}  // namespace rubato::cluster

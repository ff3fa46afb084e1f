// What events about jobs do.
#include <algorithm>
#include <utility>

#include "cluster/applier.h"
#include "cluster/observed.h"

namespace rubato::cluster {

namespace {

// A node that did not answer in time is left out of that job for so long, four times as long each time again: a job
// that runs must not be stopped over and over for a node that never gets ready.
constexpr Duration kShunnedFirst = 60s;
constexpr Duration kShunnedMax = 4h;
// Sizes of adaptive jobs are worked out anew so long after a job's profile has changed.
constexpr Duration kResizeEvery = 30s;

// Whether workers that were there may still be alive.
bool may_hold_workers(const State& state, const Seat& seat) {
  const auto it = state.nodes.find(seat.node);
  return it != state.nodes.end() && it->second.agent == seat.agent &&
         (it->second.phase == NodePhase::kUp || it->second.phase == NodePhase::kDraining);
}

void enter(Job& job, JobPhase phase, WallTime time) {
  if (job.phase == phase) return;
  job.phase = phase;
  job.since = time;
}

// The seats it had go, but for what `kept` still needs of them.
void vacate(const State& state, Job& job, const std::vector<Seat>& kept) {
  for (const Seat& seat : job.seats) {
    if (!may_hold_workers(state, seat) || job.done.contains(seat.node)) continue;
    // Some may be leaving already: a seat that shrinks twice still holds all that it began with.
    int& left = job.leaving[seat.node];
    left += seat.workers;
    for (const Seat& keep : kept) {
      if (keep.node == seat.node) left -= keep.workers;
    }
    if (left <= 0) job.leaving.erase(seat.node);
  }
}

void forget_output(State& state, const NodeId& node, const JobId& job) {
  const auto it = state.outputs_on.find(node);
  if (it == state.outputs_on.end()) return;
  it->second.erase(job);
  if (it->second.empty()) state.outputs_on.erase(it);
}

// Brings outputs_on up to date with one job.
void reindex_outputs(State& state, const Job& job) {
  for (const auto& [node, output] : job.outputs) {
    const bool needed = output.phase != Output::Phase::kKept || !ended(job.phase);
    if (needed && state.nodes.contains(node)) {
      state.outputs_on[node].insert(job.id);
    } else {
      forget_output(state, node, job.id);
    }
  }
}

// From now on its seats write.
void begin_outputs(State& state, Job& job) {
  int rank = 0;
  bool here = false;
  for (const Seat& seat : job.seats) {
    const auto node = state.nodes.find(seat.node);
    const bool own = node != state.nodes.end() && node->second.own_disk;
    if (own) {
      Output output;
      output.generation = job.generation;
      output.rank = rank;
      job.outputs[seat.node] = output;
    } else if (!std::exchange(here, true)) {
      job.output_here_generation = job.generation;
      job.output_here_rank = rank;
    }
    rank += seat.workers;
  }
  reindex_outputs(state, job);
}

}  // namespace

void Applier::operator()(const JobSubmitted& e) {
  Job job;
  job.id = e.job;
  job.spec = e.spec;
  job.request_id = e.request_id;
  job.rerun_of = e.rerun_of;
  job.submitted = job.since = job.queued_since = time;
  if (!e.request_id.empty()) state.requests[e.request_id] = e.job;
  reindex(state, state.jobs[e.job] = std::move(job), {});
}

// Its workers are told to end. A round that lived for a while has made an earlier crash at the start forgotten.
void Applier::note_uptime(Job& job) {
  if (job.phase != JobPhase::kRunning) return;
  job.restarts.stop(time - job.since);
  if (job.restarts.uptime >= elastic::kCrashAtStart) job.last_crash.clear();
}

void Applier::operator()(const JobHeld& e) {
  change(e.job, [&](Job& job) {
    vacate(state, job, {});
    note_uptime(job);
    job.in_place = false;
    job.seats.clear();
    job.done.clear();
    if (job.phase != JobPhase::kQueued) {
      job.queued_since = time;
      ++state.scale_changes;
    }
    enter(job, JobPhase::kQueued, time);
    decided(job, e.reasons);
  });
}

void Applier::operator()(const JobPlaced& e) {
  change(e.job, [&](Job& job) {
    const int before = job.workers();
    vacate(state, job, e.seats);
    note_holding(job, e.in_place);
    note_uptime(job);
    if (e.broken) note_break(job, e.in_place);
    job.in_place = e.in_place;
    for (const Seat& seat : e.seats) {
      const bool of_round = std::ranges::any_of(
          job.round, [&](const Seat& one) { return one.node == seat.node && one.agent == seat.agent; });
      if (e.in_place && !of_round) job.beside[seat.node] = Beside{seat.agent, job.ran};
    }
    job.seats = e.seats;
    job.done.clear();
    job.generation = e.generation;
    job.reason = e.cause;
    for (const NodeId& node : e.shunned) shun(job, node);
    std::erase_if(job.shunned, [&](const auto& entry) { return entry.second <= time; });
    std::erase_if(job.strikes, [&](const auto& entry) { return !state.nodes.contains(entry.first); });
    if (job.workers() > before) job.rescaled = time;
    // A round that is gathered anew has waited for as long as it has, but its patience begins again.
    job.phase = job.started == WallTime{} ? JobPhase::kStarting : JobPhase::kRestarting;
    job.since = time;
    decided(job, e.reasons);
  });
}

// Where older workers have to end before the next round is ready. A round that never started has left them to the one
// before it, unless it let them go on.
void Applier::note_holding(Job& job, bool in_place) {
  const bool live = job.phase == JobPhase::kRunning || (gathering(job.phase) && job.in_place);
  if (live) job.holding.clear();
  if (in_place) return;
  const std::vector<Seat>& seats = job.in_place ? job.round : job.seats;
  for (const Seat& seat : seats) {
    if (live && may_hold_workers(state, seat)) job.holding.insert(seat.node);
  }
}

// The more often, the longer it waits; at last it starts anew, and that counts as a failure.
void Applier::note_break(Job& job, bool in_place) {
  if (in_place) {
    const Duration pause = job.restarts.note_break();
    if (pause > 0s) job.not_before = std::max(job.not_before, later(time, pause));
    return;
  }
  if (!job.restarts.failure_pending) ++state.scale_changes;
  job.restarts.break_for_good();
}

// Who leaves a group in place, and who waited to join it, may live on for a moment.
void Applier::note_beside(Job& job) {
  for (const Seat& seat : job.round) {
    if (job.in_place && !job.seat_on(seat.node) && job.leaving.contains(seat.node))
      job.beside.try_emplace(seat.node, Beside{seat.agent, job.ran});
  }
  if (!job.in_place) job.beside.clear();
  for (const Seat& seat : job.seats) job.beside.erase(seat.node);
}

void Applier::operator()(const RestartCharged& e) {
  note(e.job, [&](Job& job) {
    job.restarts.used = e.used;
    job.restarts.quick_crashes = e.quick_crashes;
    job.last_crash = e.crash;
    job.not_before = later(time, e.backoff);
    set_failure_pending(job, false);
  });
}

void Applier::operator()(const JobStarted& e) {
  change(e.job, [&](Job& job) {
    note_change_cost(job, e.in_place);
    job.master_addr = e.master_addr;
    job.master_port = e.master_port;
    job.evacuation.reset();
    if (!e.moved.empty()) job.moved = e.moved;
    set_failure_pending(job, false);
    job.restarts.start();
    job.in_place = e.in_place;
    job.plan = e.plan;
    note_beside(job);
    job.ran = e.generation;
    job.round = job.seats;
    // Who leaves holds the lease of before for a moment.
    job.round_lease = job.beside.empty() ? lease_of(state, job) : std::max(job.round_lease, lease_of(state, job));
    forget_cut_off(job);
    job.unfinished.clear();
    for (const Seat& seat : job.seats) job.unfinished.insert(seat.node);
    job.failed.clear();
    job.holding.clear();
    for (const Seat& seat : job.seats) job.strikes.erase(seat.node);
    // Ready means that nothing of the older generation is left there; but for who leaves it in place.
    for (const Seat& seat : job.seats) {
      if (!e.in_place) job.leaving.erase(seat.node);
    }
    if (job.started == WallTime{}) job.started = time;
    enter(job, JobPhase::kRunning, time);
    begin_outputs(state, job);
  });
}

// How long it took from the decision on. A round after a failure says nothing of it, nor does one that had to wait.
void Applier::note_change_cost(Job& job, bool in_place) const {
  const bool after_failure = job.restarts.failure_pending || job.restarts.lost || !job.failed.empty();
  if (job.ran == 0 || !gathering(job.phase) || after_failure || job.not_before > job.since) return;
  const double took = std::max(to_seconds(time - job.since), 1e-3);
  double& known = in_place ? job.change_in_place_s : job.change_anew_s;
  known = known > 0 ? (known + took) / 2 : took;
}

void Applier::operator()(const SeatFailed& e) {
  note(e.job, [&](Job& job) {
    // While the next generation gathers, seats of the failed one may still tell what they saw.
    const bool of_this = job.phase == JobPhase::kRunning && job.generation == e.generation;
    const bool of_last = gathering(job.phase) && job.restarts.failure_pending && job.generation == e.generation + 1;
    const bool of_kept = gathering(job.phase) && job.in_place && job.ran == e.generation;
    if (!of_this && !of_last && !of_kept) return;
    if (!job.restarts.failure_pending) job.restarts.failures.clear();
    job.failed.insert(e.node);
    set_failure_pending(job, true);
    job.restarts.lost = job.restarts.lost || e.fenced;
    for (const elastic::Failure& failure : e.failures) job.restarts.add(failure);
  });
}

void Applier::operator()(const SeatDone& e) {
  note(e.job, [&](Job& job) {
    if (job.generation == e.generation && job.phase == JobPhase::kRunning) job.done.insert(e.node);
    // It may be told later than something else was decided.
    if (job.ran == e.generation) job.unfinished.erase(e.node);
  });
}

void Applier::operator()(const SeatVacated& e) {
  change(e.job, [&](Job& job) {
    job.leaving.erase(e.node);
    if (!job.seat_on(e.node)) job.beside.erase(e.node);
    if (job.evacuation && job.evacuation->node == e.node && job.evacuation->stopped == WallTime{})
      job.evacuation->stopped = time;
  });
}

void Applier::operator()(const CheckpointMissed& e) {
  note(e.job, [&](Job& job) {
    job.reason = describe(Event(e));
    if (job.evacuation && job.evacuation->node == e.node) job.evacuation->saved = false;
  });
}

void Applier::operator()(const OutputKept& e) {
  Output* output = output_at(e.job, e.node);
  if (!output || output->generation != e.generation) return;  // it has run there again
  output->phase = Output::Phase::kKept;
  output->files = e.files;
  output->bytes = e.bytes;
  output->reason.clear();
  reindex_outputs(state, state.jobs.at(e.job));
}

void Applier::operator()(const OutputMissing& e) {
  Output* output = output_at(e.job, e.node);
  if (!output || output->phase == Output::Phase::kKept) return;
  output->phase = Output::Phase::kMissing;
  output->reason = e.reason;
}

void Applier::operator()(const JobProfiled& e) {
  note(e.job, [&](Job& job) {
    const bool first = !job.adaptive();
    job.profile = e.profile;
    job.profiled = time;
    state.has_adaptive = state.has_adaptive || job.adaptive();
    note_devices(job);
    if (job.adaptive()) resize_in(first ? kResizeSoon : kResizeEvery);
  });
}

// Rank 0 reports what it computes on. Of a round on nodes of several types nobody knows which of them it means.
void Applier::note_devices(const Job& job) {
  if (job.profile->device.empty() || job.seats.empty()) return;
  std::set<std::string> types;
  for (const Seat& seat : job.seats) {
    const auto node = state.nodes.find(seat.node);
    types.insert(node == state.nodes.end() ? "" : node->second.type);
  }
  if (types.size() == 1 && !types.begin()->empty()) state.devices[*types.begin()] = job.profile->device;
}

void Applier::operator()(const JobSized& e) {
  note(e.job, [&](Job& job) {
    job.sized = e.workers;
    job.worthwhile = e.worthwhile;
    job.size_reason = e.reason;
  });
}

void Applier::operator()(const JobStopping& e) {
  change(e.job, [&](Job& job) {
    vacate(state, job, {});
    job.in_place = false;
    job.seats.clear();
    job.stop_failed = e.failed;
    job.reason = e.reason;
    enter(job, JobPhase::kStopping, time);
  });
}

void Applier::operator()(const JobEnded& e) {
  change(e.job, [&](Job& job) {
    job.seats.clear();
    job.leaving.clear();
    job.evacuation.reset();
    job.round.clear();
    job.plan.reset();
    job.beside.clear();
    forget_cut_off(job);
    job.reason = e.reason;
    job.end_cause = e.cause;
    job.ended_at = time;
    enter(job,
          e.result == JobResult::kSucceeded ? JobPhase::kSucceeded
          : e.result == JobResult::kFailed  ? JobPhase::kFailed
                                            : JobPhase::kStopped,
          time);
    state.ended_jobs.push_back(job.id);
    resize_in(kResizeSoon);
    reindex_outputs(state, job);
  });
  forget_oldest();
}

Output* Applier::output_at(const JobId& id, const NodeId& node) {
  Job* job = job_at(id);
  if (!job) return nullptr;
  const auto it = job->outputs.find(node);
  return it == job->outputs.end() ? nullptr : &it->second;
}

void Applier::resize_in(Duration wait) {
  const WallTime at = later(time, wait);
  if (!state.has_adaptive) return;
  if (!state.resize_at || at < *state.resize_at) state.resize_at = at;
}

// A job whose failure is not settled yet asks for no more workers: what the autoscaler was asked changes with it.
void Applier::set_failure_pending(Job& job, bool pending) {
  if (job.restarts.failure_pending != pending) ++state.scale_changes;
  job.restarts.failure_pending = pending;
}

void Applier::shun(Job& job, const NodeId& node) {
  const int strikes = std::min(++job.strikes[node], 8);
  job.shunned[node] = later(time, std::min<Duration>(kShunnedMax, kShunnedFirst * (1 << (2 * (strikes - 1)))));
}

void Applier::decided(Job& job, const Reasons& reasons) {
  job.reasons = reasons;
  job.reasons_digest = digest(reasons);
  job.decided = offset;
  job.decided_at = time;
}

void Applier::forget_cut_off(Job& job) {
  job.cut_off.clear();
  state.beside_cut_off.erase(job.id);
}

void Applier::forget_oldest() {
  while (state.ended_jobs.size() > kEndedMax) {
    const JobId oldest = state.ended_jobs.front();
    state.ended_jobs.erase(state.ended_jobs.begin());
    if (const Job* job = job_at(oldest)) {
      if (!job->request_id.empty()) state.requests.erase(job->request_id);
      for (const auto& [node, output] : job->outputs) forget_output(state, node, oldest);
      state.jobs.erase(oldest);
    }
  }
}

}  // namespace rubato::cluster

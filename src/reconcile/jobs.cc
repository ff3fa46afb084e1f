#include "reconcile/jobs.h"

#include <fmt/format.h>

#include <algorithm>

#include "elastic/restart.h"
#include "policy/place.h"
#include "reconcile/fence.h"
#include "reconcile/in_place.h"

namespace rubato::reconcile {

using cluster::Event;
using cluster::Job;
using cluster::JobEndCause;
using cluster::JobEnded;
using cluster::JobPhase;
using cluster::JobResult;
using cluster::JobStarted;
using cluster::JobStopping;
using cluster::later;
using cluster::Observed;
using cluster::RestartCharged;
using cluster::Seat;
using cluster::State;
using cluster::Wake;

std::vector<elastic::MemberInfo> round_of(const State& state, const Job& job) {
  std::vector<elastic::MemberInfo> round;
  for (const Seat& seat : job.seats) {
    const auto it = state.nodes.find(seat.node);
    elastic::MemberInfo info = it == state.nodes.end() ? elastic::MemberInfo{} : it->second.info;
    info.nproc = seat.workers;
    round.push_back(std::move(info));
  }
  return round;
}

namespace {
std::string short_seconds(Duration d) { return fmt::format("{:.1f} s", to_seconds(d)); }
}  // namespace

std::string describe_move(const cluster::Evacuation& move, int workers, WallTime now) {
  const Duration notice = std::max<Duration>(0s, move.deadline - move.at);
  std::string story = fmt::format("{} {:.0f} s", move.cause, to_seconds(notice));
  const bool seen = move.stopped != WallTime{};
  if (!move.saved) {
    story += " → lost what was not saved before";
  } else if (seen) {
    story += fmt::format(" → saved and stopped ({})", short_seconds(move.stopped - move.at));
  }
  const std::string took = short_seconds(now - (seen ? move.stopped : move.at));
  return story + (workers == move.workers ? fmt::format(" → moved {} workers ({})", workers, took)
                                          : fmt::format(" → resized {}→{} ({})", move.workers, workers, took));
}

namespace {

constexpr size_t kMessageMax = 200;
constexpr Duration kAfterPlacement = 1s;

std::string root_cause_text(const Job& job) {
  const elastic::Failure* first = elastic::root_cause(job.restarts.failures);
  const std::string message =
      first ? first->message.substr(0, std::min(first->message.find('\n'), kMessageMax)) : std::string();
  return elastic::describe_cause(job.restarts.failures) + (message.empty() ? "" : fmt::format(" ({})", message));
}

// What the failure of the last generation costs, now that every seat has answered. nullopt: nothing is owed.
std::optional<Event> settle_failure(const Job& job) {
  // A node went away in the same round: its loss was the cause, and losses cost nothing.
  if (!job.restarts.owes()) return std::nullopt;
  elastic::Restarts after = job.restarts;
  RestartCharged charged;
  charged.job = job.id;
  const elastic::Failure* first = elastic::root_cause(after.failures);
  if (first && elastic::asks_for_a_restart(*first)) {
    charged.backoff = after.back_off(after.uptime);
    charged.used = after.used;
    charged.quick_crashes = after.quick_crashes;
    charged.saved = true;
    charged.cause = fmt::format("rank {} saved and left (exit code {})", first->rank, elastic::kSavedAndLeft);
    return charged;
  }
  const bool at_start = after.uptime < elastic::kCrashAtStart;
  const std::string crash = at_start ? elastic::crash_signature(after.failures) : "";
  // What failed twice in the same way before it had begun is in the program, and no restart mends that.
  if (!crash.empty() && crash == job.last_crash && after.used < job.spec.max_restarts) {
    const int left = job.spec.max_restarts - after.used;
    const std::string why =
        fmt::format("{}; the same error twice, right after the start, so the {} left {} not used", root_cause_text(job),
                    left == 1 ? "restart" : fmt::format("{} restarts", left), left == 1 ? "is" : "are");
    return JobEnded{job.id, JobResult::kFailed, why, JobEndCause::kSameCrash};
  }
  const std::optional<Duration> backoff = after.charge(job.spec.max_restarts, after.uptime);
  if (!backoff) {
    const std::string spent = job.spec.max_restarts == 0 ? "no restarts allowed (--max-restarts 0)"
                                                         : fmt::format("all {} restarts used", job.spec.max_restarts);
    return JobEnded{job.id, JobResult::kFailed, fmt::format("{}; {}", root_cause_text(job), spent),
                    JobEndCause::kRestartsUsed};
  }
  charged.used = after.used;
  charged.quick_crashes = after.quick_crashes;
  charged.backoff = *backoff;
  charged.cause = root_cause_text(job);
  charged.crash = crash;
  return charged;
}

// A seat that cannot get ready, though it has had its time and place() has found no other: the job would wait for ever.
std::optional<Event> give_up(const Observed& observed, const Job& job, WallTime now, Wake& wake) {
  for (const Seat& seat : job.seats) {
    const std::string* problem = observed.problem_of(job.id, seat.node);
    if (!problem || observed.of(job.id, seat.node, job.generation)) continue;
    const WallTime asked = std::max(job.since, observed.listening_since);
    const WallTime deadline = later(asked, policy::patience(job, seat.node) + kAfterPlacement);
    if (now >= deadline) return JobStopping{job.id, true, fmt::format("node {}: {}", seat.node.value, *problem)};
    wake.by(deadline);
  }
  return std::nullopt;
}

// Workers live that would have gone on: they end before the job does, as for a start anew.
Event stop_kept(const Job& job) {
  cluster::JobPlaced placed;
  placed.job = job.id;
  placed.generation = job.generation + 1;
  placed.seats = job.seats;
  placed.cause = root_cause_text(job);
  placed.reasons = job.reasons;
  return placed;
}

std::optional<Event> advance_gathering(const State& state, const Observed& observed, const Job& job, WallTime now,
                                       Wake& wake) {
  for (const Seat& seat : job.seats) {
    if (!observed.of(job.id, seat.node, job.generation)) return give_up(observed, job, now, wake);
  }
  // One that drains since they were placed gets no workers: place() forms the round anew.
  for (const Seat& seat : job.seats) {
    const auto node = state.nodes.find(seat.node);
    if (node != state.nodes.end() && node->second.phase == cluster::NodePhase::kDraining) return std::nullopt;
  }
  // Nor may a worker of an older generation be alive on a node that it has left: both would write its checkpoints.
  // Those of a group that changes in place leave it by the plan that is made now.
  for (const auto& [node, workers] : job.leaving) {
    if (!job.in_place && !job.seat_on(node)) return std::nullopt;
  }
  // Nor on one that nobody hears.
  if (!is_fenced_off(state, observed, job, now, wake)) return std::nullopt;
  if (std::optional<Event> settled = settle_failure(job)) {
    if (!job.in_place || !std::holds_alternative<JobEnded>(*settled)) return settled;
    return stop_kept(job);
  }
  if (now < job.not_before) {
    wake.by(job.not_before);
    return std::nullopt;
  }
  elastic::Round round = form_round(state, observed, job);
  if (job.in_place && !round.plan) return std::nullopt;  // place() forms the round anew
  JobStarted started;
  started.job = job.id;
  started.plan = std::move(round.plan);
  started.in_place = job.in_place;
  if (job.in_place) started.change = describe_change(job);
  started.generation = job.generation;
  started.master_addr = std::move(round.master_addr);
  started.master_port = round.master_port;
  if (job.evacuation) started.moved = describe_move(*job.evacuation, job.workers(), now);
  if (job.evacuation && job.in_place) started.moved += " in place";
  return started;
}

std::optional<Event> advance_job(const State& state, const Observed& observed, const Job& job, WallTime now,
                                 Wake& wake) {
  if (job.finished()) return JobEnded{job.id, JobResult::kSucceeded, ""};
  if (job.phase == JobPhase::kStopping) {
    if (!job.leaving.empty()) return std::nullopt;
    return JobEnded{job.id, job.stop_failed ? JobResult::kFailed : JobResult::kStopped, job.reason};
  }
  if (state.shutting_down) return JobStopping{job.id, false, "the cluster is shutting down"};
  // It may have ended well, or in time, and its nodes are about to say so.
  if (cluster::is_unheard(state, observed, job) || observed.finishing.contains(job.id)) return std::nullopt;
  if (job.spec.timeout > 0s && job.started != WallTime{}) {
    const WallTime deadline = later(job.started, job.spec.timeout);
    if (now >= deadline)
      return JobStopping{job.id, true, fmt::format("timeout of {}", format_duration(job.spec.timeout))};
    wake.by(deadline);
  }
  if (cluster::gathering(job.phase)) return advance_gathering(state, observed, job, now, wake);
  if (job.phase == JobPhase::kRunning && (job.done.size() == job.seats.size() || is_over(observed, job))) {
    return JobEnded{job.id, JobResult::kSucceeded, ""};
  }
  return std::nullopt;
}

}  // namespace

std::vector<Event> advance_jobs(const State& state, const Observed& observed, WallTime now, Wake& wake) {
  std::vector<Event> events;
  const auto advance = [&](const Job& job) {
    if (std::optional<Event> event = advance_job(state, observed, job, now, wake)) events.push_back(std::move(*event));
  };
  if (!state.shutting_down) {
    for (const JobId& id : state.index.pending_jobs()) advance(state.jobs.at(id));
    return events;
  }
  for (const auto& [id, job] : state.jobs) {
    if (!cluster::ended(job.phase)) advance(job);
  }
  return events;
}

}  // namespace rubato::reconcile

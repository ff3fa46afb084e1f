#include "reconcile/jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "elastic/restart.h"
#include "policy/place.h"
#include "reconcile/fence.h"

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

constexpr size_t kMessageMax = 200;
constexpr Duration kAfterPlacement = 1s;

std::string root_cause_words(const Job& job) {
  const elastic::Failure* first = elastic::root_cause(job.failures);
  if (!first) return "a worker failed";
  const std::string message = first->message.substr(0, std::min(first->message.find('\n'), kMessageMax));
  return elastic::describe(*first) + (message.empty() ? "" : fmt::format(" ({})", message));
}

// What the failure of the last generation costs, now that every seat has answered. nullopt: nothing is owed.
std::optional<Event> settle_failure(const Job& job) {
  // A node went away in the same round: its loss was the cause, and losses cost nothing.
  if (!job.failure_pending || job.lost_since_failure) return std::nullopt;
  if (const elastic::Failure* first = elastic::root_cause(job.failures); first && elastic::asks_for_a_restart(*first)) {
    // It costs none of the restarts; one that asks as soon as it starts is made to wait, as crashes are.
    elastic::RestartBudget unlimited(std::numeric_limits<int>::max(), 0, job.quick_crashes);
    RestartCharged charged;
    charged.job = job.id;
    charged.backoff = *unlimited.charge(job.last_uptime);
    charged.used = job.restarts_used;
    charged.quick_crashes = unlimited.quick_crashes();
    charged.saved = true;
    charged.cause = fmt::format("rank {} saved and left (exit code {})", first->rank, elastic::kSavedAndLeft);
    return charged;
  }
  const bool at_start = job.last_uptime < elastic::kCrashAtStart;
  const std::string crash = at_start ? elastic::crash_signature(job.failures) : "";
  // What failed twice in the same way before it had begun is in the program, and no restart mends that.
  if (!crash.empty() && crash == job.last_crash && job.restarts_used < job.spec.max_restarts) {
    const int left = job.spec.max_restarts - job.restarts_used;
    const std::string why = fmt::format("{}; the same error twice, right after the start, so the {} left {} not used",
                                        root_cause_words(job), left == 1 ? "restart" : fmt::format("{} restarts", left),
                                        left == 1 ? "is" : "are");
    return JobEnded{job.id, JobResult::kFailed, why, JobEndCause::kSameCrash};
  }
  elastic::RestartBudget budget(job.spec.max_restarts, job.restarts_used, job.quick_crashes);
  const std::optional<Duration> backoff = budget.charge(job.last_uptime);
  if (!backoff) {
    const std::string spent = job.spec.max_restarts == 0 ? "no restarts allowed (--max-restarts 0)"
                                                         : fmt::format("all {} restarts used", job.spec.max_restarts);
    return JobEnded{job.id, JobResult::kFailed, fmt::format("{}; {}", root_cause_words(job), spent),
                    JobEndCause::kRestartsUsed};
  }
  RestartCharged charged;
  charged.job = job.id;
  charged.used = budget.used();
  charged.quick_crashes = budget.quick_crashes();
  charged.backoff = *backoff;
  charged.cause = root_cause_words(job);
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

std::optional<Event> advance_gathering(const State& state, const Observed& observed, const Job& job, WallTime now,
                                       Wake& wake) {
  for (const Seat& seat : job.seats) {
    if (!observed.of(job.id, seat.node, job.generation)) return give_up(observed, job, now, wake);
  }
  // Nor may a worker of an older generation be alive on a node that it has left: both would write its checkpoints.
  for (const auto& [node, workers] : job.leaving) {
    if (!job.seat_on(node)) return std::nullopt;
  }
  // Nor on one that nobody hears.
  if (!is_fenced_off(state, observed, job, now, wake)) return std::nullopt;
  if (std::optional<Event> settled = settle_failure(job)) return settled;
  if (now < job.not_before) {
    wake.by(job.not_before);
    return std::nullopt;
  }
  const std::vector<elastic::MemberInfo> round = round_of(state, job);
  JobStarted started;
  started.job = job.id;
  started.generation = job.generation;
  started.master_addr = elastic::reachable_address(round.front(), round);
  // All are on this machine. PyTorch looks up the name of the address: every machine knows this one, and asks a name
  // server, which may be far or away, about the others.
  if (elastic::is_loopback(started.master_addr)) started.master_addr = "127.0.0.1";
  started.master_port = observed.of(job.id, job.seats.front().node, job.generation)->port;
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
  if (job.phase == JobPhase::kRunning && job.done.size() == job.seats.size()) {
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
    for (const JobId& id : state.index.restless_jobs()) advance(state.jobs.at(id));
    return events;
  }
  for (const auto& [id, job] : state.jobs) {
    if (!cluster::ended(job.phase)) advance(job);
  }
  return events;
}

}  // namespace rubato::reconcile

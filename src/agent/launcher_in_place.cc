// The launcher's part in groups that change in place: its workers live on from one generation to the next.
//
//   GATHERING  workers that can be kept go on training, or wait broken; the answer names them
//   RUNNING    the plan is written for them; who is not in it leaves, or is killed; who is missing is started beside
#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "agent/launcher.h"

namespace rubato::agent {

using namespace elastic;

namespace {
// Nobody meets this group from another machine.
bool stays_here(const LaunchSpec& spec) {
  if (spec.standalone) return true;
  return spec.backend != Backend::kEtcd && is_loopback(parse_endpoint(spec.endpoint, 0).host);
}
}  // namespace

void Launcher::open_in_place() {
  if (!spec_.in_place || spec_.nodes_step > 1) return;  // in place a group goes on with any number of workers
  const InPlace::Terms terms{spec_.nproc, stays_here(spec_), self_.value.substr(0, 12)};
  std::string problem;
  in_place_ = InPlace::open(world_, context_.in_place, terms, [this] { inbox_.push(WorkersChanged{}); }, problem);
  if (!problem.empty()) say(problem);
}

// A worker of this agent has died: the others go on, if all of them can, or if it was in no plan.
bool Launcher::survives() {
  if (!in_place_) return false;
  in_place_->read_reports();
  return in_place_->all_declared(workers_);
}

// Their plan is of the last generation that ran, and all of them have declared that they can.
bool Launcher::keeps_workers() const {
  if (!in_place_ || !workers_.alive() || failure_ || view_->restart) return false;
  return in_place_->can_keep(workers_, view_->legacy.round);
}

void Launcher::stop_unkept() {
  const bool stale = in_place_ && in_place_->any_planned_alive(workers_) && !view_->restart &&
                     in_place_->published() < view_->legacy.round;
  if (stale) {
    // The others went on without them, and have named them lost.
    workers_.kill();
    return;
  }
  if (in_place_ && in_place_->any_planned_alive(workers_) && !in_place_->all_declared(workers_)) {
    in_place_->stopped = true;
  }
  workers_.stop(SIGTERM, grace());
}

// Workers that have ended give their places to others; before that, the host hears of those that failed.
void Launcher::renew_ended(Generation generation) {
  std::vector<Failure> in_group, beside;
  for (const InPlace::Ended& one : in_place_->take_ended(workers_, true)) {
    if (one.failure) (one.planned ? in_group : beside).push_back(*one.failure);
    // It never said that it can change in place: neither may the next one.
    if (one.failure && one.planned && !one.declared) in_place_->stopped = true;
  }
  if (!in_group.empty()) {
    const Failed failed{generation, std::move(in_group)};
    membership_.say(failed);
  }
  if (!beside.empty()) report_unplanned(beside);
}

// A worker that was in no plan yet has failed: that costs a restart, and the group trains on. When none is left, that
// ends the job; but a newcomer that cannot start does no harm to those that train.
void Launcher::report_unplanned(const std::vector<Failure>& failures) {
  const Legacy& legacy = view_->legacy;
  if (view_->in_round || legacy.restarts_used < legacy.terms.max_restarts) {
    const Failed failed{view_->legacy.generation, failures, false};
    membership_.say(failed);
    return;
  }
  std::string what = describe(failures.front());
  if (!failures.front().message.empty()) what += ": " + failures.front().message;
  failure_ = Error(ErrorCode::kFailed, "a worker ended before it could join the group: " + what, "",
                   "the others train on; see the worker's output, then start this agent again");
  membership_.say(Leave{"its workers failed before they joined"});
  workers_.stop(SIGTERM, grace());
}

void Launcher::follow_gathering_in_place() {
  in_place_->read_reports();
  renew_ended(view_->legacy.round);
  if (failure_) return;
  if (view_->prepare) prepare_workers();
}

void Launcher::follow_running_in_place() {
  in_place_->read_reports();
  const GroupPlan& plan = *view_->plan;
  const Generation generation = view_->legacy.generation;
  if (in_place_->published() < generation) {
    if (!adopt_plan(plan)) return;
  }
  if (workers_.retired()) return;
  report_members(plan, generation);
  // Those that the plan has are reported until it changes; the others' places are free.
  for (const InPlace::Ended& one : in_place_->take_ended(workers_, false)) {
    if (one.failure) report_unplanned({*one.failure});
    if (failure_) return;
  }
  if (view_->prepare && signal_ == 0) prepare_workers();
  offer_workers(generation);
}

// False: the workers of this agent are not in it, and must go first.
bool Launcher::adopt_plan(const GroupPlan& plan) {
  const std::map<std::string, int> ranks = plan.ranks();
  for (const std::string& id : workers_.living()) {
    if (ranks.contains(id) || !in_place_->planned(id)) continue;
    if (plan.lets_go(id)) {
      if (publish(plan)) workers_.retire(grace());
    } else if (signal_ != 0) {
      // Nobody goes on with the job's state: they save it.
      workers_.stop(signal_, grace());
    } else {
      workers_.kill();
    }
    return false;
  }
  if (workers_.alive() && workers_.stopping()) return false;
  const bool all_begin = !workers_.alive() && view_->assignment.has_value();
  if (!publish(plan)) return false;
  workers_.advance(view_->legacy.generation, ranks);
  if (signal_ != 0) return true;
  if (all_begin) {
    in_place_->finished = false;
    port_.reset();
    if (timer_) timer_->clear();
  }
  for (InPlace::Slot& slot : in_place_->slots()) {
    if (ranks.contains(slot.id) && !slot.started) add_worker(slot);
  }
  return true;
}

// False: it cannot be written down (a full disk). The others go on without this agent; its workers may save.
bool Launcher::publish(const GroupPlan& plan) {
  try {
    in_place_->publish(view_->legacy.generation, plan);
    return true;
  } catch (const Error& error) {
    failure_ = error;
    membership_.say(Leave{error.message});
    workers_.stop(SIGTERM, grace());
    return false;
  }
}

void Launcher::report_members(const GroupPlan& plan, Generation generation) {
  bool all_ended_well = true, any = false, settled = true;
  std::string broken;
  std::vector<Failure> failures;
  for (const InPlace::Slot& slot : in_place_->slots()) {
    if (!plan.has(slot.id)) continue;
    const auto worker = InPlace::worker_of(slot, workers_);
    if (!worker) continue;
    any = true;
    const bool met = slot.report && slot.report->generation >= generation;
    all_ended_well = all_ended_well && worker->ended_well;
    settled = settled && worker->alive && slot.trained && met;
    if (worker->failure) {
      failures.push_back(*worker->failure);
    } else if (worker->ended_well && !met && slot.report) {
      broken = "a worker ended before it could join";
    } else if (!worker->alive && !worker->ended_well) {
      broken = "a worker was stopped";
    } else if (met && slot.report->state == WorkerReport::State::kBroken) {
      broken = slot.report->reason;
    }
  }
  if (!any) return;
  if (!failures.empty()) {
    const Failed failed{generation, std::move(failures)};
    membership_.say(failed);
  } else if (!broken.empty()) {
    const Broken message{generation, broken};
    membership_.say(message);
  } else if (all_ended_well) {
    membership_.say(Succeeded{generation});
  } else if (settled) {
    membership_.say(Settled{generation});
  }
}

void Launcher::prepare_workers() {
  if (workers_.alive() && workers_.stopping()) return;
  for (InPlace::Slot& slot : in_place_->slots()) {
    if (!in_place_->planned(slot.id) && !slot.started && !slot.held) add_worker(slot);
  }
}

void Launcher::add_worker(InPlace::Slot& slot) {
  slot.started = true;
  View place = *view_;
  if (!in_place_->planned(slot.id)) {
    // What a script may look at before it has a place: not rank 0.
    place.assignment = Assignment{};
    if (place.plan) {
      place.assignment->first_rank = static_cast<int>(place.plan->members.size());
      place.assignment->group_rank = place.plan->members.back().node + 1;
    }
    place.assignment->first_rank = std::max(place.assignment->first_rank, 1);
    place.assignment->world_size = place.assignment->first_rank + spec_.nproc;
    place.assignment->group_world_size = place.assignment->group_rank + 1;
    place.assignment->first_role_rank = place.assignment->first_rank;
    place.assignment->role_world_size = place.assignment->world_size;
  }
  use_static_master(place);
  try {
    workers_.add(place, slot.local_rank, slot.id);
  } catch (const Error& error) {
    failure_ = error;
    membership_.say(Leave{error.message});
  }
}

void Launcher::offer_workers(Generation generation) {
  bool any = false;
  for (const InPlace::Slot& slot : in_place_->slots()) {
    const auto worker = InPlace::worker_of(slot, workers_);
    if (in_place_->planned(slot.id) || !worker || !worker->alive) continue;
    if (!slot.report) return;  // together with the others
    any = true;
  }
  if (any) membership_.say(Offer{generation});
}

// Its workers leave when the others have a plan without them.
bool Launcher::leaves_in_peace() const {
  return in_place_ && view_ && view_->phase == Phase::kRunning && view_->plan && view_->assignment &&
         in_place_->can_leave_in_peace(workers_, view_->legacy.generation, *view_->assignment);
}

void Launcher::wait_for_peace() { peace_.set(world_.clock.now() + peace_for(grace())); }

}  // namespace rubato::agent

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
// An agent that leaves waits so long for a plan without its workers; then they are told to stop, and with them all.
constexpr Duration kPeaceMax = 5s;
}  // namespace

void Launcher::open_in_place() {
  if (!spec_.in_place || !context_.in_place || static_cast<size_t>(spec_.nproc) > kPlanWorkersMax) return;
  try {
    in_place_ =
        std::make_unique<InPlace>(world_, *context_.in_place, spec_, self_, [this] { inbox_.push(WorkersChanged{}); });
  } catch (const Error& error) {
    say(fmt::format("workers cannot change in place, and are restarted: {}", error.message));
  }
}

// A worker of this agent has died: the others go on, if all of them can, or if it was in no plan.
bool Launcher::survives() {
  if (!in_place_) return false;
  in_place_->read_reports();
  return in_place_->all_declared(workers_);
}

// Their plan is of the last generation that ran, and all of them have declared that they can.
bool Launcher::keeps_workers() const {
  if (!in_place_ || !workers_.alive() || failure_) return false;
  if (!in_place_->any_planned_alive(workers_)) return !view_->restart;
  return !view_->restart && in_place_->published() == view_->legacy.round && in_place_->all_declared(workers_);
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
  for (InPlace::Slot& slot : in_place_->slots()) {
    const auto worker = InPlace::worker_of(slot, workers_);
    if (!worker || worker->alive) continue;
    const bool planned = in_place_->planned(slot.id);
    if (worker->failure) (planned ? in_group : beside).push_back(*worker->failure);
    // It never said that it can change in place: neither may the next one.
    if (worker->failure && planned && !slot.report) in_place_->stopped = true;
    if (worker->ended_well && planned) in_place_->finished = true;
    in_place_->renew(slot);
    slot.held = worker->ended_well;
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
  for (InPlace::Slot& slot : in_place_->slots()) {
    const auto worker = InPlace::worker_of(slot, workers_);
    if (!worker || worker->alive || in_place_->planned(slot.id)) continue;
    const std::vector<Failure> failures =
        worker->failure ? std::vector<Failure>{*worker->failure} : std::vector<Failure>{};
    in_place_->renew(slot);
    slot.held = worker->ended_well;
    if (!failures.empty()) report_unplanned(failures);
    if (failure_) return;
  }
  if (view_->prepare && signal_ == 0) prepare_workers();
  offer_workers(generation);
}

// False: the workers of this agent are not in it, and must go first.
bool Launcher::adopt_plan(const GroupPlan& plan) {
  std::map<std::string, int> ranks;
  for (size_t rank = 0; rank < plan.members.size(); ++rank) ranks[plan.members[rank].id] = static_cast<int>(rank);
  for (const std::string& id : workers_.living()) {
    if (ranks.contains(id) || !in_place_->planned(id)) continue;
    const bool departs = std::ranges::find(plan.departing, id) != plan.departing.end();
    if (departs) {
      in_place_->publish(*view_);
      workers_.retire(grace());
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
  in_place_->publish(*view_);
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

void Launcher::report_members(const GroupPlan& plan, Generation generation) {
  bool all_ended_well = true, any = false, settled = true;
  std::string broken;
  std::vector<Failure> failures;
  for (const InPlace::Slot& slot : in_place_->slots()) {
    if (std::ranges::find(plan.members, slot.id, &PlannedWorker::id) == plan.members.end()) continue;
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
         view_->assignment->group_world_size > 1 && in_place_->published() == view_->legacy.generation &&
         in_place_->all_declared(workers_);
}

void Launcher::wait_for_peace() { peace_.set(world_.clock.now() + std::min<Duration>(grace() / 2, kPeaceMax)); }

}  // namespace rubato::agent

// JobOrderRunner's part in groups that change in place: its workers live on from one generation to the next.
//
//   GATHERING, kept   those that live go on; who is missing is started beside, and waits for a plan
//   RUNNING, plan     it is written for them; who is not in it leaves
//   ENDED, kept       they go on until the others have a plan without them
//   ENDED, plan       they leave by it; who does not within the grace is killed
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "node/job_order_runner.h"
#include "node/job_launch.h"

namespace rubato::node {

using namespace elastic;
using agent::InPlace;
using agent::WorkerGroup;

namespace {
constexpr size_t kPrefixLength = 12;

// `-e RUBATO_IN_PLACE=0`: a script whose own state does not stand it.
bool wants_in_place(const JobSpec& spec) {
  const auto found = spec.env.find("RUBATO_IN_PLACE");
  return found == spec.env.end() || found->second != "0";
}
}  // namespace

bool JobOrderRunner::open_in_place() {
  if (in_place_) return true;
  const NodeSettings& settings = parts_.settings;
  if (!wants_in_place(job_order_.spec)) return false;
  if (no_in_place_ || !settings.in_place) return false;
  InPlace::Terms terms;
  terms.workers = job_order_.workers;
  terms.loopback = is_loopback(settings.address);
  terms.prefix = parts_.world.random.hex(kPrefixLength);
  std::string problem;
  in_place_ = InPlace::open(parts_.world, settings.in_place, terms, parts_.wake, problem);
  no_in_place_ = !problem.empty();
  if (no_in_place_) log_.add(job_order_.generation, job_order_.place.first_rank, true, "rubato: " + problem);
  return in_place_ != nullptr;
}

// No worker of an older generation is left.
void JobOrderRunner::begin_anew() {
  if (anew_for_ == job_order_.generation || !open_in_place()) return;
  anew_for_ = job_order_.generation;
  dead_.clear();
  in_place_->reset(job_order_.workers);
}

// Workers that have ended give their places to others.
void JobOrderRunner::note_ended() {
  if (!group_) return;
  for (const InPlace::Ended& one : in_place_->take_ended(group_->workers, true)) {
    if (one.planned && one.failure) dead_.insert_or_assign(one.id, *one.failure);
    if (!one.planned && !group_->workers.stopping()) {
      declined_ = job_order_.generation;
      declined_why_ =
          "a new worker ended before it could join the others" + (one.failure ? ": " + describe(*one.failure) : "");
    }
  }
  fit_devices();
  if (!in_place_->finished) return;
  // Who came to join them and never trained would begin the training anew. Of a round that began together each one goes
  // on to its own end: it may be no training at all.
  for (const InPlace::Slot& slot : in_place_->slots()) {
    if (slot.started && slot.late && !slot.trained) group_->workers.dismiss(slot.id, SIGTERM, job_order_.spec.grace);
  }
}

// False: there is nothing to keep, nor can newcomers wait here.
bool JobOrderRunner::follow_kept() {
  if (!leaving_.empty() || !open_in_place()) return false;
  in_place_->read_reports();
  note_ended();
  if (!idle()) {
    if (group_->workers.stopping()) return true;  // of a round that this node had left: they go first
    if (!in_place_->can_keep(group_->workers, job_order_.kept)) {
      in_place_->stopped = true;
      stop_workers();
    }
  }
  if (in_place_->stopped) return true;
  if (!prepared_) {
    begin_preparing();
  } else if (lease_port()) {
    add_newcomers();
  }
  return true;
}

void JobOrderRunner::add_newcomers() {
  waits_for_lease_ = is_lease_over(lease_terms(job_order_));
  if (waits_for_lease_ || declined_ == job_order_.generation || in_place_->finished) return;
  in_place_->set_size(job_order_.workers);
  const auto alive = std::ranges::count_if(in_place_->slots(), &InPlace::Slot::started);
  int missing = job_order_.workers - static_cast<int>(alive);
  try {
    for (InPlace::Slot& slot : in_place_->slots()) {
      if (slot.started || slot.held || missing-- <= 0) continue;
      if (idle()) {
        make_group();
        group_->waits = true;
      }
      slot.late = true;
      add_worker(slot);
    }
    bound_workers();
  } catch (const Error& error) {
    declined_ = job_order_.generation;
    declined_why_ = error.message;
  }
}

// Throws Error.
void JobOrderRunner::add_worker(InPlace::Slot& slot) {
  View view = job_order_view(job_order_);
  // Before it has a place: not rank 0, nor that of another newcomer.
  int rank = job_order_.place.first_rank + slot.local_rank;
  if (rank == 0) rank = job_order_.place.world_size;
  if (job_order_.phase == Phase::kRunning) {
    rank = job_order_.plan->ranks().at(slot.id);
  }
  Assignment& place = *view.assignment;
  place.first_rank = place.first_role_rank = rank - slot.local_rank;
  place.world_size = place.role_world_size = std::max(place.world_size, rank + 1);
  slot.started = true;
  fit_devices();
  group_->spec.nproc = std::max(job_order_.workers, slot.local_rank + 1);
  group_->workers.add(view, slot.local_rank, slot.id);
}

// Who lives keeps its devices; who comes gets those that the head has counted for it.
void JobOrderRunner::fit_devices() {
  if (!group_) return;
  std::set<int> local_ranks;
  for (const InPlace::Slot& slot : in_place_->slots()) {
    if (slot.started) local_ranks.insert(slot.local_rank);
  }
  for (const InPlace::Slot& slot : in_place_->slots()) {
    if (local_ranks.size() < static_cast<size_t>(job_order_.workers)) local_ranks.insert(slot.local_rank);
  }
  group_->devices.hold(local_ranks);
}

bool JobOrderRunner::may_leave_in_peace() const {
  return in_place_ && job_order_.phase == Phase::kRunning && job_order_.plan && !idle() &&
         !group_->workers.stopping() &&
         in_place_->can_leave_in_peace(group_->workers, job_order_.generation, job_order_.place);
}

// This node is left, but not yet: the others make a plan without its workers.
bool JobOrderRunner::holds_workers() {
  if (!in_place_ || (!leaving_.empty() && !in_peace())) return false;
  in_place_->read_reports();
  note_ended();
  return !idle() && !group_->workers.stopping() && in_place_->published() == job_order_.kept &&
         in_place_->all_declared(group_->workers);
}

// False: they cannot, and are stopped.
bool JobOrderRunner::leaves_by_plan() {
  if (!in_place_) return false;
  WorkerGroup& workers = group_->workers;
  if (workers.retired()) return true;
  in_place_->read_reports();
  note_ended();
  if (workers.stopping() || !in_place_->all_declared(workers)) return false;
  for (const std::string& id : workers.living()) {
    if (!in_place_->planned(id)) workers.dismiss(id, SIGTERM, job_order_.grace);
  }
  try {
    in_place_->publish(job_order_.generation, *job_order_.plan);
  } catch (const Error&) {
    return false;
  }
  workers.retire(job_order_.grace);
  return true;
}

void JobOrderRunner::follow_plan() {
  in_place_->read_reports();
  note_ended();
  if (started_ >= job_order_.generation || !leaving_.empty()) return;
  // As in follow_running(): it may be older than it looks.
  waits_for_lease_ = is_lease_over(lease_terms(job_order_));
  if (waits_for_lease_) return;
  const auto is_ours = [&](const std::string& id) { return job_order_.plan->has(id); };
  if (!idle() && (group_->workers.stopping() || std::ranges::none_of(group_->workers.living(), is_ours))) {
    // All others have been told that these are gone.
    kill();
  } else if (!prepared_) {
    begin_preparing();
  } else if (!idle() || job_order_.kept > 0 || are_checkpoints_here()) {
    // Who joins living workers gets the state from them.
    adopt_plan();
  }
}

void JobOrderRunner::adopt_plan() {
  const GroupPlan& plan = *job_order_.plan;
  const std::map<std::string, int> ranks = plan.ranks();
  started_ = job_order_.generation;
  finished_ = 0;
  settled_ = false;
  no_start_.reset();
  port_.reset();
  std::erase_if(dead_, [&](const auto& entry) { return !ranks.contains(entry.first); });
  try {
    if (!idle()) {
      for (const std::string& id : group_->workers.living()) {
        if (ranks.contains(id)) continue;
        if (plan.lets_go(id)) {
          group_->workers.dismiss(id, 0, job_order_.grace);
        } else {
          // It was in no plan, or the others name it lost.
          group_->workers.dismiss(id, in_place_->planned(id) ? SIGKILL : SIGTERM, job_order_.spec.grace);
        }
      }
    }
    in_place_->publish(job_order_.generation, plan);
    if (!idle()) {
      group_->workers.advance(job_order_.generation, ranks);
      begin_checkpoints();
    }
    for (InPlace::Slot& slot : in_place_->slots()) {
      if (!ranks.contains(slot.id) || slot.started) continue;
      if (idle()) make_group();
      slot.late = job_order_.kept > 0;
      add_worker(slot);
    }
    if (idle() && dead_.empty() && !in_place_->finished) {
      throw Error(ErrorCode::kFailed, "the plan of the group has none of this node's workers");
    }
    if (group_) {
      group_->terms = lease_terms(job_order_);
      group_->waits = false;
    }
    if (parts_.supervisor) parts_.supervisor->follow(job_order_);
    bound_workers();
  } catch (const Error& error) {
    kill();
    if (idle()) {
      could_not_start(error);
    } else {
      log_.add(job_order_.generation, job_order_.place.first_rank, true, "rubato: " + error.message);
    }
  }
  parts_.wake();
}

std::vector<Failure> JobOrderRunner::dead_members() const {
  std::vector<Failure> list;
  for (const auto& [id, failure] : dead_) {
    const auto worker = group_ ? group_->workers.find(id) : std::nullopt;
    if (!worker || !worker->reading_last) list.push_back(failure);
  }
  return explained(std::move(list));
}

JobOrderReport JobOrderRunner::kept_report(JobOrderReport report) const {
  report.failures = dead_members();
  if (declined_ == job_order_.generation) {
    report.state = JobOrderState::kFailed;
    report.problem = declined_why_;
    return report;
  }
  // All that it had here is done, and its last lines are out: report() has waited for them.
  if (finished_ != 0 && idle()) {
    report.state = JobOrderState::kReady;
    return report;
  }
  const auto can_meet = [&](const InPlace::Slot& slot) {
    const auto worker = group_ ? InPlace::worker_of(slot, group_->workers) : std::nullopt;
    return worker && worker->alive && !worker->dismissed && slot.report;
  };
  const auto count = std::ranges::count_if(in_place_->slots(), can_meet);
  if (port_ && leaving_.empty() && !in_place_->stopped && count >= job_order_.workers) {
    report.state = JobOrderState::kReady;
    report.port = port_->port();
  }
  return report;
}

std::optional<InPlaceReport> JobOrderRunner::in_place_report() const {
  if (!in_place_ || (job_order_.phase == Phase::kEnded && job_order_.kept == 0)) return std::nullopt;
  InPlaceReport report;
  report.workers = in_place_->describe(group_ ? &group_->workers : nullptr);
  report.planned = in_place_->published();
  if (idle()) return report;
  report.living = group_->workers.living_count();
  report.settled = in_place_->settled(group_->workers);
  report.broken = in_place_->broken(group_->workers);
  return report;
}

}  // namespace rubato::node

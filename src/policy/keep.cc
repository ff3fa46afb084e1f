#include "policy/keep.h"

#include <algorithm>

namespace rubato::policy {

using cluster::Job;
using cluster::JobPhase;
using cluster::Observed;
using cluster::Seat;
using cluster::State;
using elastic::InPlaceReport;
using elastic::WorkerSlot;
using elastic::WorkerStage;

namespace {

bool is_there(const State& state, const Seat& seat) {
  const auto node = state.nodes.find(seat.node);
  return node != state.nodes.end() && node->second.agent == seat.agent &&
         (node->second.phase == cluster::NodePhase::kUp || node->second.phase == cluster::NodePhase::kDraining);
}

const Seat* seat_of_round(const Job& job, const Seat& seat) {
  const auto it = std::ranges::find_if(
      job.round, [&](const Seat& one) { return one.node == seat.node && one.agent == seat.agent; });
  return it == job.round.end() ? nullptr : &*it;
}

bool has_told(const Observed& observed, const Job& job, const Seat& seat) {
  const InPlaceReport* report = observed.in_place_of(job.id, seat.node);
  return report && report->planned == job.ran;
}

// It was not given up since.
bool is_of_round(const State& state, const Job& job, const Seat& seat) {
  return (job.seat_on(seat.node) || job.leaving.contains(seat.node)) && is_there(state, seat);
}

// Its workers have a plan, and may have the next one, too.
bool lives_on(const Job& job) {
  const bool live = job.phase == JobPhase::kRunning || (cluster::gathering(job.phase) && job.in_place);
  return live && job.plan && job.ran > 0;
}

bool can_keep_all_on(const Observed& observed, const Job& job, const Seat& seat) {
  if (!has_told(observed, job, seat)) return false;
  const InPlaceReport* report = observed.in_place_of(job.id, seat.node);
  return !report->workers.stopped && std::ranges::none_of(report->workers.slots, [&](const WorkerSlot& slot) {
    return job.plan->has(slot.id) && slot.stage == WorkerStage::kFresh;
  });
}

}  // namespace

std::vector<WorkerSlot> living_members(const Observed& observed, const Job& job, const NodeId& node) {
  std::vector<WorkerSlot> living;
  const InPlaceReport* report = observed.in_place_of(job.id, node);
  if (!report || !job.plan || report->planned != job.ran) return living;
  for (const WorkerSlot& slot : report->workers.slots) {
    if (job.plan->has(slot.id) && slot.stage != WorkerStage::kFresh) living.push_back(slot);
  }
  return living;
}

bool can_keep(const State& state, const Observed& observed, const Job& job, const std::vector<Seat>& seats) {
  if (!lives_on(job) || !job.done.empty() || job.restarts.breaks >= elastic::kBreaksMax) return false;
  size_t workers = 0;
  for (const Seat& seat : seats) workers += static_cast<size_t>(seat.workers);
  if (workers > elastic::kPlanWorkersMax) return false;
  for (const Seat& seat : job.round) {
    if (is_of_round(state, job, seat) && !can_keep_all_on(observed, job, seat)) return false;
  }
  bool veteran = false;
  for (const Seat& seat : seats) {
    const Seat* before = seat_of_round(job, seat);
    if (!before) continue;
    veteran = veteran || elastic::has_veteran(living_members(observed, job, seat.node));
  }
  return veteran;
}

bool awaits_reports(const State& state, const Observed& observed, const Job& job) {
  return lives_on(job) && job.done.empty() && std::ranges::any_of(job.round, [&](const Seat& seat) {
           return is_of_round(state, job, seat) && !has_told(observed, job, seat);
         });
}

std::vector<Seat> seats_of_living(const Observed& observed, const Job& job, const std::vector<Seat>& seats) {
  std::vector<Seat> out;
  for (const Seat& seat : seats) {
    Seat left = seat;
    if (const Seat* before = seat_of_round(job, seat)) {
      const auto living = static_cast<int>(living_members(observed, job, seat.node).size());
      left.workers -= std::max(0, std::min(before->workers, seat.workers) - living);
    }
    if (left.workers > 0) out.push_back(left);
  }
  return out;
}

bool is_nearly_done(const Observed& observed, const Job& job) {
  const auto reports = observed.in_place.find(job.id);
  return reports != observed.in_place.end() && std::ranges::any_of(reports->second, [&](const auto& entry) {
           return entry.second.workers.finished && entry.second.planned == job.ran;
         });
}

}  // namespace rubato::policy

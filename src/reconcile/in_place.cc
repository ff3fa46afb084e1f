#include "reconcile/in_place.h"

#include <fmt/format.h>

#include <algorithm>

#include "policy/keep.h"
#include "reconcile/jobs.h"

namespace rubato::reconcile {

using cluster::Job;
using cluster::Observed;
using cluster::Seat;
using cluster::State;
using elastic::InPlaceReport;
using elastic::Intake;
using elastic::WorkerSlot;

namespace {

// As many as the seat has, those with the job's state first; none: there are not so many.
std::vector<WorkerSlot> take_workers(const InPlaceReport& report, const Seat& seat, Intake intake) {
  std::vector<WorkerSlot> slots = elastic::plannable(report.workers.slots, intake);
  const auto wanted = static_cast<size_t>(seat.workers);
  if (slots.size() < wanted) return {};
  std::ranges::stable_sort(slots, [](const WorkerSlot& a, const WorkerSlot& b) { return a.stage > b.stage; });
  slots.resize(wanted);
  std::ranges::sort(slots, {}, &WorkerSlot::local_rank);
  return slots;
}

// All are on this machine. PyTorch looks up the name of the address: every machine knows this one, and asks a name
// server, which may be far or away, about the others.
void name_loopback(std::string& address) {
  if (elastic::is_loopback(address)) address = "127.0.0.1";
}

}  // namespace

elastic::Round form_round(const State& state, const Observed& observed, const Job& job) {
  const Intake intake = job.in_place ? Intake::kReady : Intake::kAll;
  std::vector<elastic::Answer> answers;
  for (const Seat& seat : job.seats) {
    elastic::Answer& answer = answers.emplace_back();
    answer.port = observed.of(job.id, seat.node, job.generation)->port;
    const InPlaceReport* report = observed.in_place_of(job.id, seat.node);
    if (!report) continue;
    answer.slots = take_workers(*report, seat, intake);
    answer.store = report->workers.store;
  }
  elastic::Round round = elastic::form_round(round_of(state, job), answers, job.in_place ? job.plan : std::nullopt);
  name_loopback(round.master_addr);
  if (!round.plan) return round;
  name_loopback(round.plan->store.host);
  if (!job.in_place || !job.plan) return round;
  for (const Seat& seat : job.round) {
    for (const WorkerSlot& slot : policy::living_members(observed, job, seat.node)) {
      if (!round.plan->has(slot.id)) round.plan->departing.push_back(slot.id);
    }
  }
  return round;
}

std::string describe_change(const Job& job) {
  int before = 0;
  for (const Seat& seat : job.round) before += seat.workers;
  if (before == job.workers()) return fmt::format("formed again in place with {} workers", before);
  return fmt::format("resized {}→{} in place", before, job.workers());
}

bool is_over(const Observed& observed, const Job& job) {
  if (!job.in_place || job.done.empty()) return false;
  return std::ranges::all_of(job.seats, [&](const Seat& seat) {
    if (job.done.contains(seat.node)) return true;
    const InPlaceReport* report = observed.in_place_of(job.id, seat.node);
    return report && report->planned == job.generation && !report->workers.finished &&
           !elastic::has_veteran(report->workers.slots);
  });
}

}  // namespace rubato::reconcile

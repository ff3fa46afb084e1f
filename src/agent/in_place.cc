#include "agent/in_place.h"

#include <fmt/format.h>

#include <algorithm>

#include "elastic/member.h"
#include "world/network.h"

namespace rubato::agent {

using namespace elastic;

namespace {
// A worker is a few generations behind at most: who was lost long ago is in no group that it could wait in.
constexpr size_t kLostMax = 1000;
}  // namespace

std::unique_ptr<InPlace> InPlace::open(World& world, InPlaceHost* host, const Terms& terms,
                                       std::function<void()> on_report, std::string& problem) {
  if (!host || static_cast<size_t>(terms.workers) > kPlanWorkersMax) return nullptr;
  try {
    return std::make_unique<InPlace>(world, *host, terms, std::move(on_report));
  } catch (const Error& error) {
    problem = "workers cannot change in place, and are restarted: " + error.message;
    return nullptr;
  }
}

InPlace::InPlace(World& world, InPlaceHost& host, const Terms& terms, std::function<void()> on_report)
    : world_(world),
      prefix_(terms.prefix),
      token_(world.random.hex(32)),
      board_(host.make_board(std::move(on_report))),
      store_(host.open_store(token_, terms.loopback)) {
  set_size(terms.workers);
}

void InPlace::set_size(int workers) {
  const auto wanted = static_cast<size_t>(workers);
  std::erase_if(slots_, [&](const Slot& slot) { return !slot.started && slot.local_rank >= workers; });
  for (int local_rank = 0; slots_.size() < wanted; ++local_rank) {
    const auto it = std::ranges::lower_bound(slots_, local_rank, {}, &Slot::local_rank);
    if (it != slots_.end() && it->local_rank == local_rank) continue;
    Slot slot;
    slot.local_rank = local_rank;
    renew(slot);
    slots_.insert(it, std::move(slot));
  }
}

void InPlace::reset(int workers) {
  slots_.clear();
  finished = stopped = false;
  set_size(workers);
}

std::vector<InPlace::Ended> InPlace::take_ended(const WorkerGroup& workers, bool planned_too) {
  std::vector<Ended> ended;
  for (Slot& slot : slots_) {
    const auto worker = worker_of(slot, workers);
    const bool member = planned(slot.id);
    if (!worker || worker->alive || worker->dismissed || (member && !planned_too)) continue;
    finished = finished || (member && worker->ended_well);
    ended.push_back({slot.id, member, slot.report.has_value(), worker->ended_well, worker->failure});
    renew(slot);
    slot.held = worker->ended_well;
  }
  std::erase_if(slots_, [&](const Slot& slot) {
    const auto worker = worker_of(slot, workers);
    return worker && !worker->alive && worker->dismissed;
  });
  return ended;
}

Environment InPlace::variables(const std::string& worker) const {
  return {{"RUBATO_PLAN_DIR", board_->path()}, {"RUBATO_WORKER_ID", worker}};
}

std::vector<int> InPlace::ranks(const GroupPlan& plan) const {
  std::vector<int> out;
  for (size_t rank = 0; rank < plan.members.size(); ++rank) {
    const bool ours = std::ranges::find(slots_, plan.members[rank].id, &Slot::id) != slots_.end();
    if (ours) out.push_back(static_cast<int>(rank));
  }
  return out;
}

void InPlace::renew(Slot& slot) {
  const int local_rank = slot.local_rank;
  slot = Slot{};
  slot.id = fmt::format("{}-{}", prefix_, ++names_);
  slot.local_rank = local_rank;
}

void InPlace::read_reports() {
  for (Slot& slot : slots_) {
    const std::optional<std::string> text = board_->report(slot.id);
    std::optional<WorkerReport> report = text ? parse_worker_report(*text) : std::nullopt;
    if (!report) continue;
    slot.trained = slot.trained || report->state == WorkerReport::State::kTraining;
    slot.report = std::move(report);
  }
}

std::optional<WorkerGroup::Named> InPlace::worker_of(const Slot& slot, const WorkerGroup& workers) {
  if (!slot.started) return std::nullopt;
  return workers.find(slot.id).value_or(WorkerGroup::Named{});
}

bool InPlace::planned(const std::string& id) const { return plan_ && plan_->has(id); }

void InPlace::publish(Generation generation, const GroupPlan& plan) {
  if (generation <= published_) return;
  if (plan_) {
    for (std::string& id : lost_between(*plan_, plan)) lost_.push_back(std::move(id));
  }
  if (lost_.size() > kLostMax) lost_.erase(lost_.begin(), lost_.end() - static_cast<std::ptrdiff_t>(kLostMax));
  board_->publish(generation, plan_document(plan, generation, lost_));
  published_ = generation;
  plan_ = plan;
  stopped = false;
}

bool InPlace::settled(const WorkerGroup& workers) const {
  return std::ranges::all_of(slots_, [&](const Slot& slot) {
    const auto worker = worker_of(slot, workers);
    if (!planned(slot.id)) return true;
    return worker && worker->alive && slot.trained && slot.report->generation >= published_ &&
           slot.report->state == WorkerReport::State::kTraining;
  });
}

std::string InPlace::broken(const WorkerGroup& workers) const {
  for (const Slot& slot : slots_) {
    const auto worker = worker_of(slot, workers);
    const bool says_so =
        slot.report && slot.report->generation >= published_ && slot.report->state == WorkerReport::State::kBroken;
    if (planned(slot.id) && worker && worker->alive && says_so)
      return slot.report->reason.empty() ? "it does not say why" : slot.report->reason;
  }
  return "";
}

bool InPlace::any_planned_alive(const WorkerGroup& workers) const {
  return std::ranges::any_of(slots_, [&](const Slot& slot) {
    const auto worker = worker_of(slot, workers);
    return planned(slot.id) && worker && worker->alive;
  });
}

bool InPlace::all_declared(const WorkerGroup& workers) const {
  return any_planned_alive(workers) && std::ranges::all_of(slots_, [&](const Slot& slot) {
           const auto worker = worker_of(slot, workers);
           return !planned(slot.id) || !worker || !worker->alive || slot.report;
         });
}

bool InPlace::can_keep(const WorkerGroup& workers, Generation last) const {
  return !any_planned_alive(workers) || (published_ == last && all_declared(workers));
}

bool InPlace::can_leave_in_peace(const WorkerGroup& workers, Generation running, const Assignment& place) const {
  return place.group_world_size > 1 && published_ == running && all_declared(workers);
}

AgentWorkers InPlace::describe(const WorkerGroup* workers) const {
  AgentWorkers out;
  out.store = {"", store_->port(), token_};
  out.stopped = stopped;
  out.finished = finished;
  for (const Slot& slot : slots_) {
    const auto worker = workers ? worker_of(slot, *workers) : std::nullopt;
    if (worker && worker->alive && worker->dismissed) continue;
    WorkerStage stage = WorkerStage::kFresh;
    if (worker && worker->alive && slot.report) stage = slot.trained ? WorkerStage::kVeteran : WorkerStage::kReady;
    out.slots.push_back({slot.id, slot.local_rank, stage});
  }
  return out;
}

}  // namespace rubato::agent

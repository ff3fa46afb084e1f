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

// Nobody meets this group from another machine.
bool stays_here(const LaunchSpec& spec) {
  if (spec.standalone) return true;
  return spec.backend != Backend::kEtcd && is_loopback(parse_endpoint(spec.endpoint, 0).host);
}
}  // namespace

InPlace::InPlace(World& world, InPlaceHost& host, const LaunchSpec& spec, const AgentId& self,
                 std::function<void()> on_report)
    : world_(world),
      prefix_(self.value.substr(0, 12)),
      token_(world.random.hex(32)),
      board_(host.make_board(std::move(on_report))),
      store_(host.open_store(token_, stays_here(spec))),
      slots_(static_cast<size_t>(spec.nproc)) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].local_rank = static_cast<int>(i);
    renew(slots_[i]);
  }
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

bool InPlace::planned(const std::string& id) const {
  return plan_ && std::ranges::find(plan_->members, id, &PlannedWorker::id) != plan_->members.end();
}

void InPlace::publish(const View& view) {
  CHECK(view.plan);
  if (view.legacy.generation <= published_) return;
  if (plan_) {
    for (std::string& id : lost_between(*plan_, *view.plan)) lost_.push_back(std::move(id));
  }
  if (lost_.size() > kLostMax) lost_.erase(lost_.begin(), lost_.end() - static_cast<std::ptrdiff_t>(kLostMax));
  board_->publish(view.legacy.generation, plan_document(*view.plan, view.legacy.generation, lost_));
  published_ = view.legacy.generation;
  plan_ = view.plan;
  stopped = false;
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

AgentWorkers InPlace::describe(const WorkerGroup& workers) const {
  AgentWorkers out;
  out.store = {"", store_->port(), token_};
  out.stopped = stopped;
  out.finished = finished;
  for (const Slot& slot : slots_) {
    const auto worker = worker_of(slot, workers);
    WorkerStage stage = WorkerStage::kFresh;
    if (worker && worker->alive && slot.report) stage = slot.trained ? WorkerStage::kVeteran : WorkerStage::kReady;
    out.slots.push_back({slot.id, slot.local_rank, stage});
  }
  return out;
}

}  // namespace rubato::agent

// How a group goes on with workers that live: which are planned, which are started beside, when all must restart.
#include <fmt/format.h>

#include <algorithm>

#include "elastic/rendezvous.h"

namespace rubato::elastic {

namespace {
constexpr Duration kBreakPauseFirst = 100ms;
constexpr Duration kBreakPauseMax = 5s;
}  // namespace

bool Rendezvous::any_veteran() const {
  return std::ranges::any_of(members_, [&](const auto& entry) {
    const Member& member = entry.second;
    return !member.leaving && member.ready_for == generation_ && has_veteran(member.workers.slots);
  });
}

bool Rendezvous::any_finished() const {
  return std::ranges::any_of(members_, [&](const auto& entry) {
    return entry.second.ready_for == generation_ && entry.second.workers.finished;
  });
}

Intake Rendezvous::intake() const {
  if (!any_veteran()) return Intake::kAll;
  return any_finished() ? Intake::kVeterans : Intake::kReady;
}

std::string Rendezvous::why_restart() const {
  if (!any_veteran()) return "";
  for (const auto& [id, member] : members_) {
    const std::string where = "the agent on " + member.info.host;
    if (member.leaving) continue;
    if (member.workers.stopped) return where + " had workers that cannot change in place";
    if (member.workers.slots.empty()) return where + " does not change workers in place";
  }
  return "";
}

void Rendezvous::restart_instead(const std::string& reason) {
  ++generation_;
  ++revision_;
  restart_ = true;
  departing_.clear();
  reason_ = "all workers start again: " + reason;
  note(Note::Kind::kGathering, reason_);
}

void Rendezvous::form_plan(const std::vector<const Member*>& agents, Intake taken) {
  std::vector<std::vector<WorkerSlot>> slots;
  size_t workers = 0;
  bool able = true;
  for (const Member* member : agents) {
    slots.push_back(plannable(member->workers.slots, taken));
    workers += slots.back().size();
    able = able && !slots.back().empty() && member->workers.store.port != 0;
  }
  const std::vector<PlannedWorker> last = plan_ ? plan_->members : std::vector<PlannedWorker>{};
  plan_.reset();
  if (!able || workers > kPlanWorkersMax) return;
  GroupPlan plan;
  plan.members = compose(slots, last);
  if (taken != Intake::kAll) plan.departing = departing_;
  std::vector<MemberInfo> round;
  for (const Member* member : agents) round.push_back(member->info);
  const Member& first = *agents[static_cast<size_t>(plan.members.front().node)];
  plan.store = first.workers.store;
  plan.store.host = reachable_address(first.info, round);
  plan_ = std::move(plan);
}

bool Rendezvous::settled_group() const {
  return plan_ && std::ranges::all_of(members_, [&](const auto& entry) {
           return entry.second.round != round_ || entry.second.settled;
         });
}

bool Rendezvous::prepares(const AgentId& id) const {
  if (!preparing_) return false;
  const auto wanted = candidates(terms_.spares);
  return std::ranges::any_of(wanted, [&](const Member* one) { return one->info.id == id; });
}

void Rendezvous::update_prepared() {
  const bool running = phase_ == Phase::kRunning && settled_group();
  const bool gathering = phase_ == Phase::kGathering && !restart_ && any_veteran() && unanswered(now_).empty();
  const bool preparing = (running || gathering) && !finishing_ && now_ >= not_before_;
  if (preparing != std::exchange(preparing_, preparing)) ++details_;
}

void Rendezvous::settled(const AgentId& id, Generation generation, Instant now) {
  now_ = now;
  const auto it = members_.find(id);
  if (it == members_.end() || generation != round_ || it->second.round != round_) return;
  it->second.heard = now;
  it->second.settled = true;
  update_prepared();
}

void Rendezvous::offered(const AgentId& id, Generation generation, Instant now) {
  now_ = now;
  const auto it = members_.find(id);
  if (it == members_.end() || phase_ != Phase::kRunning || generation != generation_ || finishing_) return;
  it->second.heard = now;
  const auto wanted = candidates();
  const bool room = std::ranges::any_of(wanted, [&](const Member* one) { return one->info.id == id; });
  if (!room || !settled_group()) return;
  gather(fmt::format("workers on {} are ready to join", it->second.info.host), now);
  try_form(now);
}

void Rendezvous::broken(const AgentId& id, Generation generation, const std::string& reason, Instant now) {
  now_ = now;
  const auto it = members_.find(id);
  if (it == members_.end() || phase_ != Phase::kRunning || generation != generation_) return;
  it->second.heard = now;
  breaks_ = now - running_since_ < kQuickCrash ? breaks_ + 1 : 1;
  gather(fmt::format("the group broke in a worker on {} ({})", it->second.info.host, reason), now);
  if (breaks_ > kBreaksMax) {
    breaks_ = 0;
    failure_pending_ = true;
    failures_.clear();
    restart_ = true;
  } else if (breaks_ > 1) {
    break_until_ = now + std::min<Duration>(kBreakPauseMax, kBreakPauseFirst * (1 << (breaks_ - 2)));
  }
  try_form(now);
}

}  // namespace rubato::elastic

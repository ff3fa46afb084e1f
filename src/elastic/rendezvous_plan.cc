// How a group goes on with workers that live: which are planned, which are started beside, when all must restart.
#include <fmt/format.h>

#include <algorithm>

#include "elastic/rendezvous.h"

namespace rubato::elastic {

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
  if (terms_.step > 1) return "the group has sizes in steps";
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

bool Rendezvous::settled_group() const {
  return formed_.plan && std::ranges::all_of(members_, [&](const auto& entry) {
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
  gather(fmt::format("the group broke in a worker on {} ({})", it->second.info.host, reason), now);
  const Duration pause = restarts_.note_break();
  if (restarts_.breaks > kBreaksMax) {
    restarts_.break_for_good();
    round_failed_ = restart_ = true;
  } else {
    break_until_ = now + pause;
  }
  try_form(now);
}

}  // namespace rubato::elastic

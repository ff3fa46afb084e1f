#include "elastic/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>

namespace rubato::elastic {

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kGathering:
      return "gathering";
    case Phase::kRunning:
      return "running";
    case Phase::kEnded:
      return "ended";
  }
  return "unknown";
}

Rendezvous::Rendezvous(const Terms& terms, Instant now) : terms_(terms), gathering_since_(now), last_join_(now) {}

Rendezvous::Rendezvous(const Legacy& legacy, const LostHost& host, Dead dead, Instant now)
    : terms_(legacy.terms),
      epoch_(legacy.epoch + 1),
      generation_(legacy.generation + 1),
      round_(legacy.round),
      round_size_(legacy.round_size),
      legacy_spares_(legacy.spares),
      incumbent_(false),
      next_seniority_(legacy.next_seniority),
      restarts_{.used = legacy.restarts_used, .lost = true},
      reason_("the host of the rendezvous was lost; gathering its members"),
      dead_(std::move(dead)),
      gathering_since_(now),
      last_join_(now),
      lost_host_(host),
      host_fenced_(host.heard + legacy.terms.heartbeat + beat_interval(legacy.terms.heartbeat)),
      everybody_fenced_(now + std::max(legacy.terms.heartbeat, host.patience)),
      in_sight_until_(host.heard + 2 * beat_interval(legacy.terms.heartbeat)),
      causes_(legacy.causes) {
  if (now >= in_sight_until_) dead_.unseen = dead_.in_round;
  for (const Successor& elder : host.elders) {
    if (elder.in_round) round_ids_.insert(elder.id);
    if (!dead_.has(elder.id) || dead_.unseen.contains(elder.id)) missing_.push_back(elder);
  }
}

std::optional<std::string> Rendezvous::join(const MemberInfo& info, const Claim& claim, Instant now) {
  now_ = now;
  if (phase_ == Phase::kEnded) return "the job has ended: " + reason_;
  if (info.nproc < 1) return fmt::format("it wants to run {} workers", info.nproc);
  const auto known = members_.find(info.id);
  if (known == members_.end() && members_.size() >= kMembersMax) {
    return fmt::format("the group has {} agents, the most it can have", kMembersMax);
  }
  for (const auto& [id, member] : members_) {
    if (info.node_rank && id != info.id && member.info.node_rank == info.node_rank && !member.disconnected) {
      return fmt::format("node rank {} is taken by the agent {} on {}: give each agent its own --node-rank",
                         *info.node_rank, id.value.substr(0, 8), member.info.host);
    }
  }
  if (claim.epoch > epoch_) {
    superseded_ = true;
    return fmt::format("it has seen a newer host (epoch {}) than this one (epoch {})", claim.epoch, epoch_);
  }
  if (std::optional<std::string> replaced = why_replaced(info, claim)) return replaced;
  dead_.forget(info.id);
  std::erase_if(missing_, [&](const Successor& agent) { return agent.id == info.id; });
  ++details_;
  replace_former(info, now);
  if (info.node_rank) {
    // The holder of this rank has broken off, and its successor is here.
    std::vector<AgentId> replaced;
    for (const auto& [id, member] : members_) {
      if (id != info.id && member.info.node_rank == info.node_rank) replaced.push_back(id);
    }
    for (const AgentId& id : replaced) lose(id, Loss::kDead, "it was started again", now);
  }
  if (known != members_.end()) {
    resume(known->second, info, claim, now);
  } else {
    admit(info, claim, now);
  }
  try_form(now);
  return std::nullopt;
}

// A member whose connection broke is back before it was given up.
void Rendezvous::resume(Member& member, const MemberInfo& info, const Claim& claim, Instant now) {
  member.disconnected.reset();
  member.heard = member.proof = now;
  member.info = info;
  const bool went_on = claim.round == round_ && (claim.running || claim.succeeded);
  if (phase_ == Phase::kRunning && member.round == round_ && !went_on) {
    gather(fmt::format("the agent on {} came back without its workers", info.host), now);
    unexplained_stop_ = true;
  }
}

void Rendezvous::admit(const MemberInfo& info, const Claim& claim, Instant now) {
  Member member;
  member.info = info;
  member.heard = member.proof = now;
  // The host before may have been lost before it could tell this agent that it was in.
  const auto is_elder = [&](const Successor& elder) { return elder.id == info.id; };
  member.veteran = claim.epoch > 0 || std::ranges::any_of(lost_host_.elders, is_elder);
  member.seniority = claim.seniority ? claim.seniority : next_seniority_++;
  next_seniority_ = std::max(next_seniority_, member.seniority + 1);
  // While a round runs, one that was given up has no place in it any more.
  // One that was cut off as the round was announced does not know that it is in it; we may.
  const bool known = round_ids_.contains(info.id) && (incumbent_ || claim.round <= round_);
  if (phase_ != Phase::kRunning) member.round = known ? round_ : claim.in_round && !incumbent_ ? claim.round : 0;
  members_[info.id] = member;
  last_join_ = now;
  note(Note::Kind::kJoined, "", &info);
  if (!incumbent_ && claim.epoch > 0) {
    // It may know of a later round than the new host does: the later numbers win.
    if (claim.round > round_) adopt_round(claim);
    if (claim.generation >= generation_) {
      generation_ = claim.generation + 1;
      ++revision_;
    }
    restarts_.used = std::max(restarts_.used, claim.restarts_used);
    restarts_.quick_crashes = 0;
  }
  const auto in_round = std::ranges::count_if(members_, [&](const auto& m) { return m.second.round == round_; });
  const bool has_room = phase_ == Phase::kRunning && in_round < terms_.max_nodes && !finishing_ && !settled_group();
  if (has_room && usable(candidates().size()) > in_round) {
    gather(fmt::format("an agent on {} joined", info.host), now);
  }
}

void Rendezvous::adopt_round(const Claim& claim) {
  round_ = claim.round;
  round_size_ = claim.round_size;
  dead_ = {};  // of an older round
  missing_.clear();
  round_ids_.clear();
  for (const Successor& peer : claim.peers) {
    round_ids_.insert(peer.id);
    // One that is here already was cut off before it heard of that round.
    const auto here = members_.find(peer.id);
    if (here == members_.end()) {
      missing_.push_back(peer);
    } else {
      here->second.round = round_;
    }
  }
}

void Rendezvous::heard(const AgentId& id, std::optional<Instant> proof, Instant now) {
  now_ = now;
  const auto it = members_.find(id);
  if (it == members_.end()) return;
  it->second.heard = now;
  if (proof && *proof <= now) it->second.proof = std::max(it->second.proof, *proof);
}

void Rendezvous::ready(const AgentId& id, Generation generation, uint16_t port, Instant now,
                       const AgentWorkers& workers) {
  now_ = now;
  const auto it = members_.find(id);
  if (it == members_.end() || generation != generation_ || phase_ != Phase::kGathering) return;
  it->second.heard = now;
  it->second.ready_for = generation;
  it->second.master_port = port;
  it->second.workers = workers;
  finishing_ = finishing_ || workers.finished;
  if (it->second.leaving && has_veteran(workers.slots)) {
    // It stays until they have left: they are not lost.
    for (const WorkerSlot& slot : workers.slots) {
      if (std::ranges::find(departing_, slot.id) == departing_.end()) departing_.push_back(slot.id);
    }
  } else if (it->second.leaving) {
    const MemberInfo info = it->second.info;
    if (in_round(id)) restarts_.lost = true;
    drop(id);
    note(Note::Kind::kLeft, "left", &info);
  }
  try_form(now);
}

void Rendezvous::failed(const AgentId& id, Generation generation, const std::vector<Failure>& failures, Instant now,
                        bool in_group) {
  now_ = now;
  const auto it = members_.find(id);
  if (it == members_.end() || phase_ == Phase::kEnded) return;
  it->second.heard = now;
  if (!in_group) {
    restarts_.failures = failures;
    if (charge(describe_cause(failures), now - running_since_, now)) update_prepared();
    return;
  }
  if (generation != round_) return;
  const bool first = phase_ == Phase::kRunning && generation == generation_;
  if (first) restarts_.failures.clear();
  for (const Failure& failure : failures) {
    const bool known =
        std::ranges::any_of(restarts_.failures, [&](const Failure& f) { return f.rank == failure.rank; });
    if (!known) restarts_.add(failure);
    if (known || first || !it->second.settled) continue;
    // Where the others survive it, it is no consequence of theirs. Its agent may have answered with it: once more.
    note_failure();
    it->second.ready_for.reset();
  }
  // The workers that were missing had failed.
  if (!first && std::exchange(unexplained_stop_, false)) note_failure();
  if (!first) return;
  note_failure();
  gather(failures.empty() ? "a worker failed" : "worker failed: " + describe(failures.front()), now);
  try_form(now);
}

void Rendezvous::note_failure() { restarts_.failure_pending = round_failed_ = true; }

void Rendezvous::succeeded(const AgentId& id, Generation generation, Instant now) {
  now_ = now;
  const auto it = members_.find(id);
  if (it == members_.end() || generation != round_) return;
  it->second.heard = now;
  it->second.done = generation;
  finishing_ = true;
  end_if_all_done();
}

void Rendezvous::leaving(const AgentId& id, const std::string& reason, Instant now) {
  now_ = now;
  const auto it = members_.find(id);
  if (it == members_.end() || it->second.leaving) return;
  it->second.leaving = true;
  if (phase_ == Phase::kRunning && it->second.round == round_ && it->second.done != round_) {
    gather(fmt::format("the agent on {} is leaving ({})", it->second.info.host, reason), now);
  } else if (phase_ == Phase::kRunning || it->second.ready_for == generation_) {
    const MemberInfo info = it->second.info;
    if (phase_ == Phase::kGathering && in_round(id)) restarts_.lost = true;
    drop(id);
    note(Note::Kind::kLeft, reason, &info);
    end_if_all_done();
  }
  try_form(now);
}

void Rendezvous::retire(const AgentId& id, const std::string& reason, Instant now) {
  if (phase_ == Phase::kEnded) return;
  retired_ = true;
  leaving(id, reason, now);
  if (phase_ != Phase::kEnded && members_.contains(id)) {
    if (phase_ == Phase::kGathering && in_round(id)) restarts_.lost = true;
    drop(id);
  }
  ++revision_;
}

std::optional<std::string> Rendezvous::why_replaced(const MemberInfo& info, const Claim& claim) const {
  if (info.identity.empty() || claim.seniority == 0) return std::nullopt;
  for (const auto& [id, member] : members_) {
    if (id == info.id || member.info.identity != info.identity || member.seniority < claim.seniority) continue;
    return fmt::format("another agent has taken its place ({})", info.identity);
  }
  return std::nullopt;
}

void Rendezvous::replace_former(const MemberInfo& info, Instant now) {
  if (info.identity.empty()) return;
  std::vector<AgentId> members;
  for (const auto& [id, member] : members_) {
    if (id != info.id && member.info.identity == info.identity) members.push_back(id);
  }
  for (const AgentId& id : members) lose(id, Loss::kDead, "it was replaced", now);
  const std::vector<Successor> missing = missing_;
  for (const Successor& agent : missing) {
    if (agent.identity == info.identity) declare_dead(agent.id, agent.in_round, now);
  }
}

void Rendezvous::saw_host(const AgentId& id, uint64_t epoch) {
  if (round_ids_.contains(id) && epoch > epoch_) superseded_ = true;
}

void Rendezvous::disconnected(const AgentId& id, Loss how, Instant now) {
  now_ = now;
  const auto it = members_.find(id);
  if (it == members_.end() || retired_) return;
  if (it->second.leaving) {
    lose(id, Loss::kDead, "left", now);
  } else if (how == Loss::kSilent) {
    lose(id, how, "no answer", now);
  } else if (how == Loss::kDead) {
    lose(id, how, "its process is gone", now);
  } else if (!it->second.disconnected) {
    it->second.disconnected = now;
  }
}

void Rendezvous::declare_dead(const AgentId& id, bool in_round, Instant now) {
  if (members_.contains(id)) {
    // One that came back meanwhile is not dead.
    if (members_.at(id).disconnected) disconnected(id, Loss::kDead, now);
  } else {
    const bool counts = incumbent_ ? round_ids_.contains(id) : in_round;
    // A host loses sight of an agent before it gets here; a successor had the eyes of the lost host for a moment.
    const bool unseen = counts && !dead_.has(id) && (incumbent_ || now >= in_sight_until_);
    dead_.add(id, counts);
    if (unseen) dead_.unseen.insert(id);
    // The death of an unseen one is no news for a successor to build on: it must be able to ask again.
    if (!dead_.unseen.contains(id)) std::erase_if(missing_, [&](const Successor& agent) { return agent.id == id; });
    tick(now);
  }
}

void Rendezvous::stood_still(Instant now) {
  now_ = now;
  const bool together = terms_.needs_quorum && missing_.empty() && !spans_machines();
  for (auto& [id, member] : members_) {
    member.heard = now;
    if (together) member.proof = now;
  }
}

void Rendezvous::tick(Instant now) {
  now_ = now;
  if (phase_ == Phase::kEnded || retired_) return;
  std::vector<std::pair<AgentId, Loss>> gone;
  for (const auto& [id, member] : members_) {
    if (member.disconnected && now >= *member.disconnected + kReconnectWindow) {
      gone.emplace_back(id, Loss::kClosed);
    } else if (!member.disconnected && now >= member.heard + terms_.heartbeat) {
      gone.emplace_back(id, Loss::kSilent);
    }
  }
  if (phase_ == Phase::kRunning && !quorum_holds()) {
    // Half of the round or more is silent: they may be about to go on without us, so our workers stop first.
    gather("more than half of the agents are silent", now);
  }
  update_prepared();
  // All of them first: a round must not form with one that is lost in the same breath.
  losing_several_ = true;
  const std::string silent = "silent for " + format_duration(terms_.heartbeat);
  for (const auto& [id, how] : gone) lose(id, how, how == Loss::kClosed ? "it closed the connection" : silent, now);
  losing_several_ = false;
  end_if_all_done();
  try_form(now);
}

Instant Rendezvous::next_tick(Instant now) const {
  if (phase_ == Phase::kEnded || retired_) return Instant::max();
  Instant next = Instant::max();
  for (const auto& [id, member] : members_) {
    const Instant fence = member.proof + fence_after(terms_.heartbeat);
    const Instant silent = fence > now ? fence : member.heard + terms_.heartbeat;
    next = std::min(next, member.disconnected ? *member.disconnected + kReconnectWindow : silent);
  }
  if (phase_ == Phase::kRunning && formed_.plan && not_before_ > now) next = std::min(next, not_before_);
  if (phase_ == Phase::kGathering) {
    // Each instant that is still ahead may change what try_form() does.
    for (const Instant at :
         {gathering_since_ + terms_.join_timeout, last_join_ + terms_.last_call, not_before_, break_until_,
          host_fenced_, everybody_fenced_, gathering_since_ + terms_.first_round_after}) {
      if (at > now) next = std::min(next, at);
    }
  }
  return next;
}

}  // namespace rubato::elastic

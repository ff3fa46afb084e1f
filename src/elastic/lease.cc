#include "elastic/lease.h"

#include <algorithm>
#include <iterator>

namespace rubato::elastic {

void LeaseHolder::heard_by_head(Instant sent) { head_ = std::max(head_, sent); }

void LeaseHolder::missed_head(const RoundId& round, const std::vector<AgentId>& witnesses, Duration lease,
                              Instant asked, Instant now) {
  if (valid_until(round, witnesses, lease) <= now) return;
  Instant& last = missed_[round];
  last = std::max(last, asked);
}

void LeaseHolder::heard_by(const AgentId& witness, const RoundId& round, Instant sent) {
  Instant& last = others_[round][witness];
  last = std::max(last, sent);
}

void LeaseHolder::keep_rounds(const std::set<RoundId>& rounds) {
  std::erase_if(others_, [&](const auto& entry) { return !rounds.contains(entry.first); });
  std::erase_if(missed_, [&](const auto& entry) { return !rounds.contains(entry.first); });
}

Instant LeaseHolder::valid_until(const RoundId& round, const std::vector<AgentId>& witnesses, Duration lease) const {
  if (given_up_) return Instant{};
  const auto missed = missed_.find(round);
  const Instant head = missed == missed_.end() ? head_ : std::max(head_, missed->second);
  const Instant longest = head + lease;
  const bool alone = witnesses.empty() || (witnesses.size() == 1 && witnesses.front() == self_);
  if (alone) return longest;
  const auto others = others_.find(round);
  std::vector<Instant> proofs;
  for (const AgentId& witness : witnesses) {
    if (witness == self_) proofs.push_back(Instant::max());
    if (witness == self_ || others == others_.end()) continue;
    if (const auto known = others->second.find(witness); known != others->second.end()) proofs.push_back(known->second);
  }
  const size_t needed = witnesses.size() / 2 + 1;
  Instant proof = head;
  if (proofs.size() >= needed) {
    std::ranges::sort(proofs, std::greater<>());
    proof = std::max(proof, proofs[needed - 1]);
  }
  // More than half of one is this agent itself, but that one is alone.
  return std::min(longest, proof + short_lease(heartbeat_));
}

void Witness::follow(std::set<RoundId> running, std::set<AgentId> fenced) {
  running_ = std::move(running);
  fenced_ = std::move(fenced);
}

std::vector<RoundId> Witness::vouch(const AgentId& agent, const std::vector<RoundId>& rounds, Instant now) {
  std::erase_if(vouched_, [&](const auto& entry) { return now - entry.second > takeover_after(heartbeat_); });
  std::vector<RoundId> shared;
  if (fenced_.contains(agent)) return shared;
  std::ranges::copy_if(rounds, std::back_inserter(shared), [this](const RoundId& r) { return running_.contains(r); });
  if (!shared.empty()) vouched_[agent] = now;
  return shared;
}

std::set<AgentId> Witness::clear_of(Instant now) const {
  std::set<AgentId> clear;
  for (const AgentId& agent : fenced_) {
    const auto last = vouched_.find(agent);
    if (last == vouched_.end() || now - last->second >= takeover_after(heartbeat_)) clear.insert(agent);
  }
  return clear;
}

std::optional<Instant> Witness::next(Instant now) const {
  std::optional<Instant> next;
  for (const AgentId& agent : fenced_) {
    const auto last = vouched_.find(agent);
    if (last == vouched_.end()) continue;
    const Instant at = last->second + takeover_after(heartbeat_);
    if (at > now && (!next || at < *next)) next = at;
  }
  return next;
}

}  // namespace rubato::elastic

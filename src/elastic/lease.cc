#include "elastic/lease.h"

#include <algorithm>

namespace rubato::elastic {

void LeaseHolder::heard_by_head(Instant sent) { head_ = std::max(head_, sent); }

void LeaseHolder::heard_by(const AgentId& witness, Instant sent) {
  Instant& last = others_[witness];
  last = std::max(last, sent);
}

Instant LeaseHolder::valid_until(const std::vector<AgentId>& witnesses, Duration lease) const {
  if (given_up_) return Instant{};
  const Instant longest = head_ + lease;
  const bool alone = witnesses.empty() || (witnesses.size() == 1 && witnesses.front() == self_);
  if (alone) return longest;
  std::vector<Instant> proofs;
  for (const AgentId& witness : witnesses) {
    const auto known = others_.find(witness);
    if (witness == self_) {
      proofs.push_back(Instant::max());
    } else if (known != others_.end()) {
      proofs.push_back(known->second);
    }
  }
  const size_t needed = witnesses.size() / 2 + 1;
  Instant proof = head_;
  if (proofs.size() >= needed) {
    std::ranges::sort(proofs, std::greater<>());
    proof = std::max(proof, proofs[needed - 1]);
  }
  // More than half of one is this agent itself, but that one is alone.
  return std::min(longest, proof + short_lease(heartbeat_));
}

bool Witness::vouch(const AgentId& agent, Instant now) {
  std::erase_if(vouched_, [&](const auto& entry) { return now - entry.second > takeover_after(heartbeat_); });
  if (fenced_.contains(agent)) return false;
  vouched_[agent] = now;
  return true;
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

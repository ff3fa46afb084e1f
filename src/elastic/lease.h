// Leases: may a node's workers go on while it does not hear its head? Pure: proofs and the time come in.
//
//   HEARD by the head ──silence──▶ VOUCHED FOR by more than half of the job's witnesses ──▶ ENDED (its guard kills
//   them)
//     ▲  ends short_lease after           ends short_lease after the last of them,               ▲
//     │  the last proof                   and `lease` after the head's last proof                │
//     └── a job on a single node has no other witness: it goes on for `lease` ───────────────────┘
//
// A proof is the moment at which this node *sent* the question that was answered: whoever answered counts the same
// silence from later on. The head starts the next generation of a job without a silent node when half of its witnesses
// are with the head and have stopped vouching for that node, takeover_after() its own last answer; or
// lease_over_after() that answer. More than half and half of the same set have a member in common, so a node that may
// go on without the head is known to a witness that the head has asked. A witness vouches for a round only while it is
// ordered to run that round itself: a node that stood still and wakes up with an old order finds nobody, though the
// fence is taken away once the next generation runs.
//
// A head whose kernel says that it is gone cannot start anything, and the next one counts from its own start: that
// keeps a lease alive, but does not bring back one that was over. The dead head may have started the next generation by
// then.
#pragma once

#include <algorithm>
#include <compare>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/time.h"
#include "model/ids.h"

namespace rubato::elastic {

inline constexpr Duration kDefaultLease = 2min;
// So many agents of a generation, the first by rank, are its witnesses: all, but in very large jobs.
inline constexpr size_t kWitnessesMax = 64;

// The next generation starts no sooner after the head's last answer to a silent node.
constexpr Duration takeover_after(Duration heartbeat) { return heartbeat + 1s; }
// For the guard that ends workers, and for clocks that differ: by 5 % at most.
inline constexpr Duration kLeaseMargin = 200ms;
// The head counts a lease as over so long after its last answer.
constexpr Duration lease_over_after(Duration lease) { return lease + std::max(kLeaseMargin, lease / 20); }
// A node's workers end so long after its last proof. Nothing shorter: whoever is stopped or starved for less is not
// hurt.
constexpr Duration short_lease(Duration heartbeat) { return takeover_after(heartbeat) - kLeaseMargin; }
// A node that has not heard its head for so long asks the other witnesses too.
constexpr Duration ask_others_after(Duration heartbeat) { return heartbeat / 2; }

// A generation of a job.
struct RoundId {
  JobId job;
  Generation generation = 0;
  auto operator<=>(const RoundId&) const = default;
};

// A node's own side.
class LeaseHolder {
 public:
  explicit LeaseHolder(AgentId self) : self_(std::move(self)) {}

  void set_heartbeat(Duration heartbeat) { heartbeat_ = heartbeat; }
  // The head has answered what was sent then.
  void heard_by_head(Instant sent);
  // What was asked then was refused: there is no head. `now`: when that was heard.
  void missed_head(const RoundId& round, const std::vector<AgentId>& witnesses, Duration lease, Instant asked,
                   Instant now);
  void heard_by(const AgentId& witness, const RoundId& round, Instant sent);
  // What was said of other rounds does not count any more.
  void keep_rounds(const std::set<RoundId>& rounds);
  // The head has given this agent up: somebody said so. It does not come back.
  void give_up() { given_up_ = true; }
  bool given_up() const { return given_up_; }

  // Until when workers of a round with these witnesses may live.
  Instant valid_until(const RoundId& round, const std::vector<AgentId>& witnesses, Duration lease) const;
  bool asks_others(Instant now) const { return now - head_ >= ask_others_after(heartbeat_); }
  Instant asks_others_at() const { return head_ + ask_others_after(heartbeat_); }

 private:
  AgentId self_;
  Duration heartbeat_ = 3s;
  Instant head_{};
  std::map<RoundId, std::map<AgentId, Instant>> others_;
  std::map<RoundId, Instant> missed_;  // proofs that there was no head, while the lease had not ended
  bool given_up_ = false;
};

// The other side: what an agent has promised to others of its jobs.
class Witness {
 public:
  void set_heartbeat(Duration heartbeat) { heartbeat_ = heartbeat; }
  // What the newest orders say. `running`: the rounds that this agent is to run. `fenced`: all agents that the head has
  // given up and that may live; one that is not named any more has surely ended.
  void follow(std::set<RoundId> running, std::set<AgentId> fenced);
  bool is_fenced(const AgentId& agent) const { return fenced_.contains(agent); }
  // Of its rounds, those that may go on by this agent's word.
  std::vector<RoundId> vouch(const AgentId& agent, const std::vector<RoundId>& rounds, Instant now);
  // It says that none of its workers is alive.
  void stopped(const AgentId& agent) { vouched_.erase(agent); }
  // Of the fenced ones, those for whom no word of this agent counts any more.
  std::set<AgentId> clear_of(Instant now) const;
  // When there will be more of them.
  std::optional<Instant> next(Instant now) const;

 private:
  Duration heartbeat_ = 3s;
  std::set<RoundId> running_;
  std::set<AgentId> fenced_;
  std::map<AgentId, Instant> vouched_;  // when last
};

}  // namespace rubato::elastic

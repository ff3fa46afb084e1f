// View: what the host of the rendezvous tells one agent. An agent obeys the newest view and needs no history.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "elastic/group_plan.h"
#include "elastic/member.h"
#include "elastic/restart.h"

namespace rubato::elastic {

enum class Phase {
  kGathering,  // who has no worker, or such as can change in place, says "ready" for this generation
  kRunning,    // the round is fixed; its members run workers
  kEnded,      // the job is over, well or badly
};
std::string_view to_string(Phase phase);

// What a successor must know to go on where the last host stopped. Small, in every view.
struct Legacy {
  uint64_t epoch = 0;         // counts hosts
  Generation generation = 0;  // being gathered or running
  Generation round = 0;       // the last generation that ran; 0: none yet
  int round_size = 0;         // its agents that are not known to be dead; before the first round: all agents
  int spares = 0;             // agents beside the last round
  int restarts_used = 0;
  std::vector<std::string> causes;  // what the restarts were spent on, the last few
  uint64_t next_seniority = 1;
  Terms terms;
};

struct Successor {
  AgentId id;
  std::string host;
  std::string address;
  uint16_t port = 0;
  bool in_round = false;  // it counts for the quorum
  std::string identity;   // MemberInfo's
};

// What a successor knows of the host before it.
struct LostHost {
  AgentId id;
  bool in_round = false;
  Instant heard{};                // when it last surely heard the successor
  std::vector<Successor> elders;  // the agents that it had, and those that it was missing
  Duration patience = 0s;         // wait at least this long for agents of which nothing is known
};

// Agents whose kernel says that they are gone.
struct Dead {
  std::set<AgentId> in_round;
  std::set<AgentId> spares;
  std::set<AgentId> unseen;  // of in_round, those that died out of our sight: see Rendezvous::dead_count()
  void add(const AgentId& id, bool was_in_round) { (was_in_round ? in_round : spares).insert(id); }
  void forget(const AgentId& id) {
    for (auto* set : {&in_round, &spares, &unseen}) set->erase(id);
  }
  bool has(const AgentId& id) const { return in_round.contains(id) || spares.contains(id); }
};

struct View {
  Legacy legacy;
  Phase phase = Phase::kGathering;
  std::string reason;  // for people: why this phase, what is waited for, how it ended

  // The sender has no quorum: it may not go on, and what it says is not the word of a host.
  bool provisional = false;

  bool in_round = false;                 // the agent that gets this view is of the last round
  uint64_t seniority = 0;                // of the agent that gets this view
  std::optional<Assignment> assignment;  // kRunning: its place; none: the group is full, it is a spare
  std::string master_addr;
  uint16_t master_port = 0;

  // Workers that live on from one generation to the next: docs/fault-tolerance.md, "Changing in place".
  std::optional<GroupPlan> plan;  // kRunning: who is in the group; none: its workers cannot change in place
  bool restart = false;           // kGathering: all workers stop, whatever they can do
  bool prepare = false;           // start the workers of slots that are not in the plan; they wait until they are

  AgentId host;  // the agent that sends this
  bool host_in_round = false;
  bool host_leaves = false;  // its last word: its workers are gone, and the first successor takes over at once
  // The oldest agents, host included, in the order in which they take over.
  std::vector<Successor> successors;
  std::vector<Successor> missing;  // agents of the last round that are leaving, or may live elsewhere

  // kEnded
  bool succeeded = false;
  std::vector<Failure> failures;
};

// Newer views win; an agent refuses older ones (a former host that has not noticed).
inline bool newer_or_same(const Legacy& a, const Legacy& b) {
  return a.epoch != b.epoch ? a.epoch > b.epoch : a.generation >= b.generation;
}

// What a joining agent says of its past in this group, all zero for a new one.
struct Claim {
  uint64_t epoch = 0;
  Generation generation = 0;
  Generation round = 0;  // the last round known to it
  int round_size = 0;
  bool in_round = false;   // it was a member of that round
  bool running = false;    // its workers of that round run right now
  bool succeeded = false;  // its workers of that round all ended well
  uint64_t seniority = 0;
  int restarts_used = 0;
  std::vector<Successor> peers;  // the agents of that round that it knows of, itself among them
};

// Those agents, as the view names them.
inline std::vector<Successor> peers_in_round(const View& view) {
  std::vector<Successor> peers;
  for (const auto* list : {&view.successors, &view.missing}) {
    for (const Successor& agent : *list) {
      if (agent.in_round) peers.push_back(agent);
    }
  }
  return peers;
}

}  // namespace rubato::elastic

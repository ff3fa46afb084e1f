// What an agent says of itself when it joins, and the places that a round gives to agents.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "model/ids.h"

namespace rubato::elastic {

struct MemberInfo {
  AgentId id;
  std::string host;                    // the machine's name, for people
  std::string machine;                 // the machine's id: equal for agents that share a loopback
  std::string address;                 // its address on the connection to the rendezvous
  std::vector<std::string> addresses;  // its non-loopback addresses, for a group that spans machines
  uint16_t peer_port = 0;              // where it listens, to take over the rendezvous; 0: it cannot
  int nproc = 1;
  std::string role = "default";
  std::optional<int> node_rank;  // static groups: also its identity
  // Whoever starts the agents promises that only one at a time has this name (a pod's): who comes with it proves that
  // the one before is dead. Empty: nobody promises anything.
  std::string identity;
};

// The limits of a group. The host's apply to all; they travel with the view, so that a successor keeps them.
struct Terms {
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  Duration last_call = 1s;
  Duration join_timeout = 600s;
  Duration heartbeat = 3s;          // an agent that is silent for so long is lost
  Duration first_round_after = 0s;  // a new host first makes sure that no older one is left
  int spares = 0;                   // agents beyond max_nodes whose workers are started, and wait
  int step = 1;                     // a round has a multiple of so many agents; both bounds are such
  bool needs_quorum = true;         // false when an outside authority (etcd) decides who may host
  bool operator==(const Terms&) const = default;
};

// Beats are sent six times per bound: five may be lost.
constexpr Duration beat_interval(Duration heartbeat) { return heartbeat / 6; }

// An agent that hears nothing stops its workers this long after the last word: before the host gives it up, so
// that the next generation never meets workers of the last one.
constexpr Duration fence_after(Duration heartbeat) { return heartbeat - beat_interval(heartbeat); }

struct Assignment {
  int group_rank = 0;
  int group_world_size = 1;
  int first_rank = 0;  // RANK of local rank 0
  int world_size = 1;
  int first_role_rank = 0;
  int role_world_size = 1;
  bool operator==(const Assignment&) const = default;
};

// Dense ranks in the given order: RANK counts over agents, ROLE_RANK over agents of the same role.
std::vector<Assignment> assign_ranks(const std::vector<MemberInfo>& order);

// The address at which every member of the round reaches `member`: loopback only if all share its machine.
std::string reachable_address(const MemberInfo& member, const std::vector<MemberInfo>& round);

bool is_loopback(std::string_view address);

}  // namespace rubato::elastic

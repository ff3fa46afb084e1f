// A group of agents around the state machine, for tests.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "elastic/rendezvous.h"

namespace rubato::elastic {

inline Terms terms(int min, int max, int restarts = 0) {
  Terms t;
  t.min_nodes = min;
  t.max_nodes = max;
  t.max_restarts = restarts;
  return t;
}

inline AgentId id(const std::string& name) { return AgentId{name}; }

inline MemberInfo info(const std::string& name) {
  MemberInfo member;
  member.id = id(name);
  member.host = "host-" + name;
  member.machine = "machine-" + name;
  member.address = "10.0.0." + name;
  member.peer_port = 4000;
  return member;
}

inline Failure failure(int rank, Instant at) {
  Failure f;
  f.host = "host";
  f.rank = rank;
  f.exit_code = 1;
  f.at = at;
  return f;
}

using Names = std::vector<std::string>;

// How long a successor waits for members that have not come: until they have fenced themselves.
constexpr Duration kRegather = 3s;
// The same when only the lost host has not come, which is 2.5 s silent already.
constexpr Duration kHostFenced = 1s;

// A group of agents that beat; those in `mute` do not.
class Group {
 public:
  explicit Group(const Terms& t) : machine(t, now) {}
  Group(const Legacy& legacy, const Names& dead) : machine(legacy, lost_host(!dead.empty()), dead_of(dead), now) {}

  std::optional<std::string> join(const std::string& name, const Claim& claim = {}) {
    return machine.join(info(name), claim, now);
  }
  void join_all(const Names& names) {
    for (const std::string& name : names) EXPECT_EQ(join(name), std::nullopt) << name;
  }
  void ready(const Names& names) {
    for (const std::string& name : names) {
      machine.ready(id(name), machine.generation(), static_cast<uint16_t>(name[0]), now);
    }
  }
  void ready_all() {
    for (const AgentId& member : machine.member_ids()) ready({member.value});
  }
  // All in, all idle, last call over.
  void run(const Names& names) {
    join_all(names);
    ready_all();
    pass(machine.legacy().terms.last_call);
    ASSERT_EQ(machine.phase(), Phase::kRunning);
  }
  void fail(const std::string& name, int rank = 0) {
    machine.failed(id(name), machine.generation(), {failure(rank, now)}, now);
  }
  void pass(Duration d) {
    const Instant end = now + d;
    machine.tick(now);
    while (now < end) {
      now = std::min({end, now + 100ms, std::max(machine.next_tick(now), now + 1ns)});
      for (const AgentId& member : machine.member_ids()) {
        if (!mute.contains(member.value)) machine.heard(member, now, now);
      }
      machine.tick(now);
    }
  }
  View view(const std::string& name) const {
    View v = machine.common_view();
    machine.personalise(v, id(name));
    return v;
  }
  // What an agent that has seen this group's last view says of itself to another host.
  Claim claim(const std::string& name) const {
    const View v = view(name);
    Claim c;
    c.epoch = v.legacy.epoch;
    c.generation = v.legacy.generation;
    c.round = v.legacy.round;
    c.round_size = v.legacy.round_size;
    c.in_round = v.in_round;
    c.running = c.in_round;
    c.seniority = v.seniority;
    c.restarts_used = v.legacy.restarts_used;
    c.peers = peers_in_round(v);
    return c;
  }
  Names placed() const {
    Names names;
    for (const AgentId& member : machine.member_ids()) {
      if (view(member.value).assignment) names.push_back(member.value);
    }
    return names;
  }
  Phase phase() const { return machine.phase(); }
  Generation generation() const { return machine.generation(); }
  std::string reason() const { return machine.common_view().reason; }

  // Who is killed is seen to be dead at once; a host that falls silent is given up later.
  LostHost lost_host(bool seen) const { return {id("1"), true, now - (seen ? 100ms : fence_after(3s))}; }
  static Dead dead_of(const Names& names) {
    Dead dead;
    for (const std::string& name : names) dead.in_round.insert(id(name));
    return dead;
  }

  Instant now = Instant{} + 1h;
  std::set<std::string> mute;
  Rendezvous machine;
};

inline bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace rubato::elastic

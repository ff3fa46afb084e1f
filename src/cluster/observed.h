// Observed: what agents say now. Not in the journal: they say it again to the next head.
#pragma once

#include <map>

#include "cluster/state.h"

namespace rubato::cluster {

struct Observed {
  struct Ready {
    Generation generation = 0;
    uint16_t port = 0;
    bool operator==(const Ready&) const = default;
  };
  // Seats where nothing of an older generation is left, and a port that is free there.
  std::map<JobId, std::map<NodeId, Ready>> ready;

  // Seats that cannot get ready, and why: an agent goes on trying, but a person should know.
  std::map<JobId, std::map<NodeId, std::string>> problems;

  // Seats whose workers have all ended well, and whose last lines are on the way: the next report says that it is done.
  std::map<JobId, std::set<NodeId>> finishing;

  // What nodes tell of workers that may change in place.
  std::map<JobId, std::map<NodeId, elastic::InPlaceReport>> in_place;
  // Seats that workers of a running round have: they have not followed its plan yet, or their group failed.
  std::map<JobId, std::set<NodeId>> unsettled;
  // Seats whose new workers ended before they could join those that live on: they will not be ready.
  std::map<JobId, std::set<NodeId>> declined;

  // Nodes that are up as the journal says, but of which this head has not heard since it began to listen, or since it
  // stood still: they may have anything to report. Nothing is decided about them, nor about jobs that are there.
  std::set<NodeId> unheard;
  // Nodes that are up as the journal says, that nobody hears, and that are not given up yet: nothing is decided about
  // the jobs that are there, and no other is placed there.
  std::set<NodeId> silent;
  // Nodes whose connection ended a moment ago: they come back at once, or are silent, or given up.
  std::set<NodeId> away;
  // Nodes whose workers may live though nobody hears them: how long ago the head last answered them. They end them by
  // themselves (elastic/lease.h).
  std::map<NodeId, Duration> silence;
  // Of the same nodes, those whose agent had told when it ends all its workers, whatever happens: in how long that is
  // surely over.
  std::map<NodeId, Duration> ends_in;
  // By agent that was given up: who has stopped to vouch for it.
  std::map<AgentId, std::set<AgentId>> fenced;
  // False: nobody holds a lease, for the provider ends any agent by itself, and says so.
  bool leases = true;
  Duration heartbeat = 3s;
  // When this head began to listen; again after each time that it stood still. Nobody was late before.
  WallTime listening_since{};

  const std::string* problem_of(const JobId& job, const NodeId& node) const {
    const auto jobs = problems.find(job);
    if (jobs == problems.end()) return nullptr;
    const auto nodes = jobs->second.find(node);
    return nodes == jobs->second.end() ? nullptr : &nodes->second;
  }

  const elastic::InPlaceReport* in_place_of(const JobId& job, const NodeId& node) const {
    const auto jobs = in_place.find(job);
    if (jobs == in_place.end()) return nullptr;
    const auto nodes = jobs->second.find(node);
    return nodes == jobs->second.end() ? nullptr : &nodes->second;
  }
  bool has_declined(const JobId& job, const NodeId& node) const {
    const auto jobs = declined.find(job);
    return jobs != declined.end() && jobs->second.contains(node);
  }

  const Ready* of(const JobId& job, const NodeId& node, Generation generation) const {
    const auto jobs = ready.find(job);
    if (jobs == ready.end()) return nullptr;
    const auto nodes = jobs->second.find(node);
    return nodes != jobs->second.end() && nodes->second.generation == generation ? &nodes->second : nullptr;
  }
};

// Whether a node that is up has not been heard yet.
inline bool is_unheard(const State& state, const Observed& observed, const NodeId& node) {
  if (!observed.unheard.contains(node)) return false;
  const auto it = state.nodes.find(node);
  return it != state.nodes.end() && (it->second.phase == NodePhase::kUp || it->second.phase == NodePhase::kDraining);
}

// Whether some such node, or a silent one, has, or may have, workers of this job: what they did is not known yet.
inline bool is_unheard(const State& state, const Observed& observed, const Job& job) {
  if (observed.unheard.empty() && observed.silent.empty() && observed.away.empty()) return false;
  const auto unheard = [&](const NodeId& node) {
    // Workers that can change in place are lost if it is decided before their agent is back.
    const bool away = job.plan && observed.away.contains(node);
    return away || observed.silent.contains(node) || is_unheard(state, observed, node);
  };
  for (const Seat& seat : job.seats) {
    if (unheard(seat.node)) return true;
  }
  for (const auto& [node, workers] : job.leaving) {
    if (unheard(node)) return true;
  }
  return false;
}

// Whether any is: then nobody knows what is free, or who needs it.
inline bool any_unheard(const State& state, const Observed& observed) {
  for (const NodeId& node : observed.unheard) {
    if (is_unheard(state, observed, node)) return true;
  }
  return false;
}

// When something is to be decided again though nothing happens; the earliest counts.
struct Wake {
  std::optional<WallTime> at;
  void by(WallTime time) {
    if (!at || time < *at) at = time;
  }
};

constexpr WallTime later(WallTime time, Duration d) {
  return time + std::chrono::duration_cast<std::chrono::microseconds>(d);
}

}  // namespace rubato::cluster

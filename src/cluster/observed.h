// Observed: what agents say now. Not in the journal: they say it again to the next head.
#pragma once

#include <map>

#include "cluster/event.h"

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

  const std::string* problem_of(const JobId& job, const NodeId& node) const {
    const auto jobs = problems.find(job);
    if (jobs == problems.end()) return nullptr;
    const auto nodes = jobs->second.find(node);
    return nodes == jobs->second.end() ? nullptr : &nodes->second;
  }

  const Ready* of(const JobId& job, const NodeId& node, Generation generation) const {
    const auto jobs = ready.find(job);
    if (jobs == ready.end()) return nullptr;
    const auto nodes = jobs->second.find(node);
    return nodes != jobs->second.end() && nodes->second.generation == generation ? &nodes->second : nullptr;
  }
};

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

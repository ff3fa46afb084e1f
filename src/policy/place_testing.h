// Decisions of place() as plain values, for tests.
#pragma once

#include <gtest/gtest.h>

#include "cluster/state_testing.h"
#include "policy/place.h"

namespace rubato::policy {

using namespace cluster;  // NOLINT: the words of the subject

using Seats = std::vector<std::pair<std::string, int>>;

struct PlacedJobs {
  std::map<JobId, JobPlaced> placed;
  std::map<JobId, JobHeld> held;
  Wake wake;

  Seats seats(const JobId& job) const {
    Seats out;
    if (!placed.contains(job)) return out;
    for (const Seat& seat : placed.at(job).seats) out.emplace_back(seat.node.value, seat.workers);
    return out;
  }
  int workers(const JobId& job) const {
    int sum = 0;
    for (const auto& [node, workers] : seats(job)) sum += workers;
    return sum;
  }
  std::string against(const JobId& job) const {
    return held.contains(job) ? held.at(job).reasons.against.at(0).text : "not held";
  }
};

inline PlacedJobs place_now(const History& history, const Observed& observed = {}) {
  PlacedJobs result;
  for (const Event& event : place(history.state, observed, history.now, result.wake)) {
    if (const auto* placed = std::get_if<JobPlaced>(&event)) {
      EXPECT_TRUE(result.placed.emplace(placed->job, *placed).second) << "twice";
      EXPECT_FALSE(result.held.contains(placed->job)) << "held and placed";
    }
    if (const auto* held = std::get_if<JobHeld>(&event)) {
      EXPECT_TRUE(result.held.emplace(held->job, *held).second) << "twice";
    }
  }
  return result;
}

// Decides once and writes it down.
inline PlacedJobs place_and_apply(History& history, const Observed& observed = {}) {
  const PlacedJobs result = place_now(history, observed);
  for (const auto& [job, event] : result.held) history.add(event);
  for (const auto& [job, event] : result.placed) history.add(event);
  return result;
}

// `count` nodes "n-1", "n-2", ... of so many CPUs.
inline History nodes_of(int count, double each) {
  History history;
  history.configure({node_type("n", cpus(each), count, std::max(count, 100))});
  history.nodes_up("n", count);
  history.pass(10s);
  return history;
}

}  // namespace rubato::policy

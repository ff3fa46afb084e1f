#include "cluster/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace rubato::cluster {

namespace {

// While nothing was measured: as in Pollux' experiments; in place, as our own benchmarks.
constexpr double kChangeAnew = 30, kChangeInPlace = 1;
constexpr double kStart = 10;  // of a worker to its first step, where it does not say
constexpr double kCostMax = 600;

}  // namespace

std::string_view to_string(NodePhase phase) {
  switch (phase) {
    case NodePhase::kRequested:
      return "requested";
    case NodePhase::kStarting:
      return "starting";
    case NodePhase::kUp:
      return "up";
    case NodePhase::kLost:
      return "lost";
    case NodePhase::kDraining:
      return "draining";
    case NodePhase::kRemoving:
      return "removing";
  }
  return "?";
}

std::string_view to_string(JobPhase phase) {
  switch (phase) {
    case JobPhase::kQueued:
      return "queued";
    case JobPhase::kStarting:
      return "starting";
    case JobPhase::kRunning:
      return "running";
    case JobPhase::kRestarting:
      return "restarting";
    case JobPhase::kStopping:
      return "stopping";
    case JobPhase::kSucceeded:
      return "succeeded";
    case JobPhase::kFailed:
      return "failed";
    case JobPhase::kStopped:
      return "stopped";
  }
  return "?";
}

int Job::workers() const {
  int sum = 0;
  for (const Seat& seat : seats) sum += seat.workers;
  return sum;
}

int Job::workers_most() const {
  return sized == 0 ? spec.workers_max : spec.usable(std::clamp(sized, spec.workers_min, spec.workers_max));
}

int Job::workers_worthwhile() const {
  return worthwhile == 0 ? spec.workers_max : spec.usable(std::clamp(worthwhile, spec.workers_min, spec.workers_max));
}

const Seat* Job::seat_on(const NodeId& node) const {
  for (const Seat& seat : seats) {
    if (seat.node == node) return &seat;
  }
  return nullptr;
}

const NodeRecipe* find_recipe(const State& state, const std::string& id) {
  if (state.spec) {
    if (const auto it = state.spec->recipes.find(id); it != state.spec->recipes.end()) return &it->second;
  }
  const auto it = state.old_recipes.find(id);
  return it == state.old_recipes.end() ? nullptr : &it->second;
}

Resources used_on(const State& state, const NodeId& node) {
  Resources used;
  const auto it = state.jobs_on.find(node);
  if (it == state.jobs_on.end()) return used;
  const auto known = state.nodes.find(node);
  for (const JobId& id : it->second) {
    const Job& job = state.jobs.at(id);
    int workers = 0;
    // Workers die with their agent: a seat with another one is empty.
    const Seat* seat = job.seat_on(node);
    if (seat && (known == state.nodes.end() || known->second.agent == seat->agent)) workers += seat->workers;
    if (const auto leaving = job.leaving.find(node); leaving != job.leaving.end()) workers += leaving->second;
    used += times(job.spec.per_worker, workers);
  }
  return used;
}

Resources free_on(const State& state, const Node& node) {
  Resources free;
  const Resources used = used_on(state, node.id);
  for (const auto& [name, amount] : node.resources.amounts()) {
    // A node that came back smaller than its seats has nothing to give.
    free.set(name, std::max<int64_t>(0, amount - used.of(name)));
  }
  return free;
}

Resources free_soon(const State& state, const Node& node) {
  Resources free = node.resources;
  const auto here = state.jobs_on.find(node.id);
  if (here == state.jobs_on.end()) return free;
  for (const JobId& id : here->second) {
    const Job& job = state.jobs.at(id);
    const Seat* seat = job.seat_on(node.id);
    if (!seat || seat->agent != node.agent) continue;
    const Resources taken = times(job.spec.per_worker, seat->workers);
    for (const auto& [name, amount] : taken.amounts()) free.set(name, std::max<int64_t>(0, free.of(name) - amount));
  }
  return free;
}

int64_t cost_of(const Node& node, WallTime now) {
  if (node.never_was) return 0;
  return cost_micros(price_micros(node.offering.price_per_hour), now - node.requested);
}

int64_t cost_so_far(const State& state, WallTime now) {
  int64_t sum = 0;
  for (const auto& [type, spent] : state.spent) sum += spent.micros;
  for (const auto& [id, node] : state.nodes) sum += cost_of(node, now);
  return sum;
}

Duration lease_of(const State& state, const Job& job) {
  if (job.spec.lease > 0s) return job.spec.lease;
  return state.spec ? state.spec->lease : ClusterSpec{}.lease;
}

Duration round_lease_of(const State& state, const Job& job) {
  return job.round_lease > 0s ? job.round_lease : lease_of(state, job);
}

double change_cost_s(const Job& job) {
  if (job.plan) return std::min(kCostMax, job.change_in_place_s > 0 ? job.change_in_place_s : kChangeInPlace);
  if (job.change_anew_s <= 0) return kChangeAnew;
  const double start = job.profile && job.profile->start_s ? *job.profile->start_s : kStart;
  return std::min(kCostMax, job.change_anew_s + start);
}

const Job& find_job(const State& state, std::string_view reference) {
  if (const auto it = state.jobs.find(JobId{std::string(reference)}); it != state.jobs.end()) return it->second;
  std::vector<const Job*> by_prefix;
  const Job* by_name = nullptr;
  const std::string with_mark = "j-" + std::string(reference);
  for (const auto& [id, job] : state.jobs) {
    const bool whole = id.value.starts_with(reference);
    const bool bare = !reference.empty() && id.value.starts_with(with_mark);
    if (whole || bare) by_prefix.push_back(&job);
    if (job.spec.name == reference && (!by_name || job.submitted >= by_name->submitted)) by_name = &job;
  }
  if (by_name) return *by_name;
  if (by_prefix.size() == 1) return *by_prefix.front();
  if (by_prefix.empty()) {
    throw Error(ErrorCode::kNotFound, fmt::format("there is no job '{}'", reference), "",
                "rubato jobs --all lists the jobs");
  }
  std::vector<std::string> ids;
  for (const Job* job : by_prefix) {
    if (ids.size() < 5) ids.push_back(job->id.value);
  }
  throw Error(ErrorCode::kUsage,
              fmt::format("'{}' could be any of {} jobs: {}", reference, by_prefix.size(), join(ids, ", ")), "",
              "give more of the id");
}

}  // namespace rubato::cluster

#include "reconcile/resize.h"

#include <algorithm>
#include <set>

#include "policy/allocate.h"
#include "policy/speed_model.h"
#include "reconcile/scale_input.h"

namespace rubato::reconcile {

using cluster::Event;
using cluster::Job;
using cluster::JobSized;
using cluster::Seat;
using cluster::State;

namespace {

policy::AllocateJob allocate_job(const Job& job, WallTime now) {
  policy::AllocateJob out;
  out.id = job.id.value;
  out.resources = job.spec.per_worker;
  out.min_replicas = job.spec.workers_min;
  out.max_replicas = most_explored(job);
  out.step = job.spec.workers_step;
  out.priority = job.spec.priority;
  out.weight = job.spec.weight;
  if (job.spec.deadline > 0s) out.deadline_s = to_seconds(job.submitted - now) + to_seconds(job.spec.deadline);
  out.age_s = std::max(0.0, to_seconds(now - job.submitted));
  // What it has had is not written down; what it has now, for as long as it runs, is near enough for a weight.
  out.attained_service_s = std::max(0.0, to_seconds(now - job.started)) * job.workers();
  out.restarts = static_cast<int64_t>(job.generation) - 1;
  out.restart_cost_s = cluster::change_cost_s(job);
  out.done_iters = job.profile->done_iters;
  out.total_iters = job.profile->total_iters;
  out.model = policy::model_of(*job.profile);
  for (const Seat& seat : job.seats) {
    for (int i = 0; i < seat.workers; ++i) out.allocation.push_back(seat.node.value);
  }
  return out;
}

std::vector<const Job*> adaptive_jobs(const State& state) {
  std::vector<const Job*> out;
  for (const JobId& id : state.index.elastic_jobs()) {
    const Job& job = state.jobs.at(id);
    if (job.adaptive() && cluster::placed(job.phase)) out.push_back(&job);
  }
  return out;
}

// What its devices are called, or at least what kind of node it is.
std::string kind_of(const State& state, const std::string& type) {
  const auto found = state.devices.find(type);
  return found == state.devices.end() ? type : found->second;
}

// What usable nodes have for adaptive jobs: what is free, and what these jobs hold. Nodes without room for any of them
// are not theirs.
std::vector<policy::AllocateNode> nodes_for(const State& state, const std::vector<const Job*>& jobs) {
  std::map<NodeId, Resources> room;
  std::set<Resources> sizes;
  for (const auto& [id, node] : state.nodes) {
    if (node.usable()) room[id] = cluster::free_on(state, node);
  }
  for (const Job* job : jobs) {
    sizes.insert(job->spec.per_worker);
    for (const Seat& seat : job->seats) {
      const auto it = room.find(seat.node);
      if (it != room.end()) it->second += times(job->spec.per_worker, seat.workers);
    }
  }
  std::vector<policy::AllocateNode> out;
  for (auto& [id, resources] : room) {
    const auto fits = [&](const Resources& each) { return each.fits_in(resources); };
    if (!std::ranges::any_of(sizes, fits)) continue;
    const cluster::Node& node = state.nodes.at(id);
    out.push_back({id.value, std::move(resources), kind_of(state, node.type), node.offering.price_per_hour});
  }
  return out;
}

bool may_be_had(const ClusterSpec& spec, const Offering& offering) {
  if (spec.scaling.spot == SpotPolicy::kNever && offering.market == Market::kSpot) return false;
  if (spec.scaling.spot == SpotPolicy::kOnly && offering.market != Market::kSpot) return false;
  return !spec.scaling.price_cap || offering.price_per_hour <= *spec.scaling.price_cap;
}

// Of the smallest workers of these jobs, how many have room there.
double seats_in(const Resources& holds, const std::vector<const Job*>& jobs) {
  int64_t most = 0;
  for (const Job* job : jobs) most = std::max(most, std::min<int64_t>(job->spec.per_worker.times_in(holds), 1'000'000));
  return static_cast<double>(most);
}

// The cheapest node that could be added, by the price of a worker's room; told as the price of a node as large as those
// that are there are on average, since policy::allocate compares nodes, not rooms.
std::optional<double> new_node_price(const State& state, const std::vector<const Job*>& jobs,
                                     const std::vector<policy::AllocateNode>& nodes) {
  double seats = 0;
  for (const policy::AllocateNode& node : nodes) seats += seats_in(node.resources, jobs);
  const double average = nodes.empty() ? 1 : std::max(seats / static_cast<double>(nodes.size()), 1.0);
  std::optional<double> price;
  for (const auto& [name, type] : state.spec->types) {
    const double room = seats_in(resources_of(state, type), jobs);
    if (room < 1 || type.max_workers == 0) continue;
    for (const Offering& offering : offerings_of(type)) {
      const double one = price_of(state, type, offering) / room * average;
      if (may_be_had(*state.spec, offering) && (!price || one < *price)) price = one;
    }
  }
  return price;
}

policy::AllocateOptions options_of(const State& state, const policy::AllocateInput& input) {
  policy::AllocateOptions options;
  if (!state.spec) return options;
  const AdaptiveSettings& adaptive = state.spec->adaptive;
  if (adaptive.policy == AdaptivePolicy::kFair) options.policy = policy::AllocatePolicy::kFair;
  options.max_slowdown = adaptive.max_slowdown;
  options.least_utility = adaptive.least_utility;
  options.utility_band = adaptive.utility_band;
  if (!state.spec->scaling.budget_per_hour) return options;
  double others = 0;  // nodes that do not serve these jobs are paid first
  for (const auto& [id, node] : state.nodes) others += node.never_was ? 0 : node.offering.price_per_hour;
  for (const policy::AllocateNode& node : input.nodes) others -= node.price_per_hour.value_or(0);
  options.budget_per_hour = std::max(0.0, *state.spec->scaling.budget_per_hour - std::max(0.0, others));
  return options;
}

}  // namespace

int most_explored(const Job& job) {
  const int64_t seen = std::max<int64_t>(job.profile->max_profiled_replicas, 1);
  const auto most = std::clamp<int64_t>(2 * seen, job.spec.workers_min, job.spec.workers_max);
  return job.spec.usable(static_cast<int>(most));
}

std::vector<Event> resize(const State& state, WallTime now) {
  const std::vector<const Job*> jobs = adaptive_jobs(state);
  if (jobs.empty()) return {};
  policy::AllocateInput input;
  input.nodes = nodes_for(state, jobs);
  for (const Job* job : jobs) input.jobs.push_back(allocate_job(*job, now));
  if (state.spec) input.new_node_price = new_node_price(state, jobs, input.nodes);
  const policy::AllocateDecision decision = policy::allocate(input, options_of(state, input));
  std::vector<Event> events;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Job& job = *jobs[i];
    JobSized sized;
    sized.job = job.id;
    const auto given = static_cast<int>(decision.jobs[i].nodes.size());
    sized.workers = job.spec.usable(std::clamp(given, job.spec.workers_min, job.spec.workers_max));
    const int64_t worth = std::clamp<int64_t>(decision.jobs[i].worthwhile, job.spec.workers_min, most_explored(job));
    sized.worthwhile = std::max(job.spec.usable(static_cast<int>(worth)), job.spec.workers_min);
    sized.reason = decision.jobs[i].reason;
    if (sized.workers != job.sized || sized.worthwhile != job.worthwhile) events.emplace_back(std::move(sized));
  }
  return events;
}

}  // namespace rubato::reconcile

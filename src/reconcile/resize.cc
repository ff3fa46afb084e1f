#include "reconcile/resize.h"

#include <algorithm>

#include "policy/allocate.h"

namespace rubato::reconcile {

using cluster::Event;
using cluster::Job;
using cluster::JobSized;
using cluster::Seat;
using cluster::State;

namespace {

constexpr double kLeastUtility = 0.5;

policy::GoodputModel model_of(const JobProfile& profile) {
  policy::GoodputModel model;
  const JobProfile::Perf& p = *profile.perf;
  model.perf = {p.alpha_c, p.beta_c, p.alpha_n, p.beta_n, p.alpha_r, p.beta_r, p.gamma};
  if (profile.gradient) model.grad = {profile.gradient->norm, profile.gradient->var};
  model.limits.init_batch_size = profile.init_batch_size;
  model.limits.max_batch_size = std::max(profile.max_batch_size, profile.init_batch_size);
  const bool bounded = profile.local_max > 0;
  model.limits.local_min = bounded ? std::max<int64_t>(1, profile.local_min) : 1;
  model.limits.local_max = bounded ? profile.local_max : static_cast<int64_t>(model.limits.max_batch_size);
  model.limits.accumulation = profile.gradient_accumulation;
  return model;
}

int most_explored(const Job& job) {
  const int64_t seen = std::max<int64_t>(job.profile->max_profiled_replicas, 1);
  return static_cast<int>(std::clamp<int64_t>(2 * seen, job.spec.workers_min, job.spec.workers_max));
}

policy::AllocateJob allocate_job(const Job& job, WallTime now) {
  policy::AllocateJob out;
  const policy::GoodputModel model = model_of(*job.profile);
  out.id = job.id.value;
  out.resources = job.spec.per_worker;
  out.min_replicas = job.spec.workers_min;
  out.max_replicas = most_explored(job);
  out.priority = job.spec.priority;
  out.age_s = std::max(0.0, to_seconds(now - job.submitted));
  // What it has had is not written down; what it has now, for as long as it runs, is near enough for a weight.
  out.attained_service_s = std::max(0.0, to_seconds(now - job.started)) * job.workers();
  out.restarts = static_cast<int64_t>(job.generation) - 1;
  out.model.perf = model.perf;
  out.model.grad = model.grad;
  out.model.limits = model.limits;
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

// What usable nodes have for adaptive jobs: what is free, and what these jobs hold.
std::vector<policy::AllocateNode> nodes_for(const State& state, const std::vector<const Job*>& jobs) {
  std::map<NodeId, Resources> room;
  for (const auto& [id, node] : state.nodes) {
    if (node.usable()) room[id] = cluster::free_on(state, node);
  }
  for (const Job* job : jobs) {
    for (const Seat& seat : job->seats) {
      const auto it = room.find(seat.node);
      if (it != room.end()) it->second += times(job->spec.per_worker, seat.workers);
    }
  }
  std::vector<policy::AllocateNode> out;
  for (auto& [id, resources] : room) out.push_back({id.value, std::move(resources), state.nodes.at(id).type, {}});
  return out;
}

}  // namespace

int worthwhile_workers(const Job& job) {
  const policy::GoodputModel model = model_of(*job.profile);
  const int most = most_explored(job);
  int on_one_node = 1;
  for (const Seat& seat : job.seats) on_one_node = std::max(on_one_node, seat.workers);
  const double alone = model.best_batch(1, 1).goodput;
  int found = job.spec.workers_min;
  // All small sizes, and of large ones some: there may be very many.
  const auto next = [most](int size) { return size == most ? most + 1 : std::min(most, size + 1 + size / 32); };
  for (int workers = found + 1; alone > 0 && workers <= most; workers = next(workers)) {
    const double goodput = model.best_batch((workers + on_one_node - 1) / on_one_node, workers).goodput;
    if (goodput / alone >= kLeastUtility * workers) found = workers;
  }
  return found;
}

std::vector<Event> resize(const State& state, WallTime now) {
  const std::vector<const Job*> jobs = adaptive_jobs(state);
  if (jobs.empty()) return {};
  policy::AllocateInput input;
  input.nodes = nodes_for(state, jobs);
  for (const Job* job : jobs) input.jobs.push_back(allocate_job(*job, now));
  const policy::AllocateDecision decision = policy::allocate(input);
  std::vector<Event> events;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Job& job = *jobs[i];
    JobSized sized;
    sized.job = job.id;
    const auto given = static_cast<int>(decision.jobs[i].nodes.size());
    sized.workers = std::clamp(given, job.spec.workers_min, job.spec.workers_max);
    sized.worthwhile = worthwhile_workers(job);
    sized.reason = decision.jobs[i].reason;
    if (sized.workers != job.sized || sized.worthwhile != job.worthwhile) events.emplace_back(std::move(sized));
  }
  return events;
}

}  // namespace rubato::reconcile

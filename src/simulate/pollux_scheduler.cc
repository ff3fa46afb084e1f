// The policies: ours, and those that Pollux was compared with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "policy/allocate.h"
#include "simulate/pollux_job.h"

namespace rubato::simulate {
namespace {

constexpr int kReplicasMost = 64;                 // as in Pollux' simulator
constexpr double kTiresiasThreshold = 16 * 3600;  // GPU-seconds in the first queue
constexpr std::string_view kSingleGpu = "ncf";    // Pollux' simulator gives it one GPU

int most_replicas(const RunningJob& job) {
  if (job.application().name() == kSingleGpu) return 1;
  const policy::BatchLimits& limits = job.application().limits();
  const auto by_batch = static_cast<int>(limits.max_batch_size / static_cast<double>(limits.local_min));
  return std::min({std::max(2 * job.most_profiled_replicas(), 1), kReplicasMost, by_batch});
}

// Jobs whose number has not changed stay; others take the emptiest nodes, in their order.
PolluxSeats seats_for(const std::vector<int>& counts, const std::vector<RunningJob*>& active, int nodes, int gpus) {
  PolluxSeats out(active.size());
  std::vector<int> free(static_cast<size_t>(nodes), gpus);
  for (size_t i = 0; i < active.size(); ++i) {
    if (counts[i] == 0 || static_cast<int>(active[i]->seats().size()) != counts[i]) continue;
    out[i] = active[i]->seats();
    for (const int node : out[i]) --free[static_cast<size_t>(node)];
  }
  for (size_t i = 0; i < active.size(); ++i) {
    int left = out[i].empty() ? counts[i] : 0;
    while (left > 0) {
      const auto best = std::max_element(free.begin(), free.end());
      const int here = std::min(*best, left);
      out[i].insert(out[i].end(), static_cast<size_t>(here), static_cast<int>(best - free.begin()));
      *best -= here;
      left -= here;
    }
  }
  return out;
}

}  // namespace

PolluxSeats PolluxScheduler::decide(double now_s, const std::vector<RunningJob*>& active) {
  switch (scenario_.policy) {
    case PolluxPolicy::kAdaptive:
    case PolluxPolicy::kPollux:
      return decide_adaptive(now_s, active);
    case PolluxPolicy::kFifo:
      return decide_fifo(active);
    case PolluxPolicy::kTiresias:
      return decide_tiresias(now_s, active);
    case PolluxPolicy::kOptimus:
      return decide_optimus(active);
  }
  return {};
}

PolluxSeats PolluxScheduler::decide_adaptive(double now_s, const std::vector<RunningJob*>& active) const {
  policy::AllocateInput input{.now_s = now_s};
  for (int node = 0; node < scenario_.nodes; ++node) {
    policy::AllocateNode one{.id = fmt::format("{}", node)};
    one.resources.set(kGpu, scenario_.gpus_per_node * 1000);
    input.nodes.push_back(std::move(one));
  }
  for (const RunningJob* job : active) {
    policy::AllocateJob one{.id = job->job().name};
    one.resources.set(kGpu, 1000);
    one.max_replicas = most_replicas(*job);
    one.age_s = now_s - job->job().submit_s;
    one.attained_service_s = job->attained_service_s();
    one.restarts = job->restarts();
    one.restart_cost_s = scenario_.conventions.restart_delay_s;
    for (const int node : job->seats()) one.allocation.push_back(fmt::format("{}", node));
    one.done_iters = job->progress();
    if (scenario_.declared) one.total_iters = job->total_progress();
    one.model.perf = job->perf();
    one.model.grad = job->grad();
    one.model.limits = job->application().limits();
    input.jobs.push_back(std::move(one));
  }
  policy::AllocateOptions options;
  if (scenario_.policy == PolluxPolicy::kPollux) options.policy = policy::AllocatePolicy::kFair;
  const policy::AllocateDecision decision = policy::allocate(input, options);
  PolluxSeats out;
  for (const policy::JobAllocation& one : decision.jobs) out.emplace_back(one.nodes.begin(), one.nodes.end());
  return out;
}

// In the order of submission, each with the replicas that its user asked for; nobody overtakes.
PolluxSeats PolluxScheduler::decide_fifo(const std::vector<RunningJob*>& active) const {
  std::vector<int> counts(active.size(), 0);
  int free = scenario_.nodes * scenario_.gpus_per_node;
  for (size_t i = 0; i < active.size(); ++i) {
    const int wanted = std::min(active[i]->job().num_replicas, scenario_.nodes * scenario_.gpus_per_node);
    if (wanted > free) break;
    counts[i] = wanted;
    free -= wanted;
  }
  return seats_for(counts, active, scenario_.nodes, scenario_.gpus_per_node);
}

// Two queues; a job that has used up its GPU time goes to the second.
PolluxSeats PolluxScheduler::decide_tiresias(double now_s, const std::vector<RunningJob*>& active) {
  const double passed = now_s - last_s_;
  last_s_ = now_s;
  std::vector<size_t> order(active.size());
  std::iota(order.begin(), order.end(), 0);
  for (const RunningJob* job : active) {
    auto [found, added] = tiresias_.try_emplace(job->job().name);
    Waiting& state = found->second;
    if (added) state.order = orders_++;
    if (state.running) state.executed_s += passed;
    if (!state.demoted && state.executed_s * job->job().num_replicas >= kTiresiasThreshold) {
      state.demoted = true;
      state.order = orders_++;
    }
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Waiting &one = tiresias_[active[a]->job().name], &two = tiresias_[active[b]->job().name];
    return one.demoted != two.demoted ? two.demoted : one.order < two.order;
  });
  std::vector<int> counts(active.size(), 0);
  int free = scenario_.nodes * scenario_.gpus_per_node;
  for (const size_t i : order) {
    const int wanted = std::min(active[i]->job().num_replicas, scenario_.nodes * scenario_.gpus_per_node);
    tiresias_[active[i]->job().name].running = wanted <= free;
    if (wanted > free) continue;
    counts[i] = wanted;
    free -= wanted;
  }
  return seats_for(counts, active, scenario_.nodes, scenario_.gpus_per_node);
}

// One GPU for each job, then the next GPU to whom it saves most of the time that is left.
PolluxSeats PolluxScheduler::decide_optimus(const std::vector<RunningJob*>& active) const {
  std::vector<int> counts(active.size(), 0);
  int free = scenario_.nodes * scenario_.gpus_per_node;
  const auto time_left = [&](size_t i, int replicas) {
    const RunningJob& job = *active[i];
    const policy::BatchLimits& limits = job.application().limits();
    const double batch = job.job().batch_size;
    const double left = job.application().total_iterations(batch) * (1 - job.progress() / job.total_progress());
    const double local = std::ceil(batch / replicas - 1e-8);
    const double steps = std::max(std::ceil(local / static_cast<double>(limits.local_max) - 1e-8) - 1, 0.0);
    const int nodes = (replicas + scenario_.gpus_per_node - 1) / scenario_.gpus_per_node;
    const policy::StepTimes times = policy::step_times(*job.perf(), nodes, replicas, std::ceil(local / (steps + 1)));
    return left * (times.opt + steps * times.grad);
  };
  for (size_t i = 0; i < active.size() && free > 0; ++i, --free) counts[i] = 1;
  while (free > 0) {
    double most = 0;
    size_t best = active.size();
    for (size_t i = 0; i < active.size(); ++i) {
      const RunningJob& job = *active[i];
      const auto limit =
          static_cast<int>(job.job().batch_size / static_cast<double>(job.application().limits().local_min));
      if (counts[i] == 0 || !job.perf() || counts[i] >= limit || job.application().name() == kSingleGpu) continue;
      const double saved = time_left(i, counts[i]) - time_left(i, counts[i] + 1);
      if (saved > most) {
        most = saved;
        best = i;
      }
    }
    if (best == active.size()) break;
    ++counts[best];
    --free;
  }
  return seats_for(counts, active, scenario_.nodes, scenario_.gpus_per_node);
}

}  // namespace rubato::simulate

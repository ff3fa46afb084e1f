#include "policy/queue.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

namespace rubato::policy {

using cluster::Job;
using cluster::State;

namespace {

// For fair shares: a GPU counts as much as eight CPUs.
double weight(uint64_t cpus, uint64_t gpus) { return static_cast<double>(cpus) + 8 * static_cast<double>(gpus); }
double weight(const JobSpec& spec, int workers) {
  return static_cast<double>(workers) * static_cast<double>(spec.per_worker.of(kCpu) + 8 * spec.per_worker.of(kGpu));
}

// One owner's jobs of one priority.
struct Line {
  double* share = nullptr;
  std::vector<std::pair<WallTime, const Job*>> jobs;  // the times beside them: sorting need not look at the jobs
};

}  // namespace

void serve_in_turn(const State& state, const std::function<bool(const Job&)>& serve) {
  std::map<std::string, double> shares;  // of what is in use, by owner
  for (const auto& [owner, use] : state.index.used_by()) shares[owner] = weight(use.cpus, use.gpus);
  // By priority, then per owner the oldest first.
  std::map<int, std::map<std::string_view, Line>, std::greater<>> lines;
  for (const JobId& id : std::views::reverse(state.queued)) {
    const Job& job = state.jobs.at(id);
    lines[job.spec.priority][job.spec.owner].jobs.emplace_back(job.submitted, &job);
  }
  for (auto& [priority, owners] : lines) {
    std::vector<Line> by_owner;
    std::set<std::tuple<double, WallTime, size_t>> turns;
    for (auto& [owner, line] : owners) {
      // The oldest last. Of one time, the higher ids are already first.
      std::ranges::stable_sort(line.jobs, std::greater<>{}, &std::pair<WallTime, const Job*>::first);
      line.share = &shares[std::string(owner)];
      turns.emplace(*line.share, line.jobs.back().first, by_owner.size());
      by_owner.push_back(std::move(line));
    }
    while (!turns.empty()) {
      const size_t index = std::get<2>(turns.extract(turns.begin()).value());
      Line& line = by_owner[index];
      const Job& job = *line.jobs.back().second;
      line.jobs.pop_back();
      if (serve(job)) *line.share += weight(job.spec, job.spec.workers_min);
      if (!line.jobs.empty()) turns.emplace(*line.share, line.jobs.back().first, index);
    }
  }
}

std::vector<const Job*> queue_order(const State& state) {
  std::vector<const Job*> out;
  const auto take = [&](const Job& job) {
    out.push_back(&job);
    return true;
  };
  if (!state.queued.empty()) serve_in_turn(state, take);
  return out;
}

}  // namespace rubato::policy

#include "policy/queue.h"

#include <algorithm>
#include <map>
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

// One owner's jobs of one priority, from the next one on.
struct Line {
  double* share = nullptr;
  cluster::Index::Line::const_iterator next, end;
};

}  // namespace

void serve_in_turn(const State& state, const std::function<Served(const Job&)>& serve) {
  std::map<std::string, double> shares;  // of what is in use, by owner
  for (const auto& [owner, use] : state.index.used_by()) shares[owner] = weight(use.cpus, use.gpus);
  for (const auto& [priority, owners] : state.index.lines()) {
    std::vector<Line> lines;
    std::set<std::tuple<double, WallTime, size_t>> turns;
    lines.reserve(owners.size());
    for (const auto& [owner, jobs] : owners) {
      double& share = shares[owner];
      turns.emplace(share, jobs.begin()->first, lines.size());
      lines.push_back({&share, jobs.begin(), jobs.end()});
    }
    while (!turns.empty()) {
      const size_t index = std::get<2>(turns.extract(turns.begin()).value());
      Line& line = lines[index];
      const Job& job = state.jobs.at(line.next->second);
      ++line.next;
      const Served served = serve(job);
      if (served == Served::kStop) return;
      if (served == Served::kYes) *line.share += weight(job.spec, job.spec.workers_min);
      if (line.next != line.end) turns.emplace(*line.share, line.next->first, index);
    }
  }
}

std::vector<const Job*> queue_order(const State& state) {
  std::vector<const Job*> out;
  const auto take = [&](const Job& job) {
    out.push_back(&job);
    return Served::kYes;
  };
  serve_in_turn(state, take);
  return out;
}

QueuePlace queue_place(const State& state, const Job& job, size_t ahead_max) {
  QueuePlace out;
  const auto& lines = state.index.lines();
  const auto has_one_owner = [](const auto& entry) { return entry.second.size() == 1; };
  if (std::ranges::all_of(lines, has_one_owner)) {  // no shares to compare: the lines one after the other
    for (const auto& [priority, owners] : lines) {
      const cluster::Index::Line& line = owners.begin()->second;
      const auto at = line.find({job.submitted, job.id});
      const auto end = priority == job.spec.priority ? at : line.end();
      for (auto it = line.begin(); it != end && out.ahead.size() < ahead_max; ++it)
        out.ahead.push_back(&state.jobs.at(it->second));
      out.place += priority == job.spec.priority ? static_cast<size_t>(std::distance(line.begin(), at)) : line.size();
      if (priority == job.spec.priority) break;
    }
    ++out.place;
    return out;
  }
  const auto take = [&](const Job& one) {
    ++out.place;
    if (one.id == job.id) return Served::kStop;
    if (out.ahead.size() < ahead_max) out.ahead.push_back(&one);
    return Served::kYes;
  };
  serve_in_turn(state, take);
  return out;
}

}  // namespace rubato::policy

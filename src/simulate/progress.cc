#include "simulate/progress.h"

#include <algorithm>
#include <cmath>

namespace rubato::simulate {

void Progress::add(const JobId& job, const PlannedJob& plan) {
  Job& entry = jobs_[job];
  entry.left_s = plan.work_s;
  entry.efficiency = plan.efficiency;
  entry.checkpoint_every = plan.checkpoint_every;
  entry.crashes_per_worker_hour = plan.crashes_per_worker_hour;
}

Progress::Run Progress::run_of(const JobId& job, Generation generation, int workers) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return Run{};
  Job& entry = it->second;
  if (entry.drawn == generation) return entry.run;  // all workers of a generation have the same fate
  entry.drawn = generation;
  entry.run = Run{};
  entry.run.lasts = seconds(entry.left_s / speed(entry.efficiency, workers));
  const double rate = entry.crashes_per_worker_hour * workers / 3600;
  if (rate > 0) {
    const Duration after = seconds(std::min(1e9, -std::log(1 - random_.unit()) / rate));
    if (after < entry.run.lasts) entry.run.crashes_after = after;
  }
  return entry.run;
}

void Progress::ended(const JobId& job, Generation generation, int workers, Duration trained, End end) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end() || generation <= it->second.ended) return;
  Job& entry = it->second;
  entry.ended = generation;
  const double rate = speed(entry.efficiency, workers);
  Duration kept = trained;
  if (end == End::kCrashed) kept = trained / entry.checkpoint_every * entry.checkpoint_every;
  trained_s_ += to_seconds(trained) * workers;
  lost_s_ += to_seconds(trained - kept) * workers;
  entry.left_s = end == End::kDone ? 0 : std::max(0.0, entry.left_s - to_seconds(kept) * rate);
}

}  // namespace rubato::simulate

#include "simulate/progress.h"

#include <algorithm>
#include <cmath>

namespace rubato::simulate {

void Progress::add(const JobId& job, const PlannedJob& plan) {
  Job& entry = jobs_[job];
  entry.plan = &plan;
  entry.left_s = plan.work_s;
}

Progress::Run Progress::run_of(const JobId& job, Generation generation, int workers) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return Run{};
  Job& entry = it->second;
  if (entry.drawn == generation) return entry.run;  // all workers of a generation have the same fate
  entry.drawn = generation;
  entry.run = Run{};
  entry.run.lasts = seconds(entry.left_s / speed(*entry.plan, workers));
  const double rate = entry.plan->crashes_per_worker_hour * workers / 3600;
  if (rate > 0) {
    const Duration after = seconds(std::min(1e9, -std::log(1 - random_.unit()) / rate));
    if (after < entry.run.lasts) entry.run.crashes_after = after;
  }
  return entry.run;
}

Duration Progress::lasts(const JobId& job) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? Duration{} : it->second.run.lasts;
}

double Progress::done_s(const JobId& job, int workers, Duration trained) const {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return 0;
  const Job& entry = it->second;
  const double since_s = to_seconds(trained) * speed(*entry.plan, workers);
  return std::min(entry.plan->work_s, entry.plan->work_s - entry.left_s + since_s);
}

double Progress::ended(const JobId& job, Generation generation, int workers, Duration trained, End end) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end() || generation <= it->second.ended) return 0;
  Job& entry = it->second;
  entry.ended = generation;
  const double rate = speed(*entry.plan, workers);
  Duration kept = trained;
  if (end == End::kCrashed) kept = trained / entry.plan->checkpoint_every * entry.plan->checkpoint_every;
  const double lost_s = to_seconds(trained - kept) * workers;
  trained_s_ += to_seconds(trained) * workers;
  lost_s_ += lost_s;
  entry.left_s = end == End::kDone ? 0 : std::max(0.0, entry.left_s - to_seconds(kept) * rate);
  return lost_s;
}

}  // namespace rubato::simulate

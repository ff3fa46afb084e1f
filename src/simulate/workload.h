// Workload: the jobs of a run, all drawn before it begins, so that what happens in it does not change what comes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "model/job_spec.h"
#include "simulate/adaptive.h"
#include "simulate/scenario.h"

namespace rubato::simulate {

struct PlannedJob {
  Duration at{};
  JobSpec spec;
  double work_s = 0;  // worker-seconds of a single worker
  double efficiency = 1;
  Duration checkpoint_every = 10min;
  double crashes_per_worker_hour = 0;
  std::optional<Duration> stop_at;  // a person stops it then
  Duration ends_within = 500ms;     // its workers, when they are told to end
  std::optional<AdaptiveJob> adaptive;
};

// In the order of arrival.
std::vector<PlannedJob> draw_jobs(const Scenario& scenario, Random& random);

// A CSV with a header. Columns: submit_s, and work_s (worker-seconds) or duration_s (with all its workers); optional
// name, workers ("4" or "1:8"), cpus, gpus, memory (bytes, or 4GiB), priority, owner, efficiency, max_restarts.
// Throws usage Errors with file:line.
std::vector<PlannedJob> read_trace(std::string_view text, const std::string& file);

// How many times as fast as one worker `workers` are.
double speed(double efficiency, int workers);
double speed(const PlannedJob& job, int workers);

}  // namespace rubato::simulate

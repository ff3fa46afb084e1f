#include "simulate/adaptive.h"

#include <algorithm>

#include "policy/speed_model.h"

namespace rubato::simulate {

namespace {

constexpr double kSpeedLeast = 0.01;

policy::GoodputModel goodput_of(const JobProfile& profile) {
  const policy::JobModel model = policy::model_of(profile);
  return {*model.perf, model.grad, model.limits};
}

}  // namespace

double speed(const AdaptiveJob& job, int workers) {
  const policy::GoodputModel model = goodput_of(job.profile);
  const double alone = model.best_batch(1, 1).goodput;
  return alone > 0 ? std::max(kSpeedLeast, model.best_batch(1, workers).goodput / alone) : 1;
}

JobProfile measured(const AdaptiveJob& job, double done_s, double work_s, int most_workers, Random& random) {
  JobProfile told = job.profile;
  const auto wrong = [&](double value) { return value * (1 + job.error * (2 * random.unit() - 1)); };
  JobProfile::Perf& perf = *told.perf;
  for (double* value : {&perf.alpha_c, &perf.beta_c, &perf.alpha_n, &perf.beta_n, &perf.alpha_r, &perf.beta_r})
    *value = wrong(*value);
  told.gradient->var = wrong(told.gradient->var);
  told.max_profiled_replicas = most_workers;
  const double steps_per_s = goodput_of(job.profile).best_batch(1, 1).goodput / job.profile.init_batch_size;
  told.done_iters = done_s * steps_per_s;
  if (job.declares) told.total_iters = work_s * steps_per_s;
  return told;
}

}  // namespace rubato::simulate

#include "policy/speed_model.h"

#include <algorithm>

namespace rubato::policy {
namespace {

PerfParams params_of(const JobProfile::Perf& p) {
  return {p.alpha_c, p.beta_c, p.alpha_n, p.beta_n, p.alpha_r, p.beta_r, p.gamma};
}

}  // namespace

JobModel model_of(const JobProfile& profile) {
  JobModel model;
  model.perf = params_of(*profile.perf);
  for (const auto& [device, perf] : profile.perf_by_device) model.perf_by_kind[device] = params_of(perf);
  if (!profile.device.empty()) model.perf_by_kind[profile.device] = *model.perf;
  if (profile.gradient) model.grad = {profile.gradient->norm, profile.gradient->var};
  model.limits.init_batch_size = profile.init_batch_size;
  model.limits.max_batch_size = std::max(profile.max_batch_size, profile.init_batch_size);
  const bool bounded = profile.local_max > 0;
  model.limits.local_min = bounded ? std::max<int64_t>(1, profile.local_min) : 1;
  model.limits.local_max = bounded ? profile.local_max : static_cast<int64_t>(model.limits.max_batch_size);
  model.limits.accumulation = profile.gradient_accumulation;
  return model;
}

}  // namespace rubato::policy

// JobProfile: what a training has found out about itself and tells in AdaptDL's hints: how long its steps take, how
// noisy its gradients are, which batch sizes it allows. policy/goodput.h is the model whose parameters these are.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

namespace rubato {

struct JobProfile {
  struct Perf {
    double alpha_c = 0, beta_c = 0, alpha_n = 0, beta_n = 0, alpha_r = 0, beta_r = 0, gamma = 1;
    bool operator==(const Perf&) const = default;
  };
  struct Gradient {
    double norm = 0, var = 0;  // of its mean, squared; its variance
    bool operator==(const Gradient&) const = default;
  };
  double init_batch_size = 0;
  double global_batch_size = 0;  // now; 0: it does not say
  double max_batch_size = 0;     // 0: it does not grow
  int64_t local_min = 0, local_max = 0;  // of one worker's batch; 0: it does not say
  int64_t max_profiled_replicas = 0;
  bool gradient_accumulation = false;
  std::optional<Gradient> gradient;
  std::optional<Perf> perf;
  bool operator==(const JobProfile&) const = default;
};

// In the names of AdaptDL's hints: {"initBatchSize", "perfParams": {"alpha_c", ...}, ...}.
nlohmann::json to_json(const JobProfile& profile);
// Unknown keys are dropped, as AdaptDL's own supervisor does; null is as absent. Throws a usage Error for a value that
// has no meaning.
JobProfile job_profile_from_json(const nlohmann::json& hints);

// A job whose hints say enough to weigh one size against another.
inline bool is_known(const std::optional<JobProfile>& profile) { return profile && profile->perf; }

}  // namespace rubato

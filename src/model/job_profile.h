// JobProfile: what a training has found out about itself and tells in AdaptDL's hints: how long its steps take, how
// noisy its gradients are, which batch sizes it allows. policy/goodput.h is the model whose parameters these are.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
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
  std::optional<Perf> perf;  // on the devices that it runs on now

  // Only Rubato's own library tells these.
  std::string device;                          // what `perf` was measured on: "NVIDIA H200"; empty: it does not say
  std::map<std::string, Perf> perf_by_device;  // on devices that it ran on before
  std::optional<double> done_iters;            // steps at the initial batch size that would have taught as much
  std::optional<double> total_iters;           // as many as the script has declared
  std::optional<double> start_s;               // from the start of a worker to the end of its first step
  bool operator==(const JobProfile&) const = default;
};

// In the names of AdaptDL's hints: {"initBatchSize", "perfParams": {"alpha_c", ...}, ...}; and {"progress": {"done",
// "total"}, "deviceKind", "perfByDevice": {device: perfParams}, "startSeconds"}.
nlohmann::json to_json(const JobProfile& profile);
// Unknown keys are dropped, as AdaptDL's own supervisor does; null is as absent. Throws a usage Error for a value that
// has no meaning.
JobProfile job_profile_from_json(const nlohmann::json& hints);

// A job whose hints say enough to weigh one size against another.
inline bool is_known(const std::optional<JobProfile>& profile) { return profile && profile->perf; }

inline constexpr size_t kDeviceBytesMax = 64;
inline constexpr size_t kDevicesMax = 8;  // of perf_by_device

}  // namespace rubato

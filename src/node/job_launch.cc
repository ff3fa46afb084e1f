#include "node/job_launch.h"

#include <algorithm>

#include "node/supervisor.h"

namespace rubato::node {

using elastic::Errand;

namespace {
// The supervisor's protocol that we speak; a trainer of another major version refuses it.
constexpr const char* kAdaptdlVersion = "0.2.11";
}  // namespace

LaunchSpec launch_spec(const Errand& errand) {
  LaunchSpec spec;
  spec.kind = errand.spec.kind;
  spec.program = errand.spec.program;
  spec.args = errand.spec.args;
  spec.python = errand.spec.python;
  spec.prewarm = errand.spec.prewarm;
  spec.nproc = errand.workers;
  spec.run_id = errand.job.value;
  spec.max_restarts = errand.spec.max_restarts;
  spec.grace = errand.grace;
  return spec;
}

elastic::View errand_view(const Errand& errand) {
  elastic::View view;
  view.phase = errand.phase;
  view.legacy.generation = errand.generation;
  view.legacy.restarts_used = errand.restarts_used;
  view.assignment = errand.place;
  view.master_addr = errand.master_addr;
  view.master_port = errand.master_port;
  return view;
}

agent::Environment job_environment(const agent::Environment& inherited, const Errand& errand, const NodeId& node,
                                   const std::optional<std::string>& devices, bool old_torch) {
  agent::Environment env = inherited;
  // As many threads as CPUs were asked for: more would fight over them.
  env["OMP_NUM_THREADS"] = std::to_string(std::max<int64_t>(1, errand.spec.per_worker.of(kCpu) / 1000));
  if (devices) env["CUDA_VISIBLE_DEVICES"] = *devices;
  env["ADAPTDL_CHECKPOINT_PATH"] = errand.output + "/" + std::string(kAdaptdlFolder);
  for (const auto& [name, value] : errand.spec.env) env[name] = value;

  env["RUBATO_OUTPUT"] = errand.output;
  env["RUBATO_JOB_ID"] = errand.job.value;
  env["RUBATO_JOB_NAME"] = errand.spec.name;
  env["RUBATO_NODE"] = node.value;
  env["ADAPTDL_JOB_ID"] = adaptdl_job_id(errand.job);
  env["ADAPTDL_SCHED_VERSION"] = kAdaptdlVersion;
  env["ADAPTDL_MASTER_ADDR"] = errand.master_addr;
  env["ADAPTDL_MASTER_PORT"] = std::to_string(errand.master_port);
  env["ADAPTDL_NUM_REPLICAS"] = std::to_string(errand.place.world_size);
  env["ADAPTDL_NUM_NODES"] = std::to_string(errand.place.group_world_size);
  // It names checkpoints by this number and takes the highest: each round needs its own, not only those after failures.
  env["ADAPTDL_NUM_RESTARTS"] = std::to_string(adaptdl_group(errand.generation));
  return agent::group_environment(env, launch_spec(errand), old_torch);
}

agent::Environment own_variables(const agent::WorkerPlace& place) {
  agent::Environment env;
  env["ADAPTDL_REPLICA_RANK"] = std::to_string(place.assignment.first_rank + place.local_rank);
  return env;
}

}  // namespace rubato::node

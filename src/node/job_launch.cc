#include "node/job_launch.h"

#include <algorithm>

#include "core/text.h"
#include "node/supervisor.h"

namespace rubato::node {

using elastic::JobOrder;

namespace {
// The supervisor's protocol that we speak; a trainer of another major version refuses it.
constexpr const char* kAdaptdlVersion = "0.2.11";

// Where a proxy is set, AdaptDL's client would ask it for the supervisor, which only this node can reach.
void spare_supervisor_from_proxies(agent::Environment& env) {
  constexpr std::string_view kLoopback = "127.0.0.1";
  const auto is_set = [&env](const char* name) { return env.contains(name) && !env.at(name).empty(); };
  const auto proxies = {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"};
  if (std::ranges::none_of(proxies, is_set)) return;
  // Clients read either; where only one is set, it is meant for both.
  const std::string lower = is_set("no_proxy") ? env["no_proxy"] : env["NO_PROXY"];
  const std::string upper = is_set("NO_PROXY") ? env["NO_PROXY"] : lower;
  for (const auto& [name, hosts] : {std::pair{"no_proxy", lower}, std::pair{"NO_PROXY", upper}}) {
    const auto is_named = [&](std::string_view host) { return trim(host) == kLoopback || trim(host) == "*"; };
    if (std::ranges::any_of(split(hosts, ','), is_named)) continue;
    env[name] = hosts.empty() ? std::string(kLoopback) : hosts + "," + std::string(kLoopback);
  }
}
}  // namespace

LaunchSpec launch_spec(const JobOrder& job_order) {
  LaunchSpec spec;
  spec.kind = job_order.spec.kind;
  spec.program = job_order.spec.program;
  spec.args = job_order.spec.args;
  spec.python = job_order.spec.python;
  spec.prewarm = job_order.spec.prewarm;
  spec.nproc = job_order.workers;
  spec.run_id = job_order.job.value;
  spec.max_restarts = job_order.spec.max_restarts;
  spec.grace = job_order.grace;
  return spec;
}

elastic::View job_order_view(const JobOrder& job_order) {
  elastic::View view;
  view.phase = job_order.phase;
  view.legacy.generation = job_order.generation;
  view.legacy.restarts_used = job_order.restarts_used;
  view.assignment = job_order.place;
  view.master_addr = job_order.master_addr;
  view.master_port = job_order.master_port;
  return view;
}

agent::Environment job_environment(const agent::Environment& inherited, const JobOrder& job_order, const NodeId& node,
                                   const std::optional<std::string>& devices, bool old_torch) {
  agent::Environment env = inherited;
  // As many threads as CPUs were asked for: more would fight over them.
  env["OMP_NUM_THREADS"] = std::to_string(std::max<int64_t>(1, job_order.spec.per_worker.of(kCpu) / 1000));
  if (devices) env["CUDA_VISIBLE_DEVICES"] = *devices;
  // Whoever has a disk that all nodes see may name it.
  env["RUBATO_CHECKPOINT"] = job_order.checkpoint_folder;
  env["ADAPTDL_CHECKPOINT_PATH"] = job_order.checkpoint_folder + "/" + std::string(elastic::kAdaptdlFolder);
  for (const auto& [name, value] : job_order.spec.env) {
    // The training library is at the end of it: what the user gives comes first, but does not take that away.
    const auto before = inherited.find(name);
    const bool joined = name == "PYTHONPATH" && !value.empty() && before != inherited.end() && !before->second.empty();
    env[name] = joined ? value + ":" + before->second : value;
  }

  const auto names = job_order.spec.env.find(std::string(agent::kAdaptdlVariable));
  if (names != job_order.spec.env.end() && names->second == agent::kOurAdaptdl) agent::prefer_our_adaptdl(env);

  env["RUBATO_OUTPUT"] = job_order.output;
  env.try_emplace("ADAPTDL_TENSORBOARD_LOGDIR", job_order.output + "/tensorboard");
  env["RUBATO_JOB_ID"] = job_order.job.value;
  env["RUBATO_JOB_NAME"] = job_order.spec.name;
  env["RUBATO_NODE"] = node.value;
  env["ADAPTDL_JOB_ID"] = adaptdl_job_id(job_order.job);
  env["ADAPTDL_SCHED_VERSION"] = kAdaptdlVersion;
  env["ADAPTDL_MASTER_ADDR"] = job_order.master_addr;
  env["ADAPTDL_MASTER_PORT"] = std::to_string(job_order.master_port);
  env["ADAPTDL_NUM_REPLICAS"] = std::to_string(job_order.place.world_size);
  env["ADAPTDL_NUM_NODES"] = std::to_string(job_order.place.group_world_size);
  // It names checkpoints by this number and takes the highest: each round needs its own, not only those after failures.
  env["ADAPTDL_NUM_RESTARTS"] = std::to_string(adaptdl_group(job_order.generation));
  spare_supervisor_from_proxies(env);
  return agent::group_environment(env, launch_spec(job_order), old_torch);
}

agent::Environment own_variables(const agent::WorkerPlace& place) {
  agent::Environment env;
  env["ADAPTDL_REPLICA_RANK"] = std::to_string(place.assignment.first_rank + place.local_rank);
  return env;
}

}  // namespace rubato::node

// allocate: how many replicas each adaptive job gets, and on which nodes. A pure decision; each job gets its reason.
//
// 1. Goodput (goodput.h) gives each job its speedup x(r) at the sizes of a ladder: 1, 2, 4, ... up to one node, whole
//    nodes above. Unprofiled jobs get their smallest size.
// 2. A job's weight: with a declared end, its rank by remaining work (the job with least left weighs most); without,
//    (work done + 600)^-0.3. Times 4^priority, its own weight, and what a deadline or a bound on slowdown asks for.
// 3. A change of size costs a restart: x(r) counts less when the job would not profit from it for long.
// 4. value(r) = weight · 2(√(x·f + 0.001) − √0.001). A knapsack over all jobs finds the sizes: exactly (dynamic
//    programming) where that is quick, by marginal value per GPU above, or when nodes are of several kinds.
// 5. Seats: unchanged sizes stay where they are, distributed jobs take whole nodes, the rest fills the gaps.
// `fair` maximises Pollux' own objective instead: the power mean (p = −1) of speedups over the fair share.
//
// The same input gives the same output, whatever the order of its jobs. No node gets more than it has. A job gets
// nothing, or at least min_replicas and at most max_replicas, a multiple of `step`. A job that is not preemptible and
// has an allocation keeps it. facts and numbers: docs/allocate.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/resources.h"
#include "policy/goodput.h"

namespace rubato::policy {

enum class AllocatePolicy { kAdaptive, kFair };
std::string_view to_string(AllocatePolicy policy);

struct AllocateNode {
  std::string id;
  Resources resources;
  std::string kind;  // of its devices; a job runs on nodes of one kind at a time
  std::optional<double> price_per_hour;
};

struct JobModel {
  std::optional<PerfParams> perf;                  // absent: not profiled yet
  std::map<std::string, PerfParams> perf_by_kind;  // instead of perf on nodes of that kind
  GradStats grad;
  BatchLimits limits;
};

struct AllocateJob {
  std::string id;
  Resources resources;  // of one replica
  int64_t min_replicas = 0, max_replicas = INT32_MAX, step = 1;
  bool preemptible = true;
  double priority = 0, weight = 1;
  std::optional<double> deadline_s;  // on the clock of AllocateInput::now_s
  double age_s = 0;
  double attained_service_s = 0;  // replicas times seconds
  int64_t restarts = 0;
  double restart_cost_s = 30;
  std::vector<std::string> allocation;  // node ids, one for each replica; ids that are not there count as lost
  std::optional<double> done_iters, total_iters;  // at the initial batch size
  JobModel model;
};

struct AllocateInput {
  double now_s = 0;
  std::optional<double> new_node_price;  // per hour, of one that could be added; absent: as the cheapest that is there
  std::vector<AllocateNode> nodes;
  std::vector<AllocateJob> jobs;
};

struct AllocateOptions {
  AllocatePolicy policy = AllocatePolicy::kAdaptive;
  // A node is worth its money while each of its seats gives at least this much of a first seat's speedup.
  double least_utility = 0.5;
  std::optional<std::pair<double, double>> utility_band;  // AdaptDL's rule for desired_nodes instead
  std::optional<double> budget_per_hour;
  // A job that is slower than its fair share by more than this comes first. 0: no bound.
  double max_slowdown = 0;
};

struct JobAllocation {
  std::vector<size_t> nodes;  // indices into AllocateInput::nodes, one for each replica, those of a node together
  std::optional<BatchChoice> batch;
  std::string reason;
  int64_t worthwhile = 0;  // replicas that it would have on desired_nodes
};

struct AllocateDecision {
  std::vector<JobAllocation> jobs;  // in the order of the input
  int64_t desired_nodes = 0;
};

// Ids must be unique; numbers must be finite and not negative where that has no meaning (allocate_state.h checks).
AllocateDecision allocate(const AllocateInput& input, const AllocateOptions& options = {});

}  // namespace rubato::policy

// States for tests of allocate: made up jobs and nodes, and the rules that every decision keeps.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "core/random.h"
#include "policy/allocate.h"

namespace rubato::policy {

inline AllocateNode test_node(std::string id, int gpus, std::string kind = "") {
  AllocateNode node{.id = std::move(id), .kind = std::move(kind)};
  node.resources.set(kGpu, gpus * 1000);
  return node;
}

inline std::vector<AllocateNode> test_nodes(int count, int gpus) {
  std::vector<AllocateNode> nodes;
  for (int i = 0; i < count; ++i) nodes.push_back(test_node(fmt::format("n{}", i), gpus));
  return nodes;
}

// Of a network that costs `network` times as much as the computation of a batch.
inline JobModel test_model(double network = 0.1, double noise = 10) {
  return {.perf = PerfParams{.alpha_c = 0.02,
                             .beta_c = 0.001,
                             .alpha_n = 0.15 * network,
                             .beta_n = 0.002 * network,
                             .alpha_r = 0.05 * network,
                             .beta_r = 0.001 * network,
                             .gamma = 1.6},
          .grad = {.sqr = 1, .var = noise},
          .limits = {
              .init_batch_size = 128, .max_batch_size = 8192, .local_min = 16, .local_max = 512, .accumulation = true}};
}

inline AllocateJob test_job(std::string id, double left_iters) {
  AllocateJob job{.id = std::move(id),
                  .max_replicas = 64,
                  .age_s = 600,
                  .done_iters = 1000,
                  .total_iters = 1000 + left_iters,
                  .model = test_model()};
  job.resources.set(kGpu, 1000);
  return job;
}

inline AllocateInput random_state(Random& random, size_t jobs_max = 30, int nodes_max = 12) {
  AllocateInput input{.now_s = random.unit() * 1e6};
  const bool several_kinds = random.chance(0.3), several_resources = random.chance(0.3);
  for (int i = 0, count = static_cast<int>(random.below(static_cast<uint64_t>(nodes_max))); i < count; ++i) {
    const int gpus = random.chance(0.8) ? 4 : static_cast<int>(random.below(9));
    AllocateNode node = test_node(fmt::format("n{}", i), gpus, several_kinds && random.chance(0.5) ? "fast" : "");
    if (several_resources) node.resources.set(kCpu, static_cast<int64_t>(random.below(32)) * 1000);
    if (random.chance(0.3)) node.price_per_hour = random.unit() * 10;
    input.nodes.push_back(node);
  }
  for (size_t i = 0, count = random.below(jobs_max); i < count; ++i) {
    AllocateJob job = test_job(fmt::format("j{}", i), std::pow(10, random.unit() * 6));
    job.age_s = random.chance(0.1) ? 0 : random.unit() * 1e5;
    job.attained_service_s = random.unit() * 1e4;
    job.restart_cost_s = random.chance(0.5) ? 30 : random.unit() * 1000;
    job.restarts = static_cast<int64_t>(random.below(10));
    job.model = test_model(random.unit() * 2, std::pow(10, random.unit() * 4 - 2));
    if (several_kinds && random.chance(0.7)) {
      PerfParams fast = *job.model.perf;
      fast.alpha_c /= 3;
      fast.beta_c /= 3;
      job.model.perf_by_kind["fast"] = fast;
    }
    if (random.chance(0.2)) job.model = {};
    if (random.chance(0.3)) job.total_iters.reset();
    if (random.chance(0.1)) job.resources = {};
    if (random.chance(0.1)) job.resources.set(kGpu, static_cast<int64_t>(random.below(4000)));
    if (several_resources && random.chance(0.5)) job.resources.set(kCpu, static_cast<int64_t>(random.below(9000)));
    job.min_replicas = random.chance(0.6) ? 0 : static_cast<int64_t>(random.below(9));
    job.max_replicas = random.chance(0.3) ? INT32_MAX : static_cast<int64_t>(random.below(40));
    if (random.chance(0.1)) job.step = static_cast<int64_t>(1 + random.below(8));
    job.preemptible = random.chance(0.8);
    job.priority = random.chance(0.8) ? 0 : random.unit() * 100 - 50;
    if (random.chance(0.6) && !input.nodes.empty()) {
      for (uint64_t k = random.below(9); k > 0; --k)
        job.allocation.push_back(random.chance(0.03) ? "gone" : input.nodes[random.below(input.nodes.size())].id);
      std::sort(job.allocation.begin(), job.allocation.end());
    }
    input.jobs.push_back(std::move(job));
  }
  return input;
}

inline std::vector<std::string> ids_of(const AllocateInput& input, const JobAllocation& one) {
  std::vector<std::string> out;
  for (const size_t node : one.nodes) out.push_back(input.nodes.at(node).id);
  return out;
}

// A job that is not preemptible, whose seats are all there: whether they fit together with those of all such jobs.
inline bool pinned_fit(const AllocateInput& input) {
  std::map<std::string, Resources> used;
  for (const AllocateJob& job : input.jobs) {
    if (job.preemptible) continue;
    for (const std::string& id : job.allocation) used[id] += job.resources;
  }
  for (const AllocateNode& node : input.nodes) {
    if (!used[node.id].fits_in(node.resources)) return false;
  }
  return true;
}

inline void expect_rules(const AllocateInput& input, const AllocateDecision& decision) {
  ASSERT_EQ(decision.jobs.size(), input.jobs.size());
  std::vector<Resources> used(input.nodes.size());
  const bool all_pinned_fit = pinned_fit(input);
  for (size_t i = 0; i < input.jobs.size(); ++i) {
    const AllocateJob& job = input.jobs[i];
    const JobAllocation& one = decision.jobs[i];
    EXPECT_FALSE(one.reason.empty()) << job.id;
    std::set<std::string> kinds;
    for (const size_t node : one.nodes) {
      used[node] += job.resources;
      kinds.insert(input.nodes[node].kind);
    }
    const std::set<std::string> known = [&] {
      std::set<std::string> out;
      for (const AllocateNode& node : input.nodes) out.insert(node.id);
      return out;
    }();
    const bool whole = std::all_of(job.allocation.begin(), job.allocation.end(),
                                   [&](const std::string& id) { return known.contains(id); });
    const bool kept = !job.preemptible && whole && !job.allocation.empty() && all_pinned_fit;
    if (kept) {
      EXPECT_EQ(ids_of(input, one), job.allocation) << job.id << " is not preemptible";
      continue;
    }
    const auto count = static_cast<int64_t>(one.nodes.size());
    if (count == 0) continue;
    const bool rest_of_pinned = !job.preemptible && !job.allocation.empty();
    EXPECT_TRUE(kinds.size() == 1 || rest_of_pinned) << job.id;
    if (rest_of_pinned) continue;
    EXPECT_GE(count, job.min_replicas) << job.id;
    EXPECT_LE(count, job.max_replicas) << job.id;
    EXPECT_EQ(count % job.step, 0) << job.id;
    // Replicas of one node stand together.
    std::set<size_t> seen;
    for (size_t k = 0; k < one.nodes.size(); ++k) {
      if (k > 0 && one.nodes[k] == one.nodes[k - 1]) continue;
      const bool as_before = ids_of(input, one) == job.allocation;
      EXPECT_TRUE(seen.insert(one.nodes[k]).second || as_before) << job.id;
    }
    if (one.batch) {
      EXPECT_GE(one.batch->atomic_bsz, job.model.limits.local_min);
      EXPECT_LE(one.batch->atomic_bsz, job.model.limits.local_max);
    }
  }
  for (size_t node = 0; node < input.nodes.size(); ++node)
    EXPECT_TRUE(used[node].fits_in(input.nodes[node].resources)) << input.nodes[node].id << " is over-committed";
  EXPECT_GE(decision.desired_nodes, 0);
}

}  // namespace rubato::policy

// Goodput (Pollux, OSDI'21): how fast a job computes, times how much each sample teaches it.
//
// r replicas on n nodes, each with an atomic batch m and s accumulation steps before an update:
//   M = r·m·(s+1)                     the whole batch; M0 is the one that the user chose
//   T_grad = α_c + β_c·m              forward and backward of one atomic batch
//   T_net  = α + β·max(r−2, 1e-8)     (α_n, β_n) over nodes, (α_r, β_r) within one, about 0 for one replica
//   T_opt  = (T_grad^γ + T_net^γ)^(1/γ)
//   throughput = M / (s·T_grad + T_opt)                              samples a second
//   efficiency = gain/scale, scale = M/M0, gain = (var+sqr)/(var/scale+sqr)
//   goodput    = throughput · efficiency                             samples a second at M0's efficiency
//
// src/policy/goodput_fit.h finds the seven parameters from measured times. All pure.
#pragma once

#include <cstdint>

namespace rubato::policy {

struct PerfParams {
  double alpha_c = 0, beta_c = 0;  // compute
  double alpha_n = 0, beta_n = 0;  // network between nodes
  double alpha_r = 0, beta_r = 0;  // between replicas of one node
  double gamma = 1;                // 1: compute and network follow each other; 10: they overlap
};

// Of the gradient: the squared length of its mean, and its variance, at the initial batch size. A job that does not
// measure them gains nothing from larger batches.
struct GradStats {
  double sqr = 1, var = 0;
};

struct BatchLimits {
  double init_batch_size = 1;            // M0
  double max_batch_size = 1;             // of M
  int64_t local_min = 1, local_max = 1;  // of m
  bool accumulation = false;
};

struct StepTimes {
  double grad = 0, net = 0, opt = 0;
};
StepTimes step_times(const PerfParams& perf, int nodes, int replicas, double atomic_bsz);

double efficiency(const GradStats& grad, double init_batch_size, double batch_size);

struct BatchChoice {
  int64_t atomic_bsz = 0, accum_steps = 0;
  double throughput = 0, efficiency = 0;
  double goodput = 0;  // 0: no batch is within the limits
};

struct GoodputModel {
  PerfParams perf;
  GradStats grad;
  BatchLimits limits;

  BatchChoice evaluate(int nodes, int replicas, int64_t atomic_bsz, int64_t accum_steps) const;

  // The batch of most goodput among Pollux' 50 geometric samples of M in [max(M0, local_min·r), max_batch_size]. The
  // choice is then cut so that M stays within max_batch_size.
  BatchChoice best_batch(int nodes, int replicas) const;
};

}  // namespace rubato::policy

// fit_perf: the seven parameters of goodput.h from measured times.
//
// Minimises, as AdaptDL does, RMSLE(T_grad) + RMSLE(T_opt) + 1e-3·(γ−1)² + 1e-2·[(β_n/α_n)² + (β_r/α_r)²], all
// parameters ≥ 1e-8 and 1 ≤ γ ≤ 10, and is as optimistic as it about what was not seen yet:
//   one atomic batch size only          α_c is half of the mean compute time
//   never more than one node            α_n, β_n are 1.1 times α_r, β_r
//   never several replicas on one node  α_r, β_r are about 0
//   never more than two replicas        β_n, β_r are about 0
// A point that lies far off (more than three times the usual error, and more than 1.35 times too fast or slow) counts
// less, so that one slow step does not bend the rest.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "policy/goodput.h"

namespace rubato::policy {

// Mean times of one configuration.
struct StepPoint {
  int nodes = 1, replicas = 1;
  double atomic_bsz = 1;
  double grad_time = 0;  // T_grad, without the network
  double step_time = 0;  // T_opt
};

// Points whose times are not positive and finite are left out. With none left: all zeros (see `fitted`).
PerfParams fit_perf(std::span<const StepPoint> points);
bool fitted(const PerfParams& perf);  // whether it is usable: compute takes time, all finite

// A job that ran on several kinds of devices: each kind has its own parameters.
std::map<std::string, PerfParams> fit_perf_by_kind(const std::map<std::string, std::vector<StepPoint>>& points);

// What fit_perf minimises, for tests. The parameters are not bounded here.
double fit_objective(const PerfParams& perf, std::span<const StepPoint> points);

}  // namespace rubato::policy

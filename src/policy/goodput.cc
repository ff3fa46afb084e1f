#include "policy/goodput.h"

#include <algorithm>
#include <cmath>

namespace rubato::policy {
namespace {

constexpr double kSmall = 1e-8;
constexpr int kSamples = 50;

// (a^γ + b^γ)^(1/γ), by the larger one, so that neither a power of milliseconds nor one of hours leaves the range.
double p_norm(double a, double b, double gamma) {
  const double large = std::max(a, b), small = std::min(a, b);
  if (!(small > 0)) return large;
  const double ratio = small / large;
  if (ratio < 1e-12) return large;
  if (gamma <= 1) return a + b;
  return large * std::pow(1 + std::pow(ratio, gamma), 1 / gamma);
}

}  // namespace

StepTimes step_times(const PerfParams& perf, int nodes, int replicas, double atomic_bsz) {
  StepTimes out;
  const double more = std::max(replicas - 2.0, kSmall);
  out.grad = perf.alpha_c + perf.beta_c * atomic_bsz;
  out.net = nodes > 1      ? perf.alpha_n + perf.beta_n * more
            : replicas > 1 ? perf.alpha_r + perf.beta_r * more
                           : kSmall + kSmall * kSmall;
  out.opt = p_norm(out.grad, out.net, perf.gamma);
  return out;
}

double efficiency(const GradStats& grad, double init_batch_size, double batch_size) {
  const double scale = batch_size / init_batch_size;
  const double noise = grad.var / scale + grad.sqr;
  return (noise > 0 ? (grad.var + grad.sqr) / noise : 1) / scale;
}

BatchChoice GoodputModel::evaluate(int nodes, int replicas, int64_t atomic_bsz, int64_t accum_steps) const {
  const double batch =
      static_cast<double>(replicas) * static_cast<double>(atomic_bsz) * static_cast<double>(accum_steps + 1);
  const StepTimes times = step_times(perf, nodes, replicas, static_cast<double>(atomic_bsz));
  BatchChoice out{.atomic_bsz = atomic_bsz, .accum_steps = accum_steps};
  out.throughput = batch / (static_cast<double>(accum_steps) * times.grad + times.opt);
  out.efficiency = policy::efficiency(grad, limits.init_batch_size, batch);
  out.goodput = out.throughput * out.efficiency;
  if (!std::isfinite(out.goodput)) out.goodput = 0;
  return out;
}

BatchChoice GoodputModel::best_batch(int nodes, int replicas) const {
  const double r = replicas;
  const double least = std::max(limits.init_batch_size, static_cast<double>(limits.local_min) * r);
  if (least > limits.max_batch_size * (1 + kSmall)) return {};
  const double ratio = std::log(limits.max_batch_size / least) / (kSamples - 1);
  const double local_max = static_cast<double>(limits.local_max);
  BatchChoice best;
  int64_t tried_atomic = -1, tried_steps = -1;
  for (int i = 0; i < kSamples; ++i) {
    const double batch = i == 0 ? least : i == kSamples - 1 ? limits.max_batch_size : least * std::exp(ratio * i);
    const double local = batch / r;
    double steps = 0;
    if (limits.accumulation) {
      steps = std::max(std::ceil(local / local_max - kSmall) - 1, 0.0);
      // One batch of one replica says nothing about the noise of its gradient.
      if (replicas == 1 && local > limits.init_batch_size + kSmall) steps = std::max(steps, 1.0);
    }
    const double atomic = std::ceil(local / (steps + 1) - kSmall);
    if (!(atomic >= static_cast<double>(limits.local_min)) || atomic > local_max) continue;
    const auto whole_atomic = static_cast<int64_t>(atomic), whole_steps = static_cast<int64_t>(steps);
    if (whole_atomic == tried_atomic && whole_steps == tried_steps) continue;
    tried_atomic = whole_atomic;
    tried_steps = whole_steps;
    const BatchChoice one = evaluate(nodes, replicas, whole_atomic, whole_steps);
    if (one.goodput > best.goodput) best = one;
  }
  const double cut = std::floor(limits.max_batch_size / r / static_cast<double>(best.accum_steps + 1) + kSmall);
  if (best.goodput > 0 && static_cast<double>(best.atomic_bsz) > cut && cut >= static_cast<double>(limits.local_min)) {
    best.atomic_bsz = static_cast<int64_t>(cut);
  }
  return best;
}

}  // namespace rubato::policy

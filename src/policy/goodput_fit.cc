#include "policy/goodput_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace rubato::policy {
namespace {

constexpr int kParams = 7;
constexpr int kGamma = 6;
constexpr double kLeast = 1e-8;
constexpr double kGammaMax = 10;
constexpr double kGammaWeight = 1e-3, kRatioWeight = 1e-2;
constexpr int kStepsMax = 80;
constexpr double kRmseFloor = 1e-9;
constexpr double kOutlierFactor = 3;   // times the median error
constexpr double kOutlierLeast = 0.3;  // in logarithms: 1.35 times too fast or slow
constexpr size_t kOutlierPoints = 6;   // with fewer, nobody can tell which one is off

using Vector = std::array<double, kParams>;
using Matrix = std::array<Vector, kParams>;

// The parameters as they are searched: logarithms of the six times, and γ. In logarithms a millisecond is as easy to
// find as a minute.
PerfParams params_of(const Vector& x) {
  return {std::exp(x[0]), std::exp(x[1]), std::exp(x[2]), std::exp(x[3]), std::exp(x[4]), std::exp(x[5]), x[kGamma]};
}

double rmse_of(double sum, double count) { return std::max(std::sqrt(sum / count), kRmseFloor); }

// Levenberg-Marquardt on a sum of norms: each norm is majorised by a square at the present point.
class Search {
 public:
  explicit Search(std::span<const StepPoint> points) : points_(points), weights_(points.size(), 1.0) {
    for (const StepPoint& point : points) {
      log_grad_.push_back(std::log(point.grad_time));
      log_step_.push_back(std::log(point.step_time));
    }
    begin();
  }

  PerfParams run() {
    descend();
    if (points_.size() >= kOutlierPoints && weigh_outliers()) descend();
    return params_of(x_);
  }

 private:
  void begin() {
    for (int i = 0; i < 6; ++i) x_[i] = std::log(i % 2 == 0 ? 0.1 : 0.01);
    x_[kGamma] = 1.001;
    free_.fill(true);
    std::set<double> atomic;
    bool over_nodes = false, within_node = false, many = false;
    double grad = 0;
    for (const StepPoint& point : points_) {
      atomic.insert(point.atomic_bsz);
      over_nodes |= point.nodes > 1;
      within_node |= point.nodes == 1 && point.replicas > 1;
      many |= point.replicas > 2;
      grad += point.grad_time;
    }
    if (atomic.size() == 1) fix(0, grad / static_cast<double>(points_.size()) / 2);
    if (!over_nodes) fix(2, kLeast), fix(3, kLeast);
    if (!within_node) fix(4, kLeast), fix(5, kLeast);
    if (!many) fix(3, kLeast), fix(5, kLeast);
  }

  void fix(int which, double value) {
    free_[which] = false;
    x_[which] = std::log(std::max(value, kLeast));
  }

  // The objective at x; with `gradient`, also its first and (majorised) second derivatives.
  double evaluate(const Vector& x, Vector* gradient, Matrix* hessian) {
    const PerfParams p = params_of(x);
    const size_t count = points_.size();
    double sum_grad = 0, sum_step = 0, weight = 0;
    Matrix of_grad{}, of_step{};
    Vector g_grad{}, g_step{};
    for (size_t i = 0; i < count; ++i) {
      const StepPoint& point = points_[i];
      const double grad = p.alpha_c + p.beta_c * point.atomic_bsz;
      const double log_grad = std::log(grad);
      const bool over = point.nodes > 1, within = !over && point.replicas > 1;
      const double more = std::max(point.replicas - 2.0, kLeast);
      const double alpha = over ? p.alpha_n : within ? p.alpha_r : kLeast;
      const double beta = (over ? p.beta_n : within ? p.beta_r : kLeast) * more;
      const double log_net = std::log(alpha + beta);
      const double large = std::max(log_grad, log_net);
      const double a = std::exp(p.gamma * (log_grad - large)), b = std::exp(p.gamma * (log_net - large));
      const double log_sum = std::log(a + b);
      const double log_opt = large + log_sum / p.gamma;
      const double error_grad = log_grad - log_grad_[i], error_step = log_opt - log_step_[i];
      const double w = weights_[i];
      weight += w;
      sum_grad += w * error_grad * error_grad;
      sum_step += w * error_step * error_step;
      errors_grad_[i] = error_grad;
      errors_step_[i] = error_step;
      if (gradient == nullptr) continue;
      const double share = a / (a + b);  // of the compute in T_opt
      Vector j_grad{}, j_step{};
      j_grad[0] = p.alpha_c / grad;
      j_grad[1] = 1 - j_grad[0];
      j_step[0] = share * j_grad[0];
      j_step[1] = share * j_grad[1];
      if (over || within) {
        const int at = over ? 2 : 4;
        j_step[at] = (1 - share) * alpha / (alpha + beta);
        j_step[at + 1] = (1 - share) * beta / (alpha + beta);
      }
      j_step[kGamma] = (share * (log_grad - large) + (1 - share) * (log_net - large) - log_sum / p.gamma) / p.gamma;
      add(j_grad, w * error_grad, w, 2, g_grad, of_grad);
      add(j_step, w * error_step, w, kParams, g_step, of_step);
    }
    const double rmse_grad = rmse_of(sum_grad, weight), rmse_step = rmse_of(sum_step, weight);
    if (gradient != nullptr) {
      for (int i = 0; i < kParams; ++i) {
        (*gradient)[i] = g_grad[i] / (weight * rmse_grad) + g_step[i] / (weight * rmse_step);
        for (int k = 0; k < kParams; ++k)
          (*hessian)[i][k] = of_grad[i][k] / (weight * rmse_grad) + of_step[i][k] / (weight * rmse_step);
      }
    }
    return rmse_grad + rmse_step + priors(p, gradient, hessian);
  }

  static void add(const Vector& j, double error, double weight, int size, Vector& gradient, Matrix& hessian) {
    for (int i = 0; i < size; ++i) {
      gradient[i] += j[i] * error;
      for (int k = 0; k < size; ++k) hessian[i][k] += weight * j[i] * j[k];
    }
  }

  static double priors(const PerfParams& p, Vector* gradient, Matrix* hessian) {
    const double over = p.beta_n / p.alpha_n, within = p.beta_r / p.alpha_r, gamma = p.gamma - 1;
    if (gradient != nullptr) {
      (*gradient)[kGamma] += 2 * kGammaWeight * gamma;
      (*hessian)[kGamma][kGamma] += 2 * kGammaWeight;
      for (const auto& [at, ratio] : {std::pair(2, over), std::pair(4, within)}) {
        const double slope = 2 * kRatioWeight * ratio * ratio;
        (*gradient)[at] -= slope;
        (*gradient)[at + 1] += slope;
        (*hessian)[at][at] += 2 * slope;
        (*hessian)[at + 1][at + 1] += 2 * slope;
        (*hessian)[at][at + 1] -= 2 * slope;
        (*hessian)[at + 1][at] -= 2 * slope;
      }
    }
    return kGammaWeight * gamma * gamma + kRatioWeight * (over * over + within * within);
  }

  static double least_of(int i) { return i == kGamma ? 1 : std::log(kLeast); }
  static double most_of(int i) { return i == kGamma ? kGammaMax : 30; }

  void descend() {
    errors_grad_.resize(points_.size());
    errors_step_.resize(points_.size());
    Vector gradient{};
    Matrix hessian{};
    double damping = 1e-2;
    double value = evaluate(x_, &gradient, &hessian);
    int idle = 0;
    for (int step = 0; step < kStepsMax && idle < 3 && damping < 1e12; ++step) {
      const Vector next = try_step(gradient, hessian, damping);
      const double there = evaluate(next, nullptr, nullptr);
      if (!(there < value)) {
        damping *= 4;
        continue;
      }
      idle = value - there < 1e-8 * std::max(value, 1e-6) ? idle + 1 : 0;
      x_ = next;
      damping = std::max(damping / 5, 1e-9);
      value = evaluate(x_, &gradient, &hessian);
    }
    evaluate(x_, nullptr, nullptr);  // the errors there
  }

  Vector try_step(const Vector& gradient, const Matrix& hessian, double damping) const {
    std::array<int, kParams> used{};
    int size = 0;
    for (int i = 0; i < kParams; ++i) {
      const bool held = (x_[i] <= least_of(i) && gradient[i] > 0) || (x_[i] >= most_of(i) && gradient[i] < 0);
      if (free_[i] && !held) used[static_cast<size_t>(size++)] = i;
    }
    // Cholesky of the damped matrix.
    Matrix l{};
    Vector d{};
    for (int i = 0; i < size; ++i) {
      for (int k = 0; k <= i; ++k) {
        double sum = hessian[used[i]][used[k]];
        if (i == k) sum += damping * sum + 1e-9 * (1 + damping);
        for (int m = 0; m < k; ++m) sum -= l[i][m] * l[k][m];
        l[i][k] = i == k ? std::sqrt(std::max(sum, 1e-18)) : sum / l[k][k];
      }
    }
    for (int i = 0; i < size; ++i) {
      double sum = -gradient[used[i]];
      for (int m = 0; m < i; ++m) sum -= l[i][m] * d[m];
      d[i] = sum / l[i][i];
    }
    for (int i = size - 1; i >= 0; --i) {
      for (int m = i + 1; m < size; ++m) d[i] -= l[m][i] * d[m];
      d[i] /= l[i][i];
    }
    Vector next = x_;
    for (int i = 0; i < size; ++i) {
      const int at = used[i];
      const double reach = at == kGamma ? 2 : 3;  // further, the square is no likeness
      next[at] = std::clamp(x_[at] + std::clamp(d[i], -reach, reach), least_of(at), most_of(at));
    }
    return next;
  }

  // Huber's weights for points far off. False: there is none.
  bool weigh_outliers() {
    std::vector<double> errors;
    for (size_t i = 0; i < points_.size(); ++i)
      errors.push_back(std::max(std::abs(errors_grad_[i]), std::abs(errors_step_[i])));
    std::vector<double> sorted = errors;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<long>(sorted.size() / 2), sorted.end());
    const double limit = std::max(kOutlierLeast, kOutlierFactor * sorted[sorted.size() / 2]);
    bool any = false;
    for (size_t i = 0; i < errors.size(); ++i) {
      if (errors[i] <= limit) continue;
      weights_[i] = (limit / errors[i]) * (limit / errors[i]) * 0.1;
      any = true;
    }
    return any;
  }

  std::span<const StepPoint> points_;
  std::vector<double> weights_, log_grad_, log_step_, errors_grad_, errors_step_;
  Vector x_{};
  std::array<bool, kParams> free_{};
};

bool usable(const StepPoint& point) {
  const auto good = [](double value) { return value > 0 && std::isfinite(value); };
  return point.nodes >= 1 && point.replicas >= point.nodes && good(point.atomic_bsz) && good(point.grad_time) &&
         good(point.step_time);
}

}  // namespace

PerfParams fit_perf(std::span<const StepPoint> points) {
  std::vector<StepPoint> good;
  for (StepPoint point : points) {
    if (!usable(point)) continue;
    point.grad_time = std::max(point.grad_time, kLeast);
    point.step_time = std::max(point.step_time, kLeast);
    good.push_back(point);
  }
  if (good.empty()) return {};
  PerfParams perf = Search(good).run();
  if (std::none_of(good.begin(), good.end(), [](const StepPoint& point) { return point.nodes > 1; })) {
    perf.alpha_n = std::max(perf.alpha_n, perf.alpha_r * 1.1);
    perf.beta_n = std::max(perf.beta_n, perf.beta_r * 1.1);
  }
  return perf;
}

bool fitted(const PerfParams& perf) {
  for (const double value : {perf.alpha_c, perf.beta_c, perf.alpha_n, perf.beta_n, perf.alpha_r, perf.beta_r}) {
    if (!(value >= 0) || !std::isfinite(value)) return false;
  }
  return perf.alpha_c + perf.beta_c > 0 && perf.gamma >= 1 && std::isfinite(perf.gamma);
}

std::map<std::string, PerfParams> fit_perf_by_kind(const std::map<std::string, std::vector<StepPoint>>& points) {
  std::map<std::string, PerfParams> out;
  for (const auto& [kind, list] : points) {
    const PerfParams perf = fit_perf(list);
    if (fitted(perf)) out[kind] = perf;
  }
  return out;
}

double fit_objective(const PerfParams& perf, std::span<const StepPoint> points) {
  double sum_grad = 0, sum_step = 0;
  for (const StepPoint& point : points) {
    const StepTimes times = step_times(perf, point.nodes, point.replicas, point.atomic_bsz);
    const double grad = std::log(times.grad / point.grad_time), step = std::log(times.opt / point.step_time);
    sum_grad += grad * grad;
    sum_step += step * step;
  }
  const double count = static_cast<double>(points.size());
  const double over = perf.beta_n / perf.alpha_n, within = perf.beta_r / perf.alpha_r, gamma = perf.gamma - 1;
  return std::sqrt(sum_grad / count) + std::sqrt(sum_step / count) + kGammaWeight * gamma * gamma +
         kRatioWeight * (over * over + within * within);
}

}  // namespace rubato::policy

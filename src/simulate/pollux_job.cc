#include "simulate/pollux_job.h"

#include <algorithm>
#include <cmath>

namespace rubato::simulate {
namespace {

std::vector<int> placement_of(const std::vector<int>& seats) {
  std::vector<int> out;
  for (size_t i = 0; i < seats.size(); ++i) {
    if (i == 0 || seats[i] != seats[i - 1]) out.push_back(0);
    ++out.back();
  }
  return out;
}

}  // namespace

int RunningJob::most_profiled_replicas() const {
  int most = 0;
  for (const auto& [key, point] : profile_) most = std::max(most, point.replicas);
  return most;
}

void RunningJob::give(std::vector<int> seats, int delay_s) {
  if (seats == seats_) return;
  seats_ = std::move(seats);
  placement_ = placement_of(seats_);
  replicas_ = static_cast<int>(seats_.size());
  if (seats_.empty()) return;
  choose_batch();
  delay_s_ = delay_s;
  ++starts_;
}

void RunningJob::choose_batch() {
  if (seats_.empty()) return;
  const policy::BatchLimits& limits = application_->limits();
  const double r = replicas_;
  if (!fixed_batch_ && perf_) {
    const policy::GoodputModel model{.perf = *perf_, .grad = grad_, .limits = limits};
    const policy::BatchChoice best = model.best_batch(static_cast<int>(placement_.size()), replicas_);
    if (best.goodput > 0) {
      atomic_bsz_ = best.atomic_bsz;
      accum_steps_ = best.accum_steps;
      return;
    }
  }
  const double batch =
      fixed_batch_.value_or(std::max(limits.init_batch_size, static_cast<double>(limits.local_min) * r));
  const double local = std::ceil(batch / r - 1e-8);
  double steps = std::ceil(local / static_cast<double>(limits.local_max) - 1e-8) - 1;
  if (replicas_ == 1 && batch > limits.init_batch_size) steps = std::max(steps, 1.0);
  steps = std::max(steps, 0.0);
  const double atomic = std::ceil(local / (steps + 1) - 1e-8);
  atomic_bsz_ = static_cast<int64_t>(std::min(atomic, std::floor(limits.max_batch_size / r / (steps + 1))));
  atomic_bsz_ = std::max<int64_t>(atomic_bsz_, 1);
  accum_steps_ = static_cast<int64_t>(steps);
}

// What the job sees of its own speed and gradients, as the traces have it.
void RunningJob::measure() {
  const double batch = replicas_ * static_cast<double>(atomic_bsz_ * (accum_steps_ + 1));
  grad_ = application_->grad_stats(batch, epoch_);
  const int nodes = static_cast<int>(placement_.size());
  const auto [found, added] = profile_.try_emplace({nodes, replicas_, atomic_bsz_});
  if (!added) return;
  const TraceTimes times = application_->times(placement_, static_cast<double>(atomic_bsz_));
  found->second = {.nodes = nodes,
                   .replicas = replicas_,
                   .atomic_bsz = static_cast<double>(atomic_bsz_),
                   .grad_time = times.step - times.sync,
                   .step_time = times.step};
  std::vector<policy::StepPoint> points;
  for (const auto& [key, point] : profile_) points.push_back(point);
  const policy::PerfParams perf = policy::fit_perf(points);
  if (policy::fitted(perf)) perf_ = perf;
}

void RunningJob::advance(double now_s, int seconds) {
  if (seats_.empty()) return;
  const int waited = std::min(delay_s_, seconds);
  delay_s_ -= waited;
  now_s += waited;
  double left = seconds - waited;
  attained_service_s_ += waited * replicas_;
  while (left > 0 && !done()) {
    const double batch = replicas_ * static_cast<double>(atomic_bsz_ * (accum_steps_ + 1));
    const double scale = batch / application_->limits().init_batch_size;
    measure();
    const auto point = profile_.at({static_cast<int>(placement_.size()), replicas_, atomic_bsz_});
    const double step = point.step_time + static_cast<double>(accum_steps_) * point.grad_time;
    const double gain = (grad_.var + grad_.sqr) / (grad_.var / scale + grad_.sqr);
    const double speed = gain / step;
    const double next = application_->progress_after(epoch_ + 1);
    double spent = left;
    if (progress_ + speed * left < next) {
      progress_ += speed * left;
    } else {
      spent = std::min(std::nearbyint((next - progress_) / speed), left);
      progress_ = next;
      if (++epoch_ == application_->epochs()) completed_s_ = now_s + spent;
    }
    now_s += spent;
    left -= spent;
    attained_service_s_ += spent * replicas_;
    if (!done() && left > 0) choose_batch();
  }
}

}  // namespace rubato::simulate

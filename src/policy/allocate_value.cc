// The sizes that a job may have, and what each is worth.
#include <algorithm>
#include <cmath>
#include <set>

#include "policy/allocate_work.h"
#include "policy/goodput_fit.h"

namespace rubato::policy {
namespace {

// All of docs/allocate.md, "The numbers": found by experiment in Pollux' simulator.
constexpr double kUnknownWork = 600;        // seconds of one replica, of a job that is not profiled yet
constexpr double kBlindExponent = -0.3;     // of the work done, where no end is declared
constexpr double kHorizonMax = 600;         // seconds over which a restart must pay
constexpr double kShrinkPerSecond = 0.005;  // of restart cost: shrinking counts less by 15 % at 30 s
constexpr double kShrinkLeast = 0.03, kShrinkMost = 0.15;
constexpr double kOffset = 0.001;  // under the square root, and in the power mean
constexpr double kPriorityBase = 4, kPriorityMost = 12;
constexpr double kDeadlineBoost = 8;
constexpr double kAssumedExponent = 0.75;  // of the speedup of a job that reports no model
constexpr int kWholeNodesOneByOne = 16;    // sizes above grow by kLadderGrowth
constexpr double kLadderGrowth = 1.15;
constexpr int kPastPeak = 2;  // sizes that are tried after goodput has stopped to grow
constexpr int64_t kReplicasMax = 65536;

bool needs_nothing(const Amounts& need) {
  return std::all_of(need.begin(), need.end(), [](int64_t amount) { return amount == 0; });
}

// Replicas that need nothing: one a node, or there would be no end of them.
KindShape shape_of(const std::vector<size_t>& nodes, const SeatRoom& room, const Amounts& need) {
  KindShape shape;
  const int most = needs_nothing(need) ? 1 : static_cast<int>(kReplicasMax);
  for (const size_t node : nodes) {
    const int fits = room.fits(node, need, most);
    if (fits > 0) shape.caps.push_back(fits);
  }
  std::sort(shape.caps.rbegin(), shape.caps.rend());
  for (const int cap : shape.caps) shape.sums.push_back(shape.fit += cap);
  return shape;
}

struct SizeBounds {
  int64_t least = 1, most = 1, step = 1;

  bool allow(int64_t size) const { return size >= least && size <= most && size % step == 0; }
};

SizeBounds bounds_of(const AllocateJob& job, int64_t fit) {
  SizeBounds bounds;
  bounds.step = std::clamp<int64_t>(job.step, 1, kReplicasMax);
  const int64_t least = std::clamp<int64_t>(job.min_replicas, 1, kReplicasMax);
  bounds.least = (least + bounds.step - 1) / bounds.step * bounds.step;
  bounds.most = std::min({job.max_replicas, fit, kReplicasMax}) / bounds.step * bounds.step;
  return bounds;
}

// 1, 2, 4, ..., one node, two nodes, ...; besides them the least, the most and the present size.
std::set<int64_t> ladder(const KindShape& shape, const SizeBounds& bounds, int64_t current) {
  std::set<int64_t> sizes{bounds.least, bounds.most};
  const auto add = [&](int64_t size) {
    size = size / bounds.step * bounds.step;
    if (bounds.allow(size)) sizes.insert(size);
  };
  for (int64_t size = 1; size < shape.caps.front(); size *= 2) add(size);
  double next = 0;
  for (size_t i = 0; i < shape.sums.size() && shape.sums[i] <= bounds.most; ++i) {
    if (i >= kWholeNodesOneByOne && static_cast<double>(i) < next) continue;
    add(shape.sums[i]);
    next = static_cast<double>(i) * kLadderGrowth;
  }
  if (bounds.allow(current)) sizes.insert(current);
  return sizes;
}

// The sizes of a profiled job on one kind, with their goodput. Those past the peak are worth nothing more.
void measure_sizes(JobWork& work, int kind, const KindShape& shape, const GoodputModel& model) {
  const SizeBounds bounds = bounds_of(*work.job, shape.fit);
  if (bounds.least > bounds.most) return;
  const int64_t current = kind == work.current_kind ? work.current : 0;
  double most = 0;
  int past = 0;
  for (const int64_t size : ladder(shape, bounds, current)) {
    if (past >= kPastPeak && size != current) continue;
    const int replicas = static_cast<int>(size);
    const double goodput = model.best_batch(shape.nodes_for(size), replicas).goodput;
    past = goodput > most ? 0 : past + 1;
    most = std::max(most, goodput);
    if (goodput > 0)
      work.options.push_back(
          {.kind = kind, .replicas = replicas, .cost = shape.unit_cost * replicas, .speedup = goodput});
  }
}

// Without a model: the least, until it has run for so long that a model will hardly come.
void assume_sizes(JobWork& work, int kind, const KindShape& shape) {
  const SizeBounds bounds = bounds_of(*work.job, shape.fit);
  if (bounds.least > bounds.most) return;
  const int64_t current = kind == work.current_kind ? work.current : 0;
  const bool silent = work.job->attained_service_s > kUnknownWork;
  std::set<int64_t> sizes{bounds.least};
  if (silent) sizes = ladder(shape, bounds, current);
  if (bounds.allow(current)) sizes.insert(current);
  for (const int64_t size : sizes) {
    const int replicas = static_cast<int>(size);
    work.options.push_back({.kind = kind,
                            .replicas = replicas,
                            .cost = shape.unit_cost * replicas,
                            .speedup = std::pow(static_cast<double>(size), kAssumedExponent)});
  }
}

double base_goodput_of(const JobWork& work, int reference) {
  const SizeOption* best = nullptr;
  for (const SizeOption& option : work.options) {
    const bool nearer = best == nullptr || (option.kind == reference && best->kind != reference) ||
                        (option.kind == best->kind && option.replicas < best->replicas);
    if (nearer) best = &option;
  }
  return best == nullptr ? 0 : best->speedup / best->replicas;
}

void measure_job(Allocating& all, JobWork& work, int reference) {
  const std::vector<KindShape>& shapes = all.shapes.at(work.need);
  for (size_t kind = 0; kind < all.kinds.size(); ++kind) {
    if (shapes[kind].fit == 0) continue;
    if (const auto model = model_on(*work.job, all.kinds[kind]))
      measure_sizes(work, static_cast<int>(kind), shapes[kind], *model);
  }
  work.base_goodput = base_goodput_of(work, reference);
  work.profiled = work.base_goodput > 0;
  if (work.profiled) {
    for (SizeOption& option : work.options) option.speedup /= work.base_goodput;
  } else {
    for (size_t kind = 0; kind < all.kinds.size(); ++kind) {
      if (shapes[kind].fit > 0) assume_sizes(work, static_cast<int>(kind), shapes[kind]);
    }
  }
}

void find_work(JobWork& work) {
  const AllocateJob& job = *work.job;
  work.declared = job.total_iters.has_value();
  work.work_done_s = job.attained_service_s;
  work.work_left_s = kUnknownWork;
  if (!work.profiled) return;
  const double per_iter = job.model.limits.init_batch_size / work.base_goodput;
  if (job.done_iters) work.work_done_s = *job.done_iters * per_iter;
  // Without a declared end: about as much again as was done.
  work.work_left_s = work.declared ? std::max(*job.total_iters - job.done_iters.value_or(0), 0.0) * per_iter
                                   : work.work_done_s + kUnknownWork;
}

double fair_speedup(const Allocating& all, const JobWork& work, size_t competing) {
  double capacity = 0;
  for (const double units : all.capacity) capacity += units;
  const double share = capacity / static_cast<double>(std::max<size_t>(competing, 1));
  double best = 0;
  for (const SizeOption& option : work.options) {
    if (option.cost <= share + 1e-9 || best == 0) best = std::max(best, option.speedup);
  }
  return best;
}

// What deadlines, the bound on slowdown and the user's own numbers make of a weight.
double adjusted_weight(const Allocating& all, const JobWork& work, double weight, double heaviest, size_t competing) {
  const AllocateJob& job = *work.job;
  double best = 0;
  for (const SizeOption& option : work.options) best = std::max(best, option.speedup);
  if (job.deadline_s && best > 0) {
    const double left = *job.deadline_s - all.input.now_s;
    // A job that is late already is as urgent as one that will just be late.
    const double urgency = left > 0 ? std::min(work.work_left_s / left / best, 1.0) : 1.0;
    weight *= 1 + kDeadlineBoost * urgency * urgency;
  }
  if (all.options.max_slowdown > 0) {
    const double fair = fair_speedup(all, work, competing);
    const double alone = (work.work_done_s + work.work_left_s) / std::max(fair, 1e-9);
    const double now = job.age_s + work.work_left_s / std::max(fair, 1e-9);
    if (fair > 0 && now > all.options.max_slowdown * alone) weight = std::max(weight, 2 * heaviest);
  }
  const double priority = std::clamp(job.priority, -kPriorityMost, kPriorityMost);
  return weight * job.weight * std::pow(kPriorityBase, priority);
}

// How much of a speedup is left when the job has to change its size for it.
double change_factor(const JobWork& work, const SizeOption& option) {
  if (option.kind == work.current_kind && option.replicas == work.current) return 1;
  const double cost = work.job->restart_cost_s;
  const double horizon = std::max(std::min(kHorizonMax, work.work_left_s / option.speedup), cost + 1);
  double factor = (horizon - cost) / horizon;
  if (option.replicas < work.current) factor *= 1 - std::clamp(kShrinkPerSecond * cost, kShrinkLeast, kShrinkMost);
  return factor;
}

void value_adaptive(JobWork& work) {
  for (SizeOption& option : work.options) {
    const double seen = option.speedup * change_factor(work, option);
    option.value = work.weight * 2 * (std::sqrt(seen + kOffset) - std::sqrt(kOffset));
  }
}

// Pollux' own: the inverse of speedups over the fair share, so that the slowest job counts most.
void value_fair(const Allocating& all, JobWork& work, size_t competing) {
  const AllocateJob& job = *work.job;
  const double fair = fair_speedup(all, work, competing);
  if (fair <= 0) return;
  double fit = 0;
  for (const KindShape& shape : all.shapes.at(work.need)) fit += static_cast<double>(shape.fit);
  const double scale = static_cast<double>(all.input.nodes.size()) / std::max(fit, 1.0) / fair;
  const double cost = job.restart_cost_s;
  const double restarted =
      std::max((job.age_s - static_cast<double>(job.restarts) * cost) / (job.age_s + cost + 1e-9), 0.01);
  for (SizeOption& option : work.options) {
    const bool same = option.kind == work.current_kind && option.replicas == work.current;
    const double seen = option.speedup * scale * (same ? 1 : restarted);
    option.value = work.weight * (1 / kOffset - 1 / (seen + kOffset));
  }
}

}  // namespace

int KindShape::nodes_for(int64_t replicas) const {
  const auto found = std::lower_bound(sums.begin(), sums.end(), replicas);
  return static_cast<int>(found - sums.begin()) + 1;
}

std::optional<GoodputModel> model_on(const AllocateJob& job, const std::string& kind) {
  const auto found = job.model.perf_by_kind.find(kind);
  const PerfParams* perf = found != job.model.perf_by_kind.end() ? &found->second
                           : job.model.perf                      ? &*job.model.perf
                                                                 : nullptr;
  if (perf == nullptr || !fitted(*perf)) return std::nullopt;
  return GoodputModel{.perf = *perf, .grad = job.model.grad, .limits = job.model.limits};
}

void make_options(Allocating& all, const SeatRoom& room) {
  all.capacity.assign(all.kinds.size(), 0);
  for (const JobWork& work : all.jobs) {
    if (work.pinned || all.shapes.contains(work.need)) continue;
    std::vector<KindShape>& shapes = all.shapes[work.need];
    for (size_t kind = 0; kind < all.kinds.size(); ++kind) {
      shapes.push_back(shape_of(all.nodes_of[kind], room, work.need));
      if (!needs_nothing(work.need))
        all.capacity[kind] = std::max(all.capacity[kind], static_cast<double>(shapes.back().fit));
    }
  }
  for (auto& [need, shapes] : all.shapes) {
    for (size_t kind = 0; kind < shapes.size(); ++kind) {
      if (shapes[kind].fit > 0 && !needs_nothing(need))
        shapes[kind].unit_cost = all.capacity[kind] / static_cast<double>(shapes[kind].fit);
    }
  }
  const auto largest = std::max_element(all.capacity.begin(), all.capacity.end());
  const int reference = static_cast<int>(largest - all.capacity.begin());
  for (JobWork& work : all.jobs) {
    if (work.pinned) continue;
    measure_job(all, work, reference);
    find_work(work);
  }
}

void weigh_jobs(Allocating& all) {
  std::vector<double> left;
  bool any_declared = false;
  for (const JobWork& work : all.jobs) {
    if (work.pinned) continue;
    left.push_back(work.work_left_s);
    any_declared |= work.declared;
  }
  std::sort(left.begin(), left.end());
  const bool fair = all.options.policy == AllocatePolicy::kFair;
  double heaviest = 0;
  for (JobWork& work : all.jobs) {
    if (work.pinned) continue;
    const auto less = std::lower_bound(left.begin(), left.end(), work.work_left_s) - left.begin();
    work.weight = fair           ? 1
                  : any_declared ? static_cast<double>(left.size() - static_cast<size_t>(less))
                                 : std::pow(work.work_done_s + kUnknownWork, kBlindExponent);
    heaviest = std::max(heaviest, work.weight);
  }
  for (JobWork& work : all.jobs) {
    if (!work.pinned) work.weight = adjusted_weight(all, work, work.weight, heaviest, left.size());
  }
}

void value_options(Allocating& all) {
  size_t competing = 0;
  for (const JobWork& work : all.jobs) competing += work.pinned ? 0 : 1;
  for (JobWork& work : all.jobs) {
    if (all.options.policy == AllocatePolicy::kFair) {
      value_fair(all, work, competing);
    } else {
      value_adaptive(work);
    }
  }
}

}  // namespace rubato::policy

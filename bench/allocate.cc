// bench_allocate JOBSxGPUS [REPEAT]: one allocation of adaptive jobs (rubato allocate) on a state made here: nodes of 4
// GPUs, jobs with models of six sorts, half of them running. Prints a line of JSON: CPU time of a decision and of the
// fit of 40 points.
#include "policy/allocate.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/random.h"
#include "policy/goodput_fit.h"

namespace rubato::policy {
namespace {

double cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// Parameters of the order of Pollux' six applications.
JobModel model_of(Random& random) {
  const double size = std::pow(10, random.unit() * 2);
  const double compute = 0.02 * size, network = compute * (0.5 + random.unit() * 2);
  JobModel model;
  model.perf = PerfParams{.alpha_c = compute / 2,
                          .beta_c = compute / 128,
                          .alpha_n = network,
                          .beta_n = network / 50,
                          .alpha_r = network / 5,
                          .beta_r = network / 250,
                          .gamma = 1 + 3 * random.unit()};
  model.grad = {.sqr = 1, .var = std::pow(10, random.unit() * 3)};
  model.limits = {
      .init_batch_size = 128, .max_batch_size = 4096, .local_min = 16, .local_max = 512, .accumulation = true};
  return model;
}

AllocateInput made_state(int jobs, int gpus) {
  Random random(1);
  AllocateInput input;
  for (int i = 0; i < (gpus + 3) / 4; ++i) {
    AllocateNode node{.id = fmt::format("node-{}", i)};
    node.resources.set(kGpu, 4000);
    input.nodes.push_back(std::move(node));
  }
  size_t next = 0;
  for (int i = 0; i < jobs; ++i) {
    AllocateJob job{.id = fmt::format("job-{}", i)};
    job.resources.set(kGpu, 1000);
    job.max_replicas = 64;
    job.age_s = random.unit() * 1e5;
    job.done_iters = random.unit() * 1e5;
    job.total_iters = *job.done_iters + std::pow(10, 2 + random.unit() * 4);
    job.model = model_of(random);
    if (i % 2 == 0 && next < input.nodes.size()) {
      for (uint64_t k = 1 + random.below(4); k > 0; --k) job.allocation.push_back(input.nodes[next].id);
      ++next;
    }
    input.jobs.push_back(std::move(job));
  }
  return input;
}

template <class Work>
std::pair<double, double> measure(int repeat, const Work& work) {
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) {
    const double begin = cpu_ms();
    work();
    times.push_back(cpu_ms() - begin);
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

std::vector<StepPoint> forty_points() {
  Random random(2);
  const JobModel model = model_of(random);
  std::vector<StepPoint> points;
  for (int i = 0; i < 40; ++i) {
    StepPoint point;
    point.replicas = 1 << random.below(7);
    point.nodes = (point.replicas + 3) / 4;
    point.atomic_bsz = 16.0 * static_cast<double>(1 + random.below(32));
    const StepTimes times = step_times(*model.perf, point.nodes, point.replicas, point.atomic_bsz);
    point.grad_time = times.grad * (0.95 + 0.1 * random.unit());
    point.step_time = times.opt * (0.95 + 0.1 * random.unit());
    points.push_back(point);
  }
  return points;
}

}  // namespace
}  // namespace rubato::policy

int main(int argc, char** argv) {
  using namespace rubato::policy;
  int jobs = 0, gpus = 0;
  if (argc < 2 || std::sscanf(argv[1], "%dx%d", &jobs, &gpus) != 2) {
    std::fprintf(stderr, "usage: bench_allocate JOBSxGPUS [REPEAT]\n");
    return 2;
  }
  const int repeat = argc > 2 ? std::max(std::atoi(argv[2]), 1) : 11;
  const AllocateInput input = made_state(jobs, gpus);
  size_t given = 0;
  const auto [least, median] = measure(repeat, [&] {
    given = 0;
    for (const JobAllocation& one : allocate(input).jobs) given += one.nodes.size();
  });
  const std::vector<StepPoint> points = forty_points();
  const auto [fit_least, fit_median] = measure(101, [&] { fit_perf(points); });
  std::printf(
      "{\"jobs\": %d, \"gpus\": %d, \"given\": %zu, \"cpu_ms\": %.3f, \"cpu_ms_median\": %.3f, "
      "\"fit_ms\": %.3f, \"fit_ms_median\": %.3f}\n",
      jobs, gpus, given, least, median, fit_least, fit_median);
  return 0;
}

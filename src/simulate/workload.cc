#include "simulate/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numbers>

#include "core/error.h"
#include "core/text.h"

namespace rubato::simulate {
namespace {

double exponential(Random& random, double mean) { return -std::log(1 - random.unit()) * mean; }

double normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
  return radius * std::cos(2 * std::numbers::pi * random.unit());
}

double draw_work_s(const Work& work, Random& random) {
  const double a = to_seconds(work.a);
  switch (work.kind) {
    case Work::Kind::kFixed:
      return a;
    case Work::Kind::kUniform:
      return a + random.unit() * (to_seconds(work.b) - a);
    case Work::Kind::kExponential:
      return std::max(1.0, exponential(random, a));
    case Work::Kind::kLogNormal:
      return std::max(1.0, a * std::exp(work.sigma * normal(random)));
  }
  return a;
}

// Thinning: arrivals at the highest rate, each kept with the share that the time of day has of it.
void draw_poisson(const JobKind& kind, Duration until, Random& random, std::vector<Duration>& times) {
  const double highest = kind.per_hour * (1 + kind.swing) / 3600;
  double at = to_seconds(kind.from);
  while (highest > 0) {
    at += exponential(random, 1 / highest);
    if (at >= to_seconds(until)) return;
    constexpr double kDay = 86'400;
    const double share = (1 - kind.swing * std::cos(2 * std::numbers::pi * at / kDay)) / (1 + kind.swing);
    if (random.chance(share)) times.push_back(seconds(at));
  }
}

void draw_burst(const Burst& burst, Duration from, Duration until, Random& random, std::vector<Duration>& times) {
  std::vector<Duration> begins = burst.at;
  if (burst.every) {
    for (Duration at = from + *burst.every; at < until; at += *burst.every) begins.push_back(at);
  }
  for (const Duration begin : begins) {
    if (begin >= until) continue;
    for (int i = 0; i < burst.jobs; ++i) times.push_back(begin + seconds(random.unit() * to_seconds(burst.within)));
  }
}

void set_workers(JobSpec& spec, const WorkerSizes& sizes) {
  spec.workers_min = sizes.min;
  spec.workers_max = sizes.max;
  spec.workers_step = sizes.step;
}

AdaptiveJob draw_adaptive(const AdaptiveKind& kind, Random& random) {
  AdaptiveJob job;
  job.tells_every = kind.tells_every;
  job.error = kind.error;
  job.declares = kind.declares;
  job.profile.init_batch_size = kind.batch;
  job.profile.max_batch_size = kind.max_batch;
  job.profile.local_min = 1;
  job.profile.local_max = kind.local_max;
  job.profile.gradient = JobProfile::Gradient{1, kind.noise};
  const double step = to_seconds(kind.step), from = to_seconds(kind.exchange.from), to = to_seconds(kind.exchange.to);
  const double exchange = from + random.unit() * (to - from);
  constexpr double kStartOfStep = 0.2, kPerWorker = 0.1;  // of a step, of an exchange
  JobProfile::Perf perf;
  perf.alpha_c = kStartOfStep * step;
  perf.beta_c = (1 - kStartOfStep) * step / kind.batch;
  perf.alpha_n = perf.alpha_r = exchange;
  perf.beta_n = perf.beta_r = kPerWorker * exchange;
  job.profile.perf = perf;
  return job;
}

PlannedJob draw_job(const JobKind& kind, Duration at, Random& random) {
  PlannedJob job;
  job.at = at;
  job.spec.name = kind.name;
  job.spec.program = "train.py";
  const WorkerSizes& sizes = kind.workers[random.below(kind.workers.size())];
  set_workers(job.spec, sizes);
  job.spec.per_worker = kind.per_worker;
  job.spec.priority = kind.priorities[random.below(kind.priorities.size())];
  job.spec.owner = fmt::format("owner-{}", random.below(static_cast<uint64_t>(kind.owners)) + 1);
  job.spec.max_restarts = kind.max_restarts;
  job.spec.timeout = kind.timeout;
  job.work_s = draw_work_s(kind.work, random);
  job.efficiency = kind.efficiency;
  job.checkpoint_every = kind.checkpoint_every;
  job.crashes_per_worker_hour = kind.crashes_per_worker_hour;
  if (kind.stopped > 0 && random.chance(kind.stopped)) {
    const double from = to_seconds(kind.stopped_after.from), to = to_seconds(kind.stopped_after.to);
    job.stop_at = at + seconds(from + random.unit() * (to - from));
  }
  job.ends_within = kind.ends_within.from;
  if (kind.ends_within.to > kind.ends_within.from)
    job.ends_within += seconds(random.unit() * to_seconds(kind.ends_within.to - kind.ends_within.from));
  if (kind.adaptive) job.adaptive = draw_adaptive(*kind.adaptive, random);
  return job;
}

// One row of a trace, by column.
class Row {
 public:
  Row(const std::vector<std::string>& columns, std::string_view line, std::string where) : where_(std::move(where)) {
    const std::vector<std::string_view> cells = split(line, ',');
    if (cells.size() != columns.size())
      fail(fmt::format("the row has {} cells, the header {}", cells.size(), columns.size()));
    for (size_t i = 0; i < cells.size(); ++i) cells_[columns[i]] = trim(cells[i]);
  }

  std::string_view text(const std::string& column) const {
    const auto it = cells_.find(column);
    return it == cells_.end() ? std::string_view() : it->second;
  }
  bool has(const std::string& column) const { return !text(column).empty(); }
  double number(const std::string& column, double fallback, double least, double most) const {
    const std::string_view cell = text(column);
    if (cell.empty()) return fallback;
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size() || !(value >= least) || !(value <= most))
      fail(fmt::format("{} '{}' is not a number between {} and {}", column, cell, least, most));
    return value;
  }
  [[noreturn]] void fail(const std::string& what) const { throw Error(ErrorCode::kUsage, what, where_); }

 private:
  std::string where_;
  std::map<std::string, std::string_view> cells_;
};

PlannedJob job_of(const Row& row) {
  PlannedJob job;
  job.at = seconds(row.number("submit_s", 0, 0, 1e9));
  job.spec.name = row.has("name") ? std::string(row.text("name")) : "trace";
  if (!valid_job_name(job.spec.name)) row.fail(fmt::format("'{}' is not a name for a job", job.spec.name));
  job.spec.program = "train.py";
  try {
    if (row.has("workers")) set_workers(job.spec, parse_worker_sizes(row.text("workers")));
  } catch (const Error& error) {
    row.fail(error.message);
  }
  const double cpus = row.number("cpus", row.has("gpus") ? 0 : 1, 0, 1e6);
  job.spec.per_worker.set(kCpu, static_cast<int64_t>(std::llround(cpus * 1000)));
  job.spec.per_worker.set(kGpu, static_cast<int64_t>(std::llround(row.number("gpus", 0, 0, 1e6) * 1000)));
  if (row.has("memory")) job.spec.per_worker.set(kMemory, parse_bytes(row.text("memory")));
  job.spec.priority = static_cast<int>(row.number("priority", 0, -1000, 1000));
  job.spec.owner = row.has("owner") ? std::string(row.text("owner")) : "trace";
  job.spec.max_restarts = static_cast<int>(row.number("max_restarts", 3, 0, 1000));
  job.efficiency = row.number("efficiency", 1, 0.5, 1);
  if (row.has("work_s")) {
    job.work_s = row.number("work_s", 0, 0, 1e12);
  } else if (row.has("duration_s")) {
    job.work_s = row.number("duration_s", 0, 0, 1e9) * speed(job.efficiency, job.spec.workers_max);
  } else {
    row.fail("the row has neither work_s nor duration_s");
  }
  return job;
}

}  // namespace

double speed(double efficiency, int workers) {
  return std::pow(static_cast<double>(workers), 1 + std::log2(efficiency));
}

double speed(const PlannedJob& job, int workers) {
  return job.adaptive ? speed(*job.adaptive, workers) : speed(job.efficiency, workers);
}

std::vector<PlannedJob> draw_jobs(const Scenario& scenario, Random& random) {
  std::vector<PlannedJob> jobs;
  for (const JobKind& kind : scenario.workload) {
    Random own = random.fork();  // a change of one kind leaves the others as they were
    const Duration until = std::min(kind.until.value_or(scenario.duration), scenario.duration);
    std::vector<Duration> times;
    draw_poisson(kind, until, own, times);
    if (kind.every) {
      for (Duration at = kind.from; at < until; at += *kind.every) times.push_back(at);
    }
    for (const Burst& burst : kind.bursts) draw_burst(burst, kind.from, until, own, times);
    std::ranges::sort(times);
    if (kind.count && times.size() > static_cast<size_t>(*kind.count)) times.resize(static_cast<size_t>(*kind.count));
    for (const Duration at : times) jobs.push_back(draw_job(kind, at, own));
  }
  std::ranges::stable_sort(jobs, {}, &PlannedJob::at);
  return jobs;
}

std::vector<PlannedJob> read_trace(std::string_view text, const std::string& file) {
  static constexpr std::string_view kColumns[] = {"submit_s", "name",   "workers",    "cpus",
                                                  "gpus",     "memory", "work_s",     "duration_s",
                                                  "priority", "owner",  "efficiency", "max_restarts"};
  std::vector<std::string> columns;
  std::vector<PlannedJob> jobs;
  size_t number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    line = trim(line);
    if (line.empty() || line.front() == '#') continue;
    const std::string where = fmt::format("{}:{}", file, number);
    if (columns.empty()) {
      for (const std::string_view cell : split(line, ',')) {
        const std::string name(trim(cell));
        if (std::ranges::find(kColumns, name) == std::end(kColumns)) {
          const auto near = nearest(name, kColumns);
          throw Error(ErrorCode::kUsage, fmt::format("the column '{}' is unknown", name), where,
                      near ? fmt::format("did you mean {}?", *near) : "see docs/simulate.md");
        }
        columns.push_back(name);
      }
      if (std::ranges::find(columns, "submit_s") == columns.end())
        throw Error(ErrorCode::kUsage, "the column submit_s is missing", where);
      continue;
    }
    jobs.push_back(job_of(Row(columns, line, where)));
  }
  std::ranges::stable_sort(jobs, {}, &PlannedJob::at);
  return jobs;
}

}  // namespace rubato::simulate

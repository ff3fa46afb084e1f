#include "simulate/pollux_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "simulate/pollux_job.h"

namespace rubato::simulate {
namespace {

constexpr double kSecondsMax = 3e7;  // a year: a workload that has not ended by then never will

// The batch that a job keeps; nullopt: it takes the best one.
std::optional<double> fixed_batch(const PolluxScenario& scenario, const PolluxJob& job, const PolluxApplication& app) {
  const double most = app.limits().max_batch_size, least = app.limits().init_batch_size;
  switch (scenario.policy) {
    case PolluxPolicy::kAdaptive:
    case PolluxPolicy::kPollux:
      if (app.name() == "ncf") return most;  // as in Pollux' simulator
      return std::nullopt;
    case PolluxPolicy::kFifo:
    case PolluxPolicy::kTiresias:
    case PolluxPolicy::kOptimus:
      return std::clamp(job.batch_size, least, most);
  }
  return std::nullopt;
}

std::deque<RunningJob> jobs_of(const PolluxScenario& scenario) {
  std::deque<RunningJob> jobs;
  for (const PolluxJob& job : scenario.jobs) {
    const auto found = scenario.applications.find(job.application);
    if (found == scenario.applications.end())
      throw Error(ErrorCode::kUsage, fmt::format("there are no traces of the application '{}'", job.application), "",
                  "the folder of --pollux has one folder for each application");
    jobs.emplace_back(job, found->second, fixed_batch(scenario, job, found->second));
  }
  return jobs;
}

}  // namespace

std::string_view to_string(PolluxPolicy policy) {
  switch (policy) {
    case PolluxPolicy::kAdaptive:
      return "adaptive";
    case PolluxPolicy::kFifo:
      return "fifo";
    case PolluxPolicy::kTiresias:
      return "tiresias";
    case PolluxPolicy::kOptimus:
      return "optimus";
    case PolluxPolicy::kPollux:
      return "pollux";
  }
  return "";
}

PolluxOutcome run_pollux(const PolluxScenario& scenario) {
  const PolluxConventions& rules = scenario.conventions;
  std::deque<RunningJob> jobs = jobs_of(scenario);
  PolluxScheduler scheduler(scenario);
  PolluxOutcome out;
  const int tick = rules.event_s > 0 ? std::min(rules.event_s, rules.interval_s) : rules.interval_s;
  const int gpus = scenario.nodes * scenario.gpus_per_node;
  size_t arrived = 0;
  double used = 0;
  std::vector<RunningJob*> active;
  std::vector<double> jcts;
  for (int64_t now = 0; jcts.size() < jobs.size();) {
    for (RunningJob* job : active) {
      used += tick * static_cast<double>(job->seats().size());
      job->advance(static_cast<double>(now), tick);
    }
    now += tick;
    if (static_cast<double>(now) > kSecondsMax) throw Error(ErrorCode::kUsage, "the workload does not end");
    bool event = false;
    for (const RunningJob* job : active) {
      if (!job->done()) continue;
      event = true;
      jcts.push_back(job->completed_s() - job->job().submit_s);
      out.jct_by_job[job->job().name] = jcts.back();
      out.makespan_s = std::max(out.makespan_s, job->completed_s());
      out.restarts += job->restarts();
      used -= (static_cast<double>(now) - job->completed_s()) * static_cast<double>(job->seats().size());
    }
    std::erase_if(active, [](const RunningJob* job) { return job->done(); });
    for (; arrived < jobs.size() && jobs[arrived].job().submit_s <= static_cast<double>(now); ++arrived) {
      active.push_back(&jobs[arrived]);
      event = true;
    }
    const bool due = now % rules.interval_s == 0;
    if (due) {
      for (RunningJob* job : active) job->choose_batch();
    }
    if (active.empty() || (!due && !event)) continue;
    ++out.decisions;
    const PolluxSeats seats = scheduler.decide(static_cast<double>(now), active);
    for (size_t i = 0; i < active.size(); ++i) active[i]->give(seats[i], rules.restart_delay_s);
  }
  out.jct_s = distribution_of(jcts);
  if (out.makespan_s > 0) out.utilisation = used / (out.makespan_s * gpus);
  return out;
}

std::string pollux_text(const PolluxScenario& scenario, const PolluxOutcome& outcome) {
  const PolluxConventions& rules = scenario.conventions;
  std::string out = fmt::format("{} jobs on {} nodes × {} GPUs, policy {}{}\n", scenario.jobs.size(), scenario.nodes,
                                scenario.gpus_per_node, to_string(scenario.policy),
                                scenario.policy != PolluxPolicy::kAdaptive ? ""
                                : scenario.declared                        ? ", epochs declared"
                                                                           : ", epochs not declared");
  out +=
      fmt::format("decisions every {} s{}, a restart takes {} s\n", rules.interval_s,
                  rules.event_s > 0 ? fmt::format(" and {} s after events", rules.event_s) : "", rules.restart_delay_s);
  out += fmt::format("JCT          mean {:.0f} s, median {:.0f} s, p99 {:.0f} s\n", outcome.jct_s.mean,
                     outcome.jct_s.p50, outcome.jct_s.p99);
  out += fmt::format("makespan     {:.0f} s\n", outcome.makespan_s);
  out += fmt::format("restarts     {:.1f} a job\n", static_cast<double>(outcome.restarts) /
                                                        static_cast<double>(std::max<size_t>(scenario.jobs.size(), 1)));
  return out + fmt::format("utilisation  GPU {:.1f} %\n", 100 * outcome.utilisation);
}

nlohmann::ordered_json pollux_json(const PolluxScenario& scenario, const PolluxOutcome& outcome) {
  const PolluxConventions& rules = scenario.conventions;
  nlohmann::ordered_json jobs = nlohmann::ordered_json::object();
  for (const auto& [name, jct] : outcome.jct_by_job) jobs[name] = jct;
  return {{"policy", to_string(scenario.policy)},
          {"declared", scenario.declared},
          {"nodes", scenario.nodes},
          {"gpus_per_node", scenario.gpus_per_node},
          {"interval_s", rules.interval_s},
          {"restart_delay_s", rules.restart_delay_s},
          {"event_s", rules.event_s},
          {"jobs", scenario.jobs.size()},
          {"jct_mean_s", outcome.jct_s.mean},
          {"jct_median_s", outcome.jct_s.p50},
          {"jct_p99_s", outcome.jct_s.p99},
          {"makespan_s", outcome.makespan_s},
          {"restarts", outcome.restarts},
          {"utilisation", outcome.utilisation},
          {"decisions", outcome.decisions},
          {"jct_s", std::move(jobs)}};
}

}  // namespace rubato::simulate

// Pollux' simulator (OSDI'21) in C++: one workload under one policy, by its conventions or by ours.
//
// Jobs follow the traces of pollux_trace.h: a step takes as long as was measured for the placement and the atomic
// batch, an epoch ends when enough scale-invariant iterations are done. What a policy knows of a job is what the job
// has measured so far, fitted by policy::fit_perf.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "simulate/outcome.h"
#include "simulate/pollux_trace.h"

namespace rubato::simulate {

enum class PolluxPolicy { kAdaptive, kFifo, kTiresias, kOptimus, kPollux };
std::string_view to_string(PolluxPolicy policy);

struct PolluxConventions {
  int interval_s = 60;       // between decisions
  int restart_delay_s = 30;  // of each change of a job's seats
  int event_s = 0;           // decisions also so soon after a job came or ended; 0: no
};
inline constexpr PolluxConventions kOurConventions{.interval_s = 60, .restart_delay_s = 1, .event_s = 5};

struct PolluxScenario {
  std::vector<PolluxJob> jobs;
  std::map<std::string, PolluxApplication> applications;
  PolluxPolicy policy = PolluxPolicy::kAdaptive;
  PolluxConventions conventions;
  bool declared = true;  // jobs say how many epochs they run
  int nodes = 16, gpus_per_node = 4;
};

struct PolluxOutcome {
  Distribution jct_s;
  double makespan_s = 0;
  int64_t restarts = 0;
  double utilisation = 0;  // GPUs that were given to jobs, of all, until the last job ended
  int64_t decisions = 0;
  std::map<std::string, double> jct_by_job;
};

// Throws a usage Error when a job's application has no traces, or the workload cannot end.
PolluxOutcome run_pollux(const PolluxScenario& scenario);

std::string pollux_text(const PolluxScenario& scenario, const PolluxOutcome& outcome);
nlohmann::ordered_json pollux_json(const PolluxScenario& scenario, const PolluxOutcome& outcome);

}  // namespace rubato::simulate

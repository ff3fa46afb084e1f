// Outcome: all that a run of a scenario tells. A value; report.h makes text, JSON and HTML of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/time.h"

namespace rubato::simulate {

struct Distribution {
  size_t count = 0;
  double mean = 0, p50 = 0, p95 = 0, p99 = 0, max = 0;
};
Distribution distribution_of(std::vector<double> values);

struct Sample {
  Duration at{};
  std::map<std::string, int> nodes;  // up and draining, by "type", or "type spot"
  int coming = 0;                    // requested or starting
  int queued = 0;                    // jobs
  int running_jobs = 0;
  int workers = 0;          // in seats
  int waiting_workers = 0;  // of queued jobs, at their least
  double cost = 0;          // so far
  double cost_per_hour = 0;
  double cpus = 0, cpus_used = 0, gpus = 0, gpus_used = 0;
};

struct Happening {
  Duration at{};
  std::string kind;  // "fault", "node", "head", "job"
  std::string text;
};

struct Outcome {
  std::string scenario;
  uint64_t seed = 0;
  std::string fidelity;
  Duration duration{};  // of the scenario
  Duration simulated{};
  Duration last_end{};  // when the last job ended
  uint64_t events = 0;  // of the simulator
  uint64_t hash = 0;

  size_t submitted = 0, succeeded = 0, failed = 0, stopped = 0, unfinished = 0, infeasible = 0;
  Distribution wait_s, jct_s, boot_s;
  uint64_t starts = 0;    // of generations
  uint64_t restarts = 0;  // starts beyond a job's first
  uint64_t charged = 0;   // of them, those that used the job's budget
  double trained_s = 0, lost_s = 0;
  std::map<std::string, double> lost_by;  // seconds of lost_s, by what had happened
  double cpu_utilisation = 0, gpu_utilisation = 0;
  double node_hours = 0, cost = 0;
  bool priced = false;
  int nodes_most = 0;
  uint64_t launched = 0, removed = 0, reclaimed = 0, crashed = 0;
  uint64_t turns = 0, records = 0;
  std::map<std::string, uint64_t> decisions;  // records by type
  std::map<std::string, uint64_t> checks;     // how often each invariant was looked at
  std::map<std::string, uint64_t> marks;      // faults and transitions that were reached
  std::vector<std::string> broken;            // invariants, in words; empty: all held

  std::vector<Sample> samples;
  std::vector<Happening> happenings;
};

}  // namespace rubato::simulate

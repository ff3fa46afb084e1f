// Meter: what a run is measured by: waiting times, cost, utilisation, and samples of everything over time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cluster/state.h"
#include "simulate/cloud.h"
#include "simulate/outcome.h"
#include "simulate/workload.h"

namespace rubato::simulate {

class Meter {
 public:
  Meter(sim::Simulation& sim, const Cloud& cloud, Outcome& outcome) : sim_(sim), cloud_(cloud), outcome_(outcome) {}

  void submitted(const JobId& job, Duration at);  // by its client, whether or not a head is there to take it
  void record(const cluster::Record& record, const cluster::State& state);
  void sample(const cluster::State& state);
  void cloud_changed(const Instance& instance, std::string_view what);
  void happening(std::string kind, std::string text);
  void close(const cluster::State& state);

 private:
  struct Times {
    Duration submitted{};
    bool started = false, ended = false;
  };
  Duration now() const { return sim_.now() - Instant{}; }

  sim::Simulation& sim_;
  const Cloud& cloud_;
  Outcome& outcome_;
  std::map<JobId, Times> jobs_;
  std::map<rubato::NodeId, Duration> requested_;
  std::vector<double> waits_, jcts_, boots_;
  // Of resources and seconds, for utilisation.
  double cpu_have_ = 0, cpu_used_ = 0, gpu_have_ = 0, gpu_used_ = 0;
  Duration sampled_{};
};

}  // namespace rubato::simulate

// Simulation: everything a simulated run needs, tied together. Start here; see README.md for an example.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/machine.h"
#include "sim/network.h"
#include "sim/simulator.h"
#include "sim/store.h"
#include "sim/workers.h"

namespace rubato::sim {

struct SimulationOptions {
  uint64_t seed = 1;
  int machines = 0;
  // Each machine's monotonic clock begins somewhere else, so that comparing two machines' instants shows; its rate is
  // off by up to this (a quartz is within ±50 ppm).
  int64_t clock_rate_ppm_max = 50;
  Duration clock_start_max = 720h;
  Duration wall_offset_max = 50ms;
  int gpus = 0;
};

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options);
  explicit Simulation(uint64_t seed, int machines = 0);

  Simulator simulator;
  SimNetwork network;
  SimStore store;
  WorkerRegistry workers;

  // Machines are numbered from 1, as their network nodes are: node 7 is "node7", 10.0.0.7.
  SimMachine& machine(int number) { return *machines_.at(static_cast<size_t>(number - 1)); }
  int machines() const { return static_cast<int>(machines_.size()); }
  SimMachine& add_machine();
  SimMachine& add_machine(const MachineOptions& options);

  Instant now() const { return simulator.now(); }

 private:
  const SimulationOptions options_;
  Random random_;
  std::vector<std::unique_ptr<SimMachine>> machines_;  // last: programs go before what they use
};

}  // namespace rubato::sim

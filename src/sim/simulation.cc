#include "sim/simulation.h"

namespace rubato::sim {

namespace {

SimulationOptions with_machines(uint64_t seed, int machines) {
  SimulationOptions options;
  options.seed = seed;
  options.machines = machines;
  return options;
}

// Uniform in [-most, most].
int64_t either_way(Random& random, int64_t most) {
  return static_cast<int64_t>(random.below(2 * static_cast<uint64_t>(most) + 1)) - most;
}

}  // namespace

Simulation::Simulation(const SimulationOptions& options)
    : simulator(options.seed),
      network(simulator),
      store(network),
      workers(network),
      options_(options),
      random_(simulator.random().fork()) {
  for (int i = 0; i < options.machines; ++i) add_machine();
}

Simulation::Simulation(uint64_t seed, int machines) : Simulation(with_machines(seed, machines)) {}

SimMachine& Simulation::add_machine() {
  MachineOptions options;
  options.clock_start = Instant{} + 1s + Duration(either_way(random_, options_.clock_start_max.count() / 2)) +
                        options_.clock_start_max / 2;
  options.clock_rate_ppb = either_way(random_, options_.clock_rate_ppm_max * 1000);
  options.wall_offset = Duration(either_way(random_, options_.wall_offset_max.count()));
  options.gpus = options_.gpus;
  return add_machine(options);
}

SimMachine& Simulation::add_machine(const MachineOptions& options) {
  const std::string name = "node" + std::to_string(machines_.size() + 1);
  machines_.push_back(std::make_unique<SimMachine>(simulator, network, store, workers, name, options));
  return *machines_.back();
}

}  // namespace rubato::sim

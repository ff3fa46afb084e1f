#include "sim/machine.h"

namespace rubato::sim {

SimMachine::SimMachine(Simulator& simulator, SimNetwork& network, SimStore& store, WorkerRegistry& workers,
                       std::string name, const MachineOptions& options)
    : simulator_(simulator),
      network_(network),
      node_(network.add_node(std::move(name))),
      clock_(simulator, options.clock_start, options.clock_rate_ppb, options.wall_offset),
      kernel_(simulator, clock_),
      disk_(simulator, clock_),
      host_{simulator, network, store, workers, node_, clock_, disk_} {
  node_.kernel = &kernel_;
  facts_.hostname = node_.name;
  facts_.machine_id = "machine-" + node_.name;
  facts_.cpus = options.cpus;
  facts_.gpus = options.gpus;
}

// Connections that no program holds (not accepted yet) must not keep timers of this kernel.
SimMachine::~SimMachine() {
  node_.up = false;
  network_.lose_node(node_.id);
}

void SimMachine::note(std::string_view mark, uint64_t payload) {
  simulator_.mark(mark);
  simulator_.record(EventKind::kMachine, node_.id, payload);
}

SimProgram& SimMachine::start(std::string name, SimProgram::Main main) {
  CHECK(node_.up && !node_.frozen);
  MachineFacts facts = facts_;
  facts.pid = static_cast<int>(100 + programs_.size());
  programs_.push_back(std::make_unique<SimProgram>(host_, facts, std::move(name), std::move(main)));
  SimProgram& program = *programs_.back();
  program.start();
  return program;
}

void SimMachine::crash() {
  if (!node_.up) return;
  thaw();
  note("machine.crash", 1);
  node_.up = false;
  network_.lose_node(node_.id);
  for (const auto& program : programs_) program->destroy();
  network_.changed(node_.id);
}

void SimMachine::reboot() {
  crash();
  note("machine.reboot", 2);
  node_.up = true;
  clock_.restart(Instant{} + 1s);
  network_.changed(node_.id);
}

void SimMachine::freeze() {
  if (!node_.up || node_.frozen) return;
  note("machine.freeze", 3);
  node_.frozen = true;
  kernel_.hold();
  for (const auto& program : programs_) program->loop().hold();
  network_.changed(node_.id);
}

void SimMachine::thaw() {
  if (!node_.frozen) return;
  note("machine.thaw", 4);
  node_.frozen = false;
  // Connections and workers hear that the world is back before their overdue timers tell them that it is gone.
  network_.changed(node_.id);
  kernel_.release();
  for (const auto& program : programs_) program->loop().release(simulator_.random().chance(0.5));
}

void SimMachine::set_clock_rate(int64_t ppb) {
  note("machine.clock_rate", static_cast<uint64_t>(ppb));
  clock_.set_rate(ppb);
  kernel_.aim();
  for (const auto& program : programs_) program->loop().aim();
}

}  // namespace rubato::sim

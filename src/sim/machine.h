// SimMachine: one simulated machine: its clock, disk, kernel and programs, and what can happen to it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/program.h"

namespace rubato::sim {

struct MachineOptions {
  Instant clock_start{};       // of the monotonic clock
  int64_t clock_rate_ppb = 0;  // how much faster it runs than the simulation's time
  Duration wall_offset{};      // of the wall clock
  int cpus = 8;
  int gpus = 0;
};

// (1) up ──freeze──▶ (2) frozen ──thaw──▶ up
//     up or frozen ──crash──▶ (3) off ──reboot──▶ up, with its disk and without its programs
class SimMachine {
 public:
  SimMachine(Simulator& simulator, SimNetwork& network, SimStore& store, WorkerRegistry& workers, std::string name,
             const MachineOptions& options);
  ~SimMachine();

  NodeId node() const { return node_.id; }
  const std::string& name() const { return node_.name; }
  const std::string& address() const { return node_.address; }
  SimDisk& disk() { return disk_; }
  LocalClock& clock() { return clock_; }
  bool up() const { return node_.up; }
  bool frozen() const { return node_.frozen; }

  // Runs at once, up to its first wait. The program stays here, for its console and exit code, until the end.
  SimProgram& start(std::string name, SimProgram::Main main);
  const std::vector<std::unique_ptr<SimProgram>>& programs() const { return programs_; }

  // Power off: everything on it vanishes without a word to anybody.
  void crash();
  void reboot();  // crashes it first if it is up

  // A paused virtual machine: its time goes on, but nothing in it does; timers fire late.
  void freeze();
  void thaw();

  void set_clock_rate(int64_t ppb);

 private:
  void note(std::string_view mark, uint64_t payload);

  Simulator& simulator_;
  SimNetwork& network_;
  Node& node_;
  LocalClock clock_;
  LocalLoop kernel_;
  SimDisk disk_;
  MachineFacts facts_;
  const ProgramHost host_;
  std::vector<std::unique_ptr<SimProgram>> programs_;
};

}  // namespace rubato::sim

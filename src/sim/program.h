// SimProgram: one program (an agent) on a simulated machine: a root Task<int> and the World it runs on.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/scope.h"
#include "sim/files.h"
#include "sim/processes.h"
#include "sim/program_network.h"
#include "sim/store.h"
#include "world/world.h"

namespace rubato::sim {

class SimConsole final : public Console {
 public:
  explicit SimConsole(const ProgramLife& life) : life_(life) {}
  void out(std::string_view text) override;
  void err(std::string_view text) override;
  const std::string& out_text() const { return out_; }
  const std::string& err_text() const { return err_; }

 private:
  const ProgramLife& life_;
  std::string out_, err_;
};

// What a program needs of its machine and of the simulation.
struct ProgramHost {
  Simulator& simulator;
  SimNetwork& network;
  SimStore& store;
  WorkerRegistry& workers;
  Node& node;
  LocalClock& clock;
  SimDisk& disk;
};

// (1) running ──main returns or throws──▶ (2) exited, with a code
//     running ──kill(), or its machine loses power──▶ (3) killed
// None of kill, stop and the machine's faults may be called from inside the program's own coroutines: plan them with
// Simulator::at, or do them between runs.
class SimProgram {
 public:
  // Kept as long as the program, but STYLE holds: a coroutine lambda captures nothing; capture and call a coroutine.
  using Main = std::function<Task<int>(SimProgram&)>;

  SimProgram(const ProgramHost& host, const MachineFacts& facts, std::string name, Main main);
  ~SimProgram();

  World& world() { return world_; }
  Store& store() { return store_; }
  LocalLoop& loop() { return loop_; }
  const std::string& name() const { return name_; }
  const SimConsole& console() const { return console_; }

  void start();
  bool running() const { return life_.running; }
  std::optional<int> exit_code() const { return exit_code_; }  // nullopt: running or killed

  // SIGKILL. The kernel lives: it closes the connections, frees the ports and kills the processes.
  void kill();

  // SIGSTOP and SIGCONT. Its kernel goes on acknowledging, its workers go on working.
  void stop();
  void resume();

  // For SimMachine: the frames go; whether the network hears of it depends on the machine being up.
  void destroy();

 private:
  static Task<void> run(SimProgram& self);
  void finished(int code);

  const ProgramHost host_;
  const MachineFacts facts_;
  const std::string name_;
  Main main_;
  ProgramLife life_;
  bool stopped_ = false;
  std::optional<int> exit_code_;
  LocalLoop loop_;
  ProgramNetwork network_;
  ProgramFiles files_;
  SimConsole console_;
  Random random_;
  ProgramProcesses processes_;
  ProgramStore store_;
  World world_;
  Scope scope_;
};

}  // namespace rubato::sim

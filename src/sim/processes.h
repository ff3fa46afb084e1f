// ProgramProcesses: the Processes seam of one program on a simulated machine. SimWorker: one process of it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sim/files.h"
#include "sim/worker_group.h"
#include "sim/workers.h"
#include "world/processes.h"
#include "world/world.h"

namespace rubato::sim {

// What a process needs of the program that starts it.
struct ProcessHost {
  Node& node;
  LocalLoop& loop;  // the program's: its coroutines wait on it
  SimDisk& disk;
  Console& console;
  const ProgramLife& life;
};

class SimWorker final : public Process {
 public:
  SimWorker(WorkerRegistry& registry, const ProcessHost& host, const SpawnSpec& spec, bool warm);
  ~SimWorker() override;  // ends it at once, with SIGKILL

  int pid() const override { return pid_; }
  bool warm() const override { return warm_; }
  const std::optional<ExitStatus>& status() const override { return status_; }
  void signal_group(int signal) override;
  void end_by(Instant time) override;
  Task<ExitStatus> wait() override;
  Channel<OutputChunk>& output() override { return output_; }
  Task<void> write(std::string bytes) override;  // a training model reads nothing: what is written is gone
  void close_input() override {}

  void exit(ExitStatus status) { end(status); }

  // For WorkerGroup.
  const WorkerRecord& record() const { return record_; }
  void train();
  void lose_peer();
  void stall();
  void resume();

 private:
  void started();
  bool bind_master_port();
  void print(const std::string& text, bool is_stderr = false);
  void print_crash();
  void print_lines();
  void work_done();
  void die() { end(dying_status_); }
  void fail() { end(ExitStatus{1, 0}); }
  void lease_over();
  void end(ExitStatus status);
  void begin_work();
  void pause_work();

  WorkerRegistry& registry_;
  const ProcessHost host_;
  WorkerRecord& record_;  // dangles once it has ended
  const OutputTarget out_;
  const int pid_;
  const bool warm_;
  WorkerModel model_;
  std::shared_ptr<WorkerGroup> group_;
  uint16_t bound_port_ = 0;
  std::optional<ExitStatus> status_;
  ExitStatus dying_status_;

  bool training_ = false, stalled_ = false, lost_peer_ = false, crashed_ = false;
  Instant working_since_{};  // global
  Duration worked_{};

  Event ended_;
  Channel<OutputChunk> output_;
  uint64_t kept_ = 0;  // bytes in the file of out_
  // In the machine's time, so that a frozen machine's processes freeze too.
  Due<SimWorker> starting_, working_, dying_, failing_, silence_, printing_, lease_, crash_output_;
  uint64_t printed_ = 0;  // lines
};

class ProgramProcesses final : public Processes {
 public:
  ProgramProcesses(WorkerRegistry& registry, const ProcessHost& host)
      : registry_(registry), host_(host), warming_(*this, &ProgramProcesses::warmed) {}

  std::unique_ptr<Process> spawn(const SpawnSpec& spec) override;
  void prewarm(const PrewarmSpec& spec, std::function<void(std::string)> on_state) override;

 private:
  void warmed();

  WorkerRegistry& registry_;
  const ProcessHost host_;
  Due<ProgramProcesses> warming_;
  std::function<void(std::string)> on_state_;
  bool warm_ = false;
};

}  // namespace rubato::sim

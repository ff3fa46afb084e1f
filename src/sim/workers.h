// Workers: what simulated processes do, and the list of all of them.
//
// A worker is a training process:
//   (1) starting ──start_delay──▶ (2) joining ──every rank of its world joined──▶ (3) training ──runs──▶ (4) ended
// A worker that does not talk, or has no MASTER_ADDR and WORLD_SIZE, goes from (1) to (3). From (2) and (3) it ends
// early when a peer dies, when it crashes by itself, or by a signal.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/network.h"
#include "world/processes.h"

namespace rubato::sim {

struct WorkerModel {
  Duration start_delay = 2s;           // `import torch`
  Duration warm_start_delay = 100ms;   // forked from the prewarmed interpreter
  std::optional<Duration> runs = 60s;  // of training; nullopt: until something ends it
  int exit_code = 0;

  std::optional<Duration> crash_after;  // of training, by itself
  ExitStatus crash_status{1, 0};
  std::string crash_output;          // what it prints to stderr right before it crashes
  Duration crash_output_delay_max{};  // its agent may hear of its end before it has read that

  std::optional<Duration> sigterm_delay = Duration::zero();  // nullopt: ignores SIGTERM and needs SIGKILL
  ExitStatus sigterm_status{0, 15};

  bool talks = true;                  // false: neither waits for peers nor notices their death
  Duration join_max = 60s;            // exits 1 when the world is not complete by then
  Duration peer_loss_delay_max = 1s;  // a peer's kernel closed the connection: exits 1 within this
  Duration peer_silence_max = 30s;    // a peer's machine is not reached: stalls, then exits 1

  std::string output;  // printed when training begins
  // Then so many numbered lines, as fast as they are taken: as at a pipe, it waits when they are not. It does not end
  // by itself before the last one.
  uint64_t lines = 0;
  size_t line_bytes = 100;
};

// One worker, alive or past. A value that invariants look at.
struct WorkerRecord {
  uint64_t id = 0;
  NodeId machine = 0;
  int pid = 0;
  std::map<std::string, std::string> env;  // emptied when it has ended
  std::string run_id;                      // TORCHELASTIC_RUN_ID
  int64_t generation = -1;                 // RUBATO_GENERATION
  int rank = -1;                           // RANK
  int world_size = 0;                      // WORLD_SIZE
  std::string master;                      // MASTER_ADDR:MASTER_PORT
  bool warm = false;
  Instant started{};  // in global time, as all here
  std::optional<Instant> trained_from;
  std::optional<Instant> stopped;
  std::optional<ExitStatus> status;
  bool told_to_end = false;  // a signal was sent to it: how it ended says nothing about its work
  Duration trained{};  // without stalls; set when it ends
};

// What a process is to be, by its command and environment. May throw an Error, as spawn() does.
using WorkerBehaviour = std::function<WorkerModel(const SpawnSpec&, const WorkerRecord&, Random&)>;

class WorkerGroup;
class SimWorker;

// All workers of a simulation.
class WorkerRegistry {
 public:
  explicit WorkerRegistry(SimNetwork& network);
  ~WorkerRegistry();

  WorkerBehaviour behaviour;  // unset: the default WorkerModel
  Duration prewarm_delay = 2s;
  std::string prewarm_fails;  // not empty: every prewarm falls back, with this reason

  const std::map<uint64_t, WorkerRecord>& live() const { return live_; }
  const std::vector<WorkerRecord>& past() const { return past_; }
  uint64_t version() const { return version_; }  // changes with workers and paths: skip a check when it did not

  // The first broken rule among live workers, or nullopt: no rank outside its world; no two workers of one run with
  // the same rank on machines that reach each other for longer than `overlap_max` (after a cut heals, the side that
  // is behind needs a moment to hear of it). Cheap when nothing changed: may be asked after each event.
  std::optional<std::string> broken_rule(Duration overlap_max = Duration::zero());

  // Workers of different generations met, or a rank was there twice: each time, in words.
  const std::vector<std::string>& mix_ups() const { return mix_ups_; }

  // For a model of what workers do that is outside of them: this one ends by itself.
  void end(uint64_t id, const ExitStatus& status);

  // For SimWorker and WorkerGroup.
  WorkerRecord& begin(Node& node, const SpawnSpec& spec);
  void finish(uint64_t id, const ExitStatus& status);
  void withdraw(uint64_t id) {  // spawn() threw
    live_.erase(id);
    processes_.erase(id);
  }
  std::shared_ptr<WorkerGroup> group_for(const WorkerRecord& record);
  void detach(const WorkerGroup& group);
  void report_mix_up(std::string message);
  void attach(uint64_t id, SimWorker& worker) { processes_[id] = &worker; }
  SimNetwork& network() { return network_; }
  Random& random() { return random_; }

 private:
  struct Overlap {
    Instant since;
    std::string message;
  };
  using Overlaps = std::map<std::pair<uint64_t, uint64_t>, Overlap>;  // by the two workers' ids
  void find_overlaps();

  SimNetwork& network_;
  Random random_;
  uint64_t next_id_ = 1;
  uint64_t version_ = 0;
  uint64_t checked_version_ = 0;
  Overlaps overlaps_;
  std::optional<std::string> outside_;
  std::map<uint64_t, WorkerRecord> live_;
  std::map<uint64_t, SimWorker*> processes_;
  std::vector<WorkerRecord> past_;
  std::map<std::string, std::shared_ptr<WorkerGroup>> joining_;  // by master and world size
  std::map<uint64_t, std::weak_ptr<WorkerGroup>> groups_;
  std::vector<std::string> mix_ups_;
};

}  // namespace rubato::sim

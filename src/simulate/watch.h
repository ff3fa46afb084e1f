// Watch: reads the journal as it grows, keeps the state that follows from it, and checks the invariants.
//
// It sees only what is durable, decoded from the journal's bytes, and applies it by itself: what it has at the end must
// be what the head has.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/state.h"
#include "sim/journal.h"
#include "sim/simulation.h"
#include "simulate/cloud.h"

namespace rubato::simulate {

class Watch {
 public:
  Watch(sim::Simulation& sim, const sim::SimJournal& journal, Cloud& cloud);

  // After each event of the simulation; cheap when nothing is new.
  void check();

  // Now and then: no instance that nobody owns stays. `head_up`: a head was there since the last call.
  void audit(bool head_up);
  // At the end: the head's state is the journal's; instances are owned.
  void close(const cluster::State* head);

  const cluster::State& state() const { return state_; }
  std::vector<std::string> broken;
  std::map<std::string, uint64_t> checks;
  std::function<void(const cluster::Record&)> on_record;  // applied
  void add_broken(std::string text);
  // A node that the head has given up on, or never knew: what still runs there is fenced off.
  bool given_up(const rubato::NodeId& node) const;
  // Called when a node's machine is about to be taken away; `busy`: workers are there.
  void removing(const Instance& instance, bool busy);

 private:
  void take(const cluster::Record& record);
  void check_before(const cluster::Record& record);
  void check_after(const cluster::Record& record);
  void check_seats(const cluster::JobPlaced& placed);
  void check_sized(const cluster::JobSized& sized, WallTime at);
  void count_for_limits(const rubato::NodeId& node);
  void check_limits();
  void check_all();
  void check_workers();
  void check_thawed();
  void check_alone(const sim::WorkerRecord& worker);
  void mark_transitions(const cluster::Record& record);
  void add_worker(const sim::WorkerRecord& worker);
  void note_end(const sim::WorkerRecord& worker);
  bool ended_well(const JobId& job) const;
  void check_lost(const rubato::NodeId& node);
  void count(std::string_view check) { ++counts_.try_emplace(check, 0).first->second; }
  rubato::NodeId node_on(int machine) const;
  bool is_frozen(int machine) const;

  sim::Simulation& sim_;
  const sim::SimJournal& journal_;
  Cloud& cloud_;
  cluster::State state_;
  bool limits_due_ = false;
  std::map<rubato::NodeId, std::string> limited_;  // nodes that the limits are about, with their types
  std::map<std::string, int> of_type_;             // how many of them
  Instant all_due_{};
  std::set<rubato::NodeId> lost_;
  std::map<std::string_view, uint64_t> counts_;
  std::map<rubato::NodeId, cluster::NodePhase> node_phases_;
  std::map<JobId, cluster::JobPhase> job_phases_;
  // Of adaptive jobs: their last change of size, and how much else had changed by then.
  struct Sized {
    WallTime at{};
    int before = 0;
    uint64_t causes = 0;
  };
  std::map<JobId, Sized> sized_;
  uint64_t causes_ = 0;               // records that are a reason to size jobs anew at once
  std::map<JobId, uint64_t> placed_;  // of them, those that gave this job seats

  // Real workers, by job.
  struct Run {
    std::map<uint64_t, std::pair<int64_t, int>> workers;  // id: generation, rank
  };
  std::map<std::string, Run> runs_;
  // Workers on frozen machines, beside others of their job; and when their machine was seen to go on.
  std::map<uint64_t, std::optional<Instant>> frozen_;
  // Of the newest generation of each job: ranks whose workers ended with 0 by themselves, and the agents that know it.
  struct Finished {
    int64_t generation = 0;
    int world_size = 0;
    std::map<int, std::pair<rubato::NodeId, const sim::SimProgram*>> ranks;
  };
  std::map<std::string, Finished> finished_;
  uint64_t workers_version_ = 0, last_worker_ = 0;
  size_t past_seen_ = 0;
  std::map<rubato::NodeId, Duration> orphans_;  // for how long a head has left them
  Instant audited_{};
};

}  // namespace rubato::simulate

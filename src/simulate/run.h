// Run: one scenario with one seed: a real head, agents, the simulated cloud, a client, faults; watched and measured.
//
//   (1) the duration: jobs arrive, faults strike ──▶ (2) settling: no more of both, until all jobs have ended and idle
//   nodes are gone, or nothing moves for the scenario's patience ──▶ (3) the books are closed
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/metrics.h"
#include "head/controller.h"
#include "reconcile/admit.h"
#include "sim/journal.h"
#include "sim/simulation.h"
#include "simulate/agents.h"
#include "simulate/cloud.h"
#include "simulate/meter.h"
#include "simulate/outcome.h"
#include "simulate/progress.h"
#include "simulate/watch.h"
#include "simulate/workload.h"

namespace rubato::simulate {

// What happens to nodes whatever the seed: from a user's own history.
struct PlannedLoss {
  Duration at{};
  std::string type;
};
// The cluster file changes.
struct PlannedFile {
  Duration at{};
  std::string text;
};

struct Plan {
  std::vector<PlannedJob> jobs;  // besides the workload's
  std::vector<PlannedLoss> losses;
  std::vector<PlannedFile> files;
};

class Run {
 public:
  // `progress`: called now and then with the time that was simulated.
  Run(const Scenario& scenario, const Plan& plan, uint64_t seed);
  ~Run();

  Outcome play(const std::function<void(Duration)>& on_progress = {});

  const sim::SimJournal& journal() const { return journal_; }

 private:
  friend class FaultPlan;
  static Task<int> head_main(sim::SimProgram& self, Run& run);
  void start_head();
  void kill_head(Duration down);
  bool head_up() const { return controller_ != nullptr && head_program_ && head_program_->running(); }
  void keep_head_up();

  void plan_arrivals();
  void arrive(size_t number);
  void press();
  void submit_job(size_t number);
  JobId id_of(size_t number) const;
  void send_file();
  void stop_jobs();
  void ask(const reconcile::Request& request);

  void every(Duration span, std::function<void()> call);
  sim::WorkerModel worker_model(const SpawnSpec& spec, const sim::WorkerRecord& worker);
  void credit_workers();
  std::string cause_of(const sim::WorkerRecord& lost);
  void send_hints();
  bool busy(const Instance& instance) const;
  void lose_one(const PlannedLoss& loss);

  void settle(const std::function<void(Duration)>& on_progress);
  bool all_ended() const;
  bool feasible(const JobSpec& spec) const;
  bool waits_in_vain() const;
  bool shrunk() const;
  void check_demand();
  void run_to(Instant limit, const std::function<bool()>& done, const std::function<void(Duration)>& on_progress);

  const Scenario& scenario_;
  Outcome outcome_;
  sim::Simulation sim_;
  Random random_;
  Progress progress_;
  LightGroups groups_;
  Agents agents_;
  Cloud cloud_;
  sim::SimJournal journal_;
  Watch watch_;
  Meter meter_;
  Metrics metrics_;
  std::vector<PlannedJob> jobs_;
  std::vector<PlannedLoss> losses_;
  std::vector<PlannedFile> files_;
  std::map<JobId, size_t> numbers_;  // of the jobs that have arrived
  std::set<size_t> pending_;         // jobs whose client has no answer yet
  std::map<JobId, uint64_t> stops_;  // jobs whose owner wants them stopped, and the head that was told
  std::string text_;                 // the cluster file that is wanted now
  std::pair<uint64_t, std::string> said_text_;
  sim::SimProgram* head_program_ = nullptr;
  head::Controller* controller_ = nullptr;
  Instant head_down_until_{};
  bool head_was_up_ = true;  // since the last audit
  size_t credited_ = 0;
  struct Told {
    int64_t generation = 0;
    Instant at{};
    int most_workers = 0;  // that it has trained with
  };
  std::map<JobId, Told> told_;  // by adaptive jobs
  Random measuring_;            // apart from the others: scenarios without such jobs stay what they were
  bool over_ = false;           // no more faults and arrivals
  std::unique_ptr<class FaultPlan> faults_;
};

}  // namespace rubato::simulate

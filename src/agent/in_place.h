// InPlace: what one agent knows of its workers where their group changes in place: their names, what they reported,
// the newest plan that they have, and who was lost so far. docs/training.md has the contract with the workers.
//
// A slot is a local rank's place. Its worker:  (1) to be started ──▶ (2) alive ──▶ (3) ended; then a new name, (1)
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/plan_files.h"
#include "agent/worker_group.h"
#include "world/in_place.h"

namespace rubato::agent {

class InPlace {
 public:
  struct Slot {
    std::string id;
    int local_rank = 0;
    bool started = false;                // a name is for one process
    std::optional<WorkerReport> report;  // none: it has not declared that it can change in place
    bool trained = false;                // it has, or had, the job's state
    bool held = false;                   // its last worker ended well: no other is started beside those that train
  };

  // Throws Error: then there can be no changes in place.
  InPlace(World& world, InPlaceHost& host, const LaunchSpec& spec, const AgentId& self,
          std::function<void()> on_report);

  std::vector<Slot>& slots() { return slots_; }
  std::vector<int> ranks(const elastic::GroupPlan& plan) const;  // of this agent's workers, sorted
  Environment variables(const std::string& worker) const;
  void read_reports();
  // The slot's worker; nullopt: it was not started. One that nobody remembers was stopped by us.
  static std::optional<WorkerGroup::Named> worker_of(const Slot& slot, const WorkerGroup& workers);
  void renew(Slot& slot);  // its worker has ended: the next one has another name

  // Writes the plan, unless it is there already.
  void publish(const elastic::View& view);
  Generation published() const { return published_; }  // 0: none yet
  bool planned(const std::string& id) const;           // in the newest plan

  // All that live and are planned have declared it; and there are some.
  bool all_declared(const WorkerGroup& workers) const;
  bool any_planned_alive(const WorkerGroup& workers) const;

  elastic::AgentWorkers describe(const WorkerGroup& workers) const;

  bool stopped = false;   // workers that could not be kept, since the last plan
  bool finished = false;  // a worker has ended well, since all began together

 private:
  World& world_;
  std::string prefix_;
  std::string token_;
  std::unique_ptr<PlanBoard> board_;
  std::unique_ptr<MeetingStore> store_;
  uint64_t names_ = 0;
  std::vector<Slot> slots_;
  Generation published_ = 0;
  std::optional<elastic::GroupPlan> plan_;
  std::vector<std::string> lost_;
};

}  // namespace rubato::agent

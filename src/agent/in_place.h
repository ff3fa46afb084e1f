// InPlace: what one agent knows of its workers where their group changes in place: their names, what they reported,
// the newest plan that they have, and who was lost so far. docs/training.md has the contract with the workers.
//
// A slot is a local rank's place. Its worker:  (1) to be started ──▶ (2) alive ──▶ (3) ended; then a new name, (1)
#pragma once

#include <algorithm>
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
    bool late = false;                   // it was started beside those that train, to join them
    bool held = false;                   // its last worker ended well: no other is started beside those that train
  };

  struct Terms {
    int workers = 1;
    bool loopback = false;  // nobody meets its group from another machine
    std::string prefix;     // of its workers' names: no other agent of the job, now or later, has the same
  };
  // Null: it cannot be had; `problem` says why, unless nobody wants it here.
  static std::unique_ptr<InPlace> open(World& world, InPlaceHost* host, const Terms& terms,
                                       std::function<void()> on_report, std::string& problem);
  // Throws Error: then there can be no changes in place.
  InPlace(World& world, InPlaceHost& host, const Terms& terms, std::function<void()> on_report);

  std::vector<Slot>& slots() { return slots_; }
  std::vector<int> ranks(const elastic::GroupPlan& plan) const;  // of this agent's workers, sorted
  Environment variables(const std::string& worker) const;
  void read_reports();
  // The slot's worker; nullopt: it was not started. One that nobody remembers was stopped by us.
  static std::optional<WorkerGroup::Named> worker_of(const Slot& slot, const WorkerGroup& workers);
  struct Ended {
    std::string id;
    bool planned = false, declared = false, ended_well = false;
    std::optional<elastic::Failure> failure;
  };
  // Workers that have ended give their places to others, which have other names; those of the newest plan only with
  // `planned_too`. The places of those that were dismissed go.
  std::vector<Ended> take_ended(const WorkerGroup& workers, bool planned_too);
  // So many slots, if no worker has one that is too many.
  void set_size(int workers);
  void reset(int workers);  // all begin anew: with other names

  // Writes the plan, unless it is there already.
  void publish(Generation generation, const elastic::GroupPlan& plan);
  Generation published() const { return published_; }  // 0: none yet
  bool planned(const std::string& id) const;           // in the newest plan

  // All that live and are planned have declared it; and there are some.
  bool all_declared(const WorkerGroup& workers) const;
  bool any_planned_alive(const WorkerGroup& workers) const;
  // They may live on to the next generation, if the last one that the others know is this.
  bool can_keep(const WorkerGroup& workers, Generation last) const;
  // Others of the group are with other agents, and go on without these.
  bool can_leave_in_peace(const WorkerGroup& workers, Generation running, const elastic::Assignment& place) const;
  // All members of the newest plan here train by it; and why it failed, as one of them says.
  bool settled(const WorkerGroup& workers) const;
  std::string broken(const WorkerGroup& workers) const;

  elastic::AgentWorkers describe(const WorkerGroup* workers) const;  // null: none was started

  bool stopped = false;   // workers that could not be kept, since the last plan
  bool finished = false;  // a worker has ended well, since all began together

 private:
  void renew(Slot& slot);

  World& world_;
  std::string prefix_;
  std::string token_;
  std::unique_ptr<PlanBoard> board_;
  std::unique_ptr<MeetingStore> store_;
  uint64_t names_ = 0;
  std::vector<Slot> slots_;  // by local rank
  Generation published_ = 0;
  std::optional<elastic::GroupPlan> plan_;
  std::vector<std::string> lost_;
};

// Workers of an agent that leaves wait so long for a plan without them; then they are told to stop, and with them all.
constexpr Duration peace_for(Duration grace) { return std::min<Duration>(grace / 2, 5s); }

}  // namespace rubato::agent

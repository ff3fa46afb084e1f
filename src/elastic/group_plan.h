// GroupPlan: which workers form the next generation, where workers live on from one to the next (docs/training.md).
//
// An agent that is ready for a generation names a slot for each of its local ranks. Among slots with the job's state
// (veterans), only those of workers that can meet at once are planned: nobody waits for an interpreter to start. Where
// no veteran is left, all begin together, from the newest checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/ids.h"

namespace rubato::elastic {

enum class WorkerStage {
  kFresh,    // to be started when it is planned or prepared; or started, and still building its model
  kReady,    // waits for a plan
  kVeteran,  // has been in a group: it has the job's state
};

struct WorkerSlot {
  std::string id;  // unique in the job, never used again
  int local_rank = 0;
  WorkerStage stage = WorkerStage::kFresh;
  bool operator==(const WorkerSlot&) const = default;
};

// Where the members of a generation meet: a server of one agent (world/in_place.h).
struct MeetingPlace {
  std::string host;
  uint16_t port = 0;  // 0: that agent has none, so its workers cannot change in place
  std::string token;
  bool operator==(const MeetingPlace&) const = default;
};

// What an agent says of its workers when it is ready for a generation.
struct AgentWorkers {
  std::vector<WorkerSlot> slots;  // one for each local rank; none: this agent does not plan its workers
  MeetingPlace store;             // without its host: the rendezvous knows where this agent is reached
  bool stopped = false;           // it had workers that could not be kept
  bool finished = false;          // one of them has ended well: the training is over, or nearly
  bool operator==(const AgentWorkers&) const = default;
};

// The same for a job of a cluster, at any time.
struct InPlaceReport {
  AgentWorkers workers;
  Generation planned = 0;  // the newest plan that its workers have; 0: none
  int living = 0;          // processes
  bool settled = false;    // all members of that plan here train by it
  std::string broken;      // why that group failed, as one of them says; empty: it did not
  bool operator==(const InPlaceReport&) const = default;
};

struct PlannedWorker {
  std::string id;
  int local_rank = 0;
  int node = 0;  // its agent's place among those in the plan, from 0
  bool operator==(const PlannedWorker&) const = default;
};

struct GroupPlan {
  std::vector<PlannedWorker> members;  // by rank
  std::vector<std::string> departing;  // of the last plan: they leave in peace. Who is in neither list is lost
  MeetingPlace store;

  bool has(const std::string& id) const;
  bool lets_go(const std::string& id) const;  // it is departing
  std::map<std::string, int> ranks() const;   // by worker
  bool operator==(const GroupPlan&) const = default;
};

// A plan goes to each agent with each view: above this, groups restart.
inline constexpr size_t kPlanWorkersMax = 512;

bool has_veteran(const std::vector<WorkerSlot>& slots);

// Which slots the next plan takes.
enum class Intake {
  kAll,       // no veteran is left: all begin together
  kReady,     // veterans, and who waits to join them
  kVeterans,  // the training is nearly over: who joined now would begin it anew
};
std::vector<WorkerSlot> plannable(const std::vector<WorkerSlot>& slots, Intake intake);

// `agents`: the plannable slots of each agent, in the agents' order. Members of `last` keep their order and come first.
std::vector<PlannedWorker> compose(const std::vector<std::vector<WorkerSlot>>& agents,
                                   const std::vector<PlannedWorker>& last);

}  // namespace rubato::elastic

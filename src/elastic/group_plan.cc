#include "elastic/group_plan.h"

#include <algorithm>
#include <iterator>

namespace rubato::elastic {

bool GroupPlan::has(const std::string& id) const {
  return std::ranges::find(members, id, &PlannedWorker::id) != members.end();
}

bool GroupPlan::lets_go(const std::string& id) const { return std::ranges::find(departing, id) != departing.end(); }

std::map<std::string, int> GroupPlan::ranks() const {
  std::map<std::string, int> ranks;
  for (size_t rank = 0; rank < members.size(); ++rank) ranks[members[rank].id] = static_cast<int>(rank);
  return ranks;
}

bool has_veteran(const std::vector<WorkerSlot>& slots) {
  return std::ranges::any_of(slots, [](const WorkerSlot& slot) { return slot.stage == WorkerStage::kVeteran; });
}

std::vector<WorkerSlot> plannable(const std::vector<WorkerSlot>& slots, Intake intake) {
  const WorkerStage least = intake == Intake::kAll     ? WorkerStage::kFresh
                            : intake == Intake::kReady ? WorkerStage::kReady
                                                       : WorkerStage::kVeteran;
  std::vector<WorkerSlot> out;
  std::ranges::copy_if(slots, std::back_inserter(out), [&](const WorkerSlot& slot) { return slot.stage >= least; });
  return out;
}

std::vector<PlannedWorker> compose(const std::vector<std::vector<WorkerSlot>>& agents,
                                   const std::vector<PlannedWorker>& last) {
  std::map<std::string, size_t> places;
  for (const PlannedWorker& member : last) places.emplace(member.id, places.size());
  const auto place = [&](const PlannedWorker& worker) {
    const auto it = places.find(worker.id);
    return it == places.end() ? places.size() : it->second;
  };
  std::vector<PlannedWorker> members;
  int node = 0;
  for (const std::vector<WorkerSlot>& slots : agents) {
    for (const WorkerSlot& slot : slots) members.push_back({slot.id, slot.local_rank, node});
    if (!slots.empty()) ++node;
  }
  std::ranges::stable_sort(members, {}, place);
  return members;
}

}  // namespace rubato::elastic

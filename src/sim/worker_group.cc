#include "sim/worker_group.h"

#include "sim/processes.h"

namespace rubato::sim {

void WorkerGroup::join(SimWorker& worker) {
  const WorkerRecord& record = worker.record();
  if (!members_.empty() && members_.begin()->second->record().generation != record.generation) {
    registry_.report_mix_up("rank " + std::to_string(record.rank) + " of generation " +
                            std::to_string(record.generation) + " joined generation " +
                            std::to_string(members_.begin()->second->record().generation) + " at " + key_);
  }
  if (!members_.emplace(record.rank, &worker).second) {
    registry_.report_mix_up("rank " + std::to_string(record.rank) + " joined twice at " + key_);
    return;
  }
  update();
}

void WorkerGroup::leave(SimWorker& worker, Leave how) {
  const auto keep = shared_from_this();
  const auto found = members_.find(worker.record().rank);
  if (found == members_.end() || found->second != &worker) return;
  const bool was_master = found->first == 0;
  members_.erase(found);
  if (members_.empty()) registry_.detach(*this);
  // While ranks are missing the others wait at rank 0's store and notice only its death.
  if (how == Leave::kDone || (!complete_ && !was_master)) return;
  registry_.detach(*this);
  if (how == Leave::kVanished) vanished_ = true;
  for (const auto& [rank, member] : members_) {
    if (how == Leave::kDied) {
      member->lose_peer();
    } else {
      member->stall();
    }
  }
}

// Every member with rank 0 (the store) and with its neighbour (the ring).
bool WorkerGroup::connected() const {
  const SimNetwork& network = registry_.network();
  const NodeId first = members_.begin()->second->record().machine;
  NodeId previous = members_.rbegin()->second->record().machine;
  for (const auto& [rank, member] : members_) {
    const NodeId machine = member->record().machine;
    if (!network.round_trip(machine, first) || !network.round_trip(machine, previous)) return false;
    previous = machine;
  }
  return true;
}

void WorkerGroup::update() {
  if (members_.empty() || vanished_) return;
  const bool works = connected();
  if (!complete_) {
    if (!works || static_cast<int>(members_.size()) < world_size_) return;
    complete_ = true;
    registry_.detach(*this);
    for (const auto& [rank, member] : members_) member->train();
    return;
  }
  for (const auto& [rank, member] : members_) {
    if (works) {
      member->resume();
    } else {
      member->stall();
    }
  }
}

}  // namespace rubato::sim

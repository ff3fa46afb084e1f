// WorkerGroup: the workers that met at one MASTER_ADDR:MASTER_PORT with one WORLD_SIZE, as gloo ties them together.
#pragma once

#include <map>
#include <string>

#include "sim/workers.h"

namespace rubato::sim {

class WorkerGroup : public std::enable_shared_from_this<WorkerGroup> {
 public:
  WorkerGroup(WorkerRegistry& registry, std::string key, int world_size)
      : registry_(registry), key_(std::move(key)), world_size_(world_size) {}

  const std::string& key() const { return key_; }

  void join(SimWorker& worker);
  enum class Leave { kDone, kDied, kVanished };  // exit code 0, a death its kernel tells of, power off
  void leave(SimWorker& worker, Leave how);
  void update();  // somebody joined, or the network changed

 private:
  bool connected() const;

  WorkerRegistry& registry_;
  const std::string key_;
  const int world_size_;
  std::map<int, SimWorker*> members_;  // by rank
  bool complete_ = false;
  bool vanished_ = false;  // a member was lost without a word: the rest wait for it
};

}  // namespace rubato::sim

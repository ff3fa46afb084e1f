// Deliveries: what workers have left on this node's disk, brought to the head on a connection of its own
// (elastic::Delivery), so that an agent's beats do not wait behind gigabytes.
//
//   offer ──▶ the head has so many bytes ──▶ the folder as a tar.zst from there on, a few parts ahead of their
//   acknowledgements ──▶ the hash of all of it ──▶ kept, or from the start again: it has changed since
//
// Nothing is remembered here: the same folder gives the same bytes, and the head says how far it is.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/scope.h"
#include "elastic/node_wire.h"
#include "node/node_settings.h"
#include "world/world.h"

namespace rubato::node {

std::string output_folder(const std::string& node_folder, const JobId& job);
// The jobs that have one.
std::vector<JobId> outputs_here(Files& files, const std::string& node_folder);

// Delivers what is wanted, for as long as it takes.
class OutputSender {
 public:
  // All outlive it. `wake`: something was delivered.
  OutputSender(World& world, const NodeSettings& settings, std::function<void()> wake,
               std::function<void(const std::string&)> say);

  void follow(std::set<JobId> wanted);
  bool all_delivered() const;

  Task<void> run();

 private:
  Task<bool> deliver_round();  // false: a pause is in place

  World& world_;
  const NodeSettings& settings_;
  std::function<void()> wake_;
  std::function<void(const std::string&)> say_;
  std::set<JobId> wanted_;
  std::set<JobId> delivered_;  // of `wanted_`; the head's next orders will not have them
  std::string last_output_;
  bool refused_ = false;  // at the last try
  Event changed_;
};

// All that a dead agent has left in its folder: lines, then outputs. At once when there is nothing. False: not all of
// it could be brought, though it was tried for a while. Nobody else may be at work in the folder.
Task<bool> deliver_all(World& world, NodeSettings settings);

}  // namespace rubato::node

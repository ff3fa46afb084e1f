// Doorway: the agent's listening ports. Who comes in is handed to the coordinator while this agent hosts the
// rendezvous, is told where the host is while another one does, and waits while nobody knows.
#pragma once

#include <list>
#include <memory>
#include <optional>

#include "agent/coordinator.h"

namespace rubato::agent {

class Doorway {
 public:
  Doorway(World& world, AgentId self) : world_(world), self_(std::move(self)), scope_(world.clock.loop()) {}

  void open(std::unique_ptr<Listener> listener);

  void serve(Coordinator& coordinator);
  void point_to(elastic::Moved host);
  void hold();

 private:
  Task<void> accept_from(std::unique_ptr<Listener> listener);
  void direct(std::unique_ptr<Connection> visitor);

  World& world_;
  AgentId self_;
  Coordinator* coordinator_ = nullptr;
  std::optional<elastic::Moved> host_;
  std::list<std::unique_ptr<Connection>> waiting_;
  Scope scope_;
};

}  // namespace rubato::agent

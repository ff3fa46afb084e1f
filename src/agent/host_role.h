// HostRole: this agent as the host of the rendezvous, for as long as it is.
#pragma once

#include <memory>
#include <optional>

#include "agent/coordinator.h"
#include "agent/doorway.h"

namespace rubato::agent {

class HostRole {
 public:
  HostRole(World& world, AgentId self, ChannelKey key, std::string run_id, EventLog& events, Doorway& doorway);

  // Begins to host; `address` is where other agents reach it. Ends by itself when the job has ended, another host
  // has taken over, or `confirm` says no.
  void begin(elastic::Rendezvous machine, Endpoint address, Coordinator::Confirm confirm);
  void end();

  bool active() const { return coordinator_ != nullptr; }
  Coordinator& coordinator() { return *coordinator_; }

  // This agent's own connection to itself.
  std::unique_ptr<Connection> connect();

  // Who took over, if that was how it ended.
  std::optional<elastic::Moved> take_successor() { return std::exchange(successor_, std::nullopt); }

  // Returns when this agent does not host (any more).
  Task<void> ended();

  // Says goodbye to the agents of the group, and returns when they have gone to look for the next host.
  Task<void> hand_over(std::string reason);

 private:
  Task<void> serve();

  World& world_;
  AgentId self_;
  ChannelKey key_;
  std::string run_id_;
  EventLog& events_;
  Doorway& doorway_;
  Endpoint address_;
  std::unique_ptr<Coordinator> coordinator_;
  std::optional<elastic::Moved> successor_;
  Event changed_;
  Scope scope_;
};

}  // namespace rubato::agent

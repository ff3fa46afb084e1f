// Agents: the agents of a simulated cluster's nodes, real or light, and the notices that their machines get.
#pragma once

#include <map>
#include <string>

#include "core/channel.h"
#include "provider/node_provider.h"
#include "sim/simulation.h"
#include "simulate/cloud.h"
#include "simulate/light_agent.h"

namespace rubato::simulate {

// In simulation the name of a certificate's file is who one is.
ChannelKey cluster_key(const std::string& name);

class Agents {
 public:
  Agents(const Scenario& scenario, LightGroups& groups) : scenario_(scenario), groups_(groups) {}

  sim::SimProgram& start(sim::SimMachine& machine, const provider::NodeOrder& order, Instance& instance);
  // Its machine goes away in a while: a SIGTERM, as init sends it, or the light agent's word.
  void notice(const Instance& instance, Duration in);

 private:
  static Task<int> real_main(sim::SimProgram& self, Agents& agents, provider::NodeOrder order, std::string address);
  static Task<int> light_main(sim::SimProgram& self, Agents& agents, provider::NodeOrder order);
  Resources resources_of(const provider::NodeOrder& order) const;

  const Scenario& scenario_;
  LightGroups& groups_;
  std::map<rubato::NodeId, Channel<int>*> signals_;  // of agents that run
  std::map<rubato::NodeId, LightAgent*> light_;
};

}  // namespace rubato::simulate

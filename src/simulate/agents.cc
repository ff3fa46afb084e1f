#include "simulate/agents.h"

#include <csignal>

#include "node/node_agent.h"

namespace rubato::simulate {

namespace {

// Takes an entry away with the frame that it points into.
template <class T>
class Listed {
 public:
  Listed(std::map<rubato::NodeId, T*>& all, rubato::NodeId node, T& what) : all_(all), node_(std::move(node)) {
    all_[node_] = what_ = &what;
  }
  ~Listed() {
    const auto it = all_.find(node_);
    if (it != all_.end() && it->second == what_) all_.erase(it);
  }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

 private:
  std::map<rubato::NodeId, T*>& all_;
  const rubato::NodeId node_;
  T* what_ = nullptr;
};

}  // namespace

ChannelKey cluster_key(const std::string& name) {
  ChannelKey key;
  key.identity.use_tls = true;
  key.identity.ca = "cluster";
  key.identity.certificate = name;
  return key;
}

Resources Agents::resources_of(const provider::NodeOrder& order) const {
  if (!order.type.resources.empty()) return order.type.resources;
  const auto have = scenario_.cloud.have.find(order.type.name);
  return have == scenario_.cloud.have.end() ? Resources{} : have->second;
}

sim::SimProgram& Agents::start(sim::SimMachine& machine, const provider::NodeOrder& order, Instance&) {
  const std::string address = machine.address();
  if (scenario_.fidelity == Fidelity::kLight)
    return machine.start("agent", [this, order](sim::SimProgram& self) { return light_main(self, *this, order); });
  return machine.start(
      "agent", [this, order, address](sim::SimProgram& self) { return real_main(self, *this, order, address); });
}

Task<int> Agents::real_main(sim::SimProgram& self, Agents& agents, provider::NodeOrder order, std::string address) {
  node::NodeSettings settings;
  settings.node = order.node;
  settings.head = order.head;
  settings.address = std::move(address);
  settings.folder = "/node/" + order.node.value;
  settings.resources = agents.resources_of(order);
  settings.key = cluster_key("node/" + order.node.value);
  settings.python = "python3";
  settings.version = "simulated";
  Channel<int> signals(self.loop());
  const Listed<Channel<int>> listed(agents.signals_, order.node, signals);
  node::NodeAgent agent(self.world(), std::move(settings), &signals);
  co_return co_await agent.run();
}

Task<int> Agents::light_main(sim::SimProgram& self, Agents& agents, provider::NodeOrder order) {
  LightSettings settings;
  settings.node = order.node;
  settings.head = order.head;
  settings.resources = agents.resources_of(order);
  settings.key = cluster_key("node/" + order.node.value);
  LightAgent agent(self, std::move(settings), agents.groups_);
  const Listed<LightAgent> listed(agents.light_, order.node, agent);
  co_return co_await agent.run();
}

void Agents::notice(const Instance& instance, Duration in) {
  if (const auto it = signals_.find(instance.node); it != signals_.end()) it->second->push(SIGTERM);
  if (const auto it = light_.find(instance.node); it != light_.end()) it->second->notice(in);
}

}  // namespace rubato::simulate

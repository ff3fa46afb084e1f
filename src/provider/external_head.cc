#include "provider/external_head.h"

#include "model/cluster_spec.h"
#include "provider/external_instances.h"

namespace rubato::provider {
namespace {

ExternalSettings external_settings(HeadMachineSettings given) {
  ExternalSettings out;
  out.place = ExternalPlace::kClient;
  out.env = std::move(given.env);
  out.folder = std::move(given.folder);
  out.state = given.cluster_folder + "/provider-client";
  out.version = std::move(given.version);
  out.authorized_keys = std::move(given.authorized_keys);
  return out;
}

HeadMachine greeted(const ExternalGreeting& greeting) {
  HeadMachine head;
  head.carry = greeting.carry;
  head.hosts = greeting.hosts;
  head.machines_stay = greeting.machines_stay;
  return head;
}

}  // namespace

NodeOrder head_order(const ClusterFile& file) {
  const ClusterSpec spec = cluster_spec_of(file);
  NodeOrder order;
  order.node.value = kHeadNode;
  order.of_head = true;
  order.type.name = file.head_type;
  if (const auto type = spec.types.find(file.head_type); type != spec.types.end()) order.type = type->second;
  order.launch_hash = launch_hash(spec, order.type);
  return order;
}

Task<HeadMachine> make_external_head(World& world, const ClusterFile& file, HeadMachineSettings settings) {
  const std::string told = cluster_spec_of(file).provider_config;
  ExternalInstances instances(world, told, external_settings(std::move(settings)), Log());
  NodeOrder order = head_order(file);
  const Machine machine = co_await instances.create(std::move(order));
  const ExternalGreeting greeting = co_await instances.greet();
  HeadMachine head = greeted(greeting);
  head.host = machine.host;
  head.address = machine.address.empty() ? machine.host.host : machine.address;
  co_return head;
}

Task<HeadMachine> end_external_head(World& world, const ClusterFile& file, HeadMachineSettings settings) {
  const std::string told = cluster_spec_of(file).provider_config;
  ExternalInstances instances(world, told, external_settings(std::move(settings)), Log());
  const NodeId node{kHeadNode};
  const ExternalGreeting greeting = co_await instances.greet();
  const std::vector<NodeId> all = co_await instances.list();
  for (const NodeId& each : all) {
    NodeRemoval removal(each);
    if (each != node) co_await instances.remove(std::move(removal), true);
  }
  NodeRemoval last(node);
  co_await instances.remove(std::move(last), true);
  co_return greeted(greeting);
}

}  // namespace rubato::provider

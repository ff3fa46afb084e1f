#include "clouds/aws/ec2_head.h"

#include "clouds/aws/ec2_instances.h"
#include "clouds/aws/surroundings.h"
#include "clouds/common/cloud_head.h"
#include "model/cluster_spec.h"

namespace rubato::clouds {
namespace {

using provider::HeadMachine;
using provider::HeadMachineSettings;

Task<std::unique_ptr<aws::Client>> open(World& world, const Ec2Config& config, const HeadMachineSettings& given) {
  aws::Settings settings;
  settings.env = rest::environment_of(given.env);
  settings.region = config.region;
  return aws::open_client(world, std::move(settings));
}

Ec2Config config_of(const ClusterFile& file) { return ec2_config_from_json(compile_ec2_config(file)); }

}  // namespace

Task<HeadMachine> make_ec2_head(World& world, const ClusterFile& file, HeadMachineSettings settings) {
  const Ec2Config config = config_of(file);
  HeadMachine head;
  const PersonKey key = co_await find_person_key(world, file, settings);
  const std::unique_ptr<aws::Client> client = co_await open(world, config, settings);
  SurroundingsOrder order;
  order.config = config;
  order.file = &file;
  order.public_key = key.text;
  order.env = rest::environment_of(settings.env);
  order.on_progress = settings.on_progress;
  FoundSurroundings found = co_await prepare_surroundings(*client, std::move(order));
  found.around.incarnation = ensure_incarnation(world, settings);
  found.around.endpoints = aws::endpoint_variables(client->config());
  head.notes = std::move(found.notes);
  head.carry = to_json(found.around);
  head.key_file = key.file;
  if (settings.on_progress) settings.on_progress("EC2: the head's machine");
  Ec2Settings of;
  of.env = rest::environment_of(settings.env);
  of.around = std::move(found.around);
  of.new_profile = found.new_profile;
  CloudInstances instances(world, std::make_unique<Ec2Machines>(world, std::move(of)), settings_for_person(), Log());
  co_await create_head(instances, file, head);
  co_return head;
}

Task<HeadMachine> end_ec2_head(World& world, const ClusterFile& file, HeadMachineSettings settings) {
  const Ec2Config config = config_of(file);
  if (settings.on_progress) settings.on_progress("EC2: ending the machines");
  Ec2Settings of;
  of.env = rest::environment_of(settings.env);
  auto machines = std::make_unique<Ec2Machines>(world, std::move(of));
  Ec2Machines& cloud = *machines;
  CloudInstances instances(world, std::move(machines), settings_for_person(), Log());
  instances.configure(cluster_spec_of(file).provider_config);
  const size_t ended = co_await instances.end_all();
  forget_incarnation(world, settings);
  if (settings.on_progress) settings.on_progress("EC2: what surrounded them");
  std::set<std::string> placements = placement_groups_of(file);
  const RemovedSurroundings removed = co_await remove_surroundings(cloud.client(), config, std::move(placements));
  co_return ended_head(ended, removed);
}

}  // namespace rubato::clouds

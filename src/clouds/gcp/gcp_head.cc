#include "clouds/gcp/gcp_head.h"

#include "clouds/common/cloud_head.h"
#include "clouds/gcp/gcp_instances.h"
#include "clouds/gcp/gcp_login.h"
#include "clouds/gcp/gcp_surroundings.h"
#include "model/cluster_spec.h"

namespace rubato::clouds {
namespace {

using provider::HeadMachine;
using provider::HeadMachineSettings;

GcpConfig gcp_config_of(const ClusterFile& file) { return gcp_config_from_json(compile_gcp_config(file)); }

}  // namespace

Task<HeadMachine> make_gcp_head(World& world, const ClusterFile& file, HeadMachineSettings settings) {
  const GcpConfig config = gcp_config_of(file);
  HeadMachine head;
  const PersonKey key = co_await find_person_key(world, file, settings);
  GcpMachinesSettings of;
  of.env = rest::environment_of(settings.env);
  of.given = given_credentials(file);
  gcp::Settings for_client;
  for_client.env = of.env;
  for_client.given = of.given;
  const std::unique_ptr<gcp::Client> client = gcp::open_client(world, config.project, std::move(for_client));
  GcpSurroundingsOrder order;
  order.config = config;
  order.file = &file;
  order.public_key = key.text;
  order.env = of.env;
  order.on_progress = settings.on_progress;
  FoundGcpSurroundings found = co_await prepare_gcp_surroundings(*client, std::move(order));
  head.notes = std::move(found.notes);
  head.carry = to_json(found.around);
  head.key_file = key.file;
  if (settings.on_progress) settings.on_progress("Google Cloud: the head's machine");
  of.around = std::move(found.around);
  of.new_account = found.new_account;
  of.own_key = key.text;
  CloudInstances instances(world, std::make_unique<GcpMachines>(world, std::move(of)), settings_for_person(), Log());
  co_await create_head(instances, file, head);
  co_return head;
}

Task<HeadMachine> end_gcp_head(World& world, const ClusterFile& file, HeadMachineSettings settings) {
  const GcpConfig config = gcp_config_of(file);
  if (settings.on_progress) settings.on_progress("Google Cloud: ending the machines");
  GcpMachinesSettings of;
  of.env = rest::environment_of(settings.env);
  of.given = given_credentials(file);
  auto machines = std::make_unique<GcpMachines>(world, std::move(of));
  GcpMachines& cloud = *machines;
  CloudInstances instances(world, std::move(machines), settings_for_person(), Log());
  instances.configure(cluster_spec_of(file).provider_config);
  const size_t ended = co_await instances.end_all();
  if (settings.on_progress) settings.on_progress("Google Cloud: what surrounded them");
  RemovedSurroundings removed = co_await remove_gcp_surroundings(cloud.client(), config);
  Task<void> login = remove_login(cloud.client(), config, file, cloud.has_used_login(), removed);
  co_await try_removal("the SSH key in OS Login", std::move(login), removed);
  co_return ended_head(ended, removed);
}

}  // namespace rubato::clouds

#include "clouds/kubernetes/pod_head.h"

#include <fmt/format.h>

#include "clouds/common/cloud_head.h"
#include "clouds/kubernetes/pod_machines.h"
#include "clouds/kubernetes/pod_surroundings.h"
#include "kubernetes/client.h"
#include "model/cluster_spec.h"
#include "provider/external_head.h"
#include "rest/environment.h"

namespace rubato::clouds {
namespace {

using provider::HeadMachine;
using provider::HeadMachineSettings;

// Where the first `up` has made the pods. The kubeconfig's current context may be another one by now, with a cluster of
// somebody else's under the same name.
std::string place_file(const HeadMachineSettings& settings) { return settings.cluster_folder + "/kubernetes.json"; }

ClusterFile where_it_was(World& world, ClusterFile file, const HeadMachineSettings& settings) {
  const std::optional<std::string> text = world.files.read(place_file(settings));
  const nlohmann::json noted = text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  if (!noted.is_object()) return file;
  for (const char* key : {"context", "namespace"}) {
    const std::string was = kubernetes::text_in(noted, key);
    if (was.empty()) continue;
    const auto given = file.provider.options.find(key);
    const std::string wanted =
        given != file.provider.options.end() && given->is_string() ? given->get<std::string>() : std::string();
    if (!wanted.empty() && wanted != was) {
      throw Error(ErrorCode::kConflict, fmt::format("the pods of '{}' are in the {} '{}'", file.name, key, was),
                  file.place("provider"), fmt::format("run rubato down with provider.{}: {} first", key, was));
    }
    file.provider.options[key] = was;
  }
  return file;
}

void note_place(World& world, const PodMachines& cloud, const HeadMachineSettings& settings) {
  world.files.make_folders(settings.cluster_folder);
  const nlohmann::json place = {{"context", cloud.context()}, {"namespace", cloud.namespace_name()}};
  world.files.write_atomically(place_file(settings), place.dump() + "\n");
}

// CloudInstances that own the pods which the caller needs too.
struct Pods {
  Pods(World& world, const ClusterFile& file, const HeadMachineSettings& settings) {
    PodMachinesSettings of;
    of.env = rest::environment_of(settings.env);
    auto made = std::make_unique<PodMachines>(world, std::move(of));
    cloud = made.get();
    instances = std::make_unique<CloudInstances>(world, std::move(made), settings_for_person(), Log());
    instances->configure(cluster_spec_of(file).provider_config);
  }
  PodMachines* cloud = nullptr;
  std::unique_ptr<CloudInstances> instances;
};

}  // namespace

Task<HeadMachine> make_pod_head(World& world, const ClusterFile& wanted, HeadMachineSettings settings) {
  const ClusterFile file = where_it_was(world, wanted, settings);
  const Pods pods(world, file, settings);
  co_await pods.cloud->open();
  note_place(world, *pods.cloud, settings);
  if (settings.on_progress) settings.on_progress("Kubernetes: the head's account");
  provider::NodeOrder order = provider::head_order(file);
  HeadAccount account = head_account_of(file.name, order.type.node_config);
  co_await apply_head_account(pods.cloud->client(), pods.cloud->namespace_name(), file.name, std::move(account));
  HeadMachine head;
  const auto note = co_await apply_head_service(pods.cloud->client(), pods.cloud->namespace_name(), file.name);
  if (note) head.notes.push_back(*note);
  if (settings.on_progress) settings.on_progress("Kubernetes: the head's pod");
  head.carry = nlohmann::json::object();
  co_await create_head(*pods.instances, file, head);
  co_return head;
}

Task<HeadMachine> find_pod_head(World& world, const ClusterFile& wanted, HeadMachineSettings settings) {
  const ClusterFile file = where_it_was(world, wanted, settings);
  const Pods pods(world, file, settings);
  co_await pods.cloud->open();
  HeadMachine head;
  NodeId node{kHeadNode};
  const std::optional<provider::Machine> machine = co_await pods.instances->find(std::move(node));
  head.found = machine && !machine->host.host.empty();
  if (!head.found) co_return head;
  head.host = machine->host;
  head.address = machine->address;
  head.instance = machine->id;
  note_place(world, *pods.cloud, settings);
  co_return head;
}

Task<HeadMachine> end_pod_head(World& world, const ClusterFile& wanted, HeadMachineSettings settings) {
  const ClusterFile file = where_it_was(world, wanted, settings);
  const Pods pods(world, file, settings);
  co_await pods.cloud->open();
  if (settings.on_progress) settings.on_progress("Kubernetes: ending the pods");
  RemovedSurroundings removed =
      co_await remove_head_set(pods.cloud->client(), pods.cloud->namespace_name(), file.name);
  const size_t ended = co_await pods.instances->end_all();
  const RemovedSurroundings rest =
      co_await remove_head_account(pods.cloud->client(), pods.cloud->namespace_name(), file.name);
  removed.removed.insert(removed.removed.end(), rest.removed.begin(), rest.removed.end());
  removed.kept.insert(removed.kept.end(), rest.kept.begin(), rest.kept.end());
  world.files.remove_tree(place_file(settings));
  co_return ended_head(ended, removed);
}

}  // namespace rubato::clouds

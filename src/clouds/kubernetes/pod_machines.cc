#include "clouds/kubernetes/pod_machines.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "rest/environment.h"

namespace rubato::clouds {
namespace {

using kubernetes::list_in;
using kubernetes::object_in;
using kubernetes::ObjectName;
using kubernetes::pods;
using kubernetes::text_in;
using nlohmann::json;

constexpr int kPageSize = 500;

const kubernetes::Resource& stateful_sets() {
  static const kubernetes::Resource resource{"apps", "v1", "statefulsets", "StatefulSet"};
  return resource;
}

Error cannot_stop() { return Error(ErrorCode::kUsage, "a pod cannot be stopped, only ended"); }

}  // namespace

PodMachines::PodMachines(World& world, PodMachinesSettings settings) : world_(world), settings_(std::move(settings)) {}

CloudRules PodMachines::configure(const json& told) {
  PodConfig config = pod_config_from_json(told);
  if (settings_.on_head) config.context.clear();
  if (config_ && config_->namespace_name != config.namespace_name) {
    throw Error(ErrorCode::kUsage, fmt::format("the cluster's pods are in the namespace '{}'", config_->namespace_name),
                "", "run rubato down first, then rubato up in the other namespace");
  }
  config_ = std::move(config);
  CloudRules rules;
  rules.cluster = config_->cluster;
  return rules;
}

Task<void> PodMachines::open() {
  if (client_) co_return;
  kubernetes::AccessSettings access;
  access.env = settings_.env;
  access.context = config_->context;
  client_ = std::make_unique<kubernetes::Client>(world_, kubernetes::open_access(world_, access));
  namespace_ = config_->namespace_name.empty() ? client_->access().namespace_name() : config_->namespace_name;
  // Later commands go where this one has been, whatever the kubeconfig's current context is by then.
  const std::string& context = client_->access().context();
  if (!settings_.on_head && context != "in-cluster") config_->context = context;
}

kubernetes::Client& PodMachines::client() {
  CHECK(client_ != nullptr);
  return *client_;
}

const std::string& PodMachines::namespace_name() const { return namespace_; }

Task<std::vector<CloudMachine>> PodMachines::list() {
  std::vector<CloudMachine> out;
  const std::string selector = fmt::format("{}={}", kClusterLabelOfPods, config_->cluster);
  std::string next;
  do {
    const kubernetes::ListPage page = co_await client_->list(pods(), namespace_, selector, kPageSize, next);
    const json document = kubernetes::read_document(page.body, "list pods");
    const WallTime now = world_.clock.wall();
    for (const json& pod : list_in(document, "items")) {
      out.push_back(machine_of_pod(*config_, pod, namespace_, now));
    }
    next = text_in(object_in(document, "metadata"), "continue");
  } while (!next.empty());
  std::vector<std::string> over = remember_ended(out);
  if (!over.empty()) co_await end(std::move(over));
  co_return out;
}

// Nothing but its object is left of a pod that has ended; one that cannot start is given up, even if it starts after
// all. Returns those that are to go: a person's command does not live to see them again.
std::vector<std::string> PodMachines::remember_ended(std::vector<CloudMachine>& machines) {
  const Instant now = world_.clock.now();
  const std::map<std::string, Ended> before = std::exchange(ended_, {});
  std::vector<std::string> over;
  for (CloudMachine& one : machines) {
    const auto known = before.find(one.id);
    if (known == before.end() && one.state != MachineState::kEnded) continue;
    const Ended entry = known == before.end() ? Ended{now, one.end_reason, one.lacked_stock} : known->second;
    ended_[one.id] = entry;
    one.end_reason = entry.reason;
    one.lacked_stock = entry.lacked_stock;
    if (one.state == MachineState::kEnding) continue;
    one.state = MachineState::kEnded;
    if (!settings_.on_head || now - entry.since >= settings_.keep_ended) over.push_back(one.id);
  }
  return over;
}

bool PodMachines::fit_together(const std::vector<NodeId>& nodes) const {
  (void)nodes;
  return true;
}

size_t PodMachines::count_places(const LaunchOrder& order) {
  (void)pod_manifest(*config_, order.sample, order.nodes.front());
  return 1;
}

// The pod's id; nullopt: its name is still that of one that ends.
Task<std::optional<std::string>> PodMachines::try_make(json manifest, const NodeId& node) {
  const std::string name = text_in(object_in(manifest, "metadata"), "name");
  bool taken = false;
  try {
    const json made = co_await client_->create(pods(), namespace_, std::move(manifest));
    co_return pod_id(made);
  } catch (const rest::CloudError& error) {
    if (error.reason != "AlreadyExists") throw;
    taken = true;
  }
  CHECK(taken);
  const ObjectName object{namespace_, name};
  const std::optional<json> found = co_await client_->find(pods(), object);
  if (!found) co_return std::nullopt;
  const CloudMachine machine = machine_of_pod(*config_, *found, namespace_, world_.clock.wall());
  const std::string owner = text_in(object_in(object_in(*found, "metadata"), "labels"), kClusterLabelOfPods);
  if (owner != config_->cluster || machine.node != node) {
    throw Error(ErrorCode::kConflict, fmt::format("the pod {}/{} is somebody else's", namespace_, name), "",
                "give the cluster another name, or delete the pod");
  }
  const bool given_up = ended_.contains(machine.id);
  if (is_alive(machine) && !given_up) co_return machine.id;  // made by one of us who has died since
  if (machine.state != MachineState::kEnding) {
    co_await client_->remove(pods(), object, pod_of_id(machine.id).uid);
  }
  co_return std::nullopt;
}

Task<std::string> PodMachines::make(json manifest, const NodeId& node) {
  const Instant deadline = world_.clock.now() + settings_.free_timeout;
  while (true) {
    json one = manifest;
    const std::optional<std::string> id = co_await try_make(std::move(one), node);
    if (id) co_return *id;
    if (world_.clock.now() >= deadline) {
      throw Error(ErrorCode::kUnavailable, fmt::format("the pod that {} had before still ends", node.value));
    }
    co_await Sleep(world_.clock.loop(), world_.clock.now() + settings_.free_pause);
  }
}

// One that its StatefulSet makes again; without the right to make such sets, a pod as any other.
Task<std::string> PodMachines::make_head(json manifest, const NodeId& node) {
  if (!outlives_its_pod(manifest)) co_return co_await make(std::move(manifest), node);
  const ObjectName set{namespace_, text_in(object_in(manifest, "metadata"), "name")};
  bool allowed = true;
  try {
    co_await client_->create(stateful_sets(), namespace_, head_set(namespace_, manifest));
  } catch (const rest::CloudError& error) {
    allowed = error.code != ErrorCode::kAuth;
    if (allowed && error.reason != "AlreadyExists") throw;
  }
  if (!allowed) co_return co_await make(std::move(manifest), node);
  const std::optional<json> made = co_await client_->find(stateful_sets(), set);
  if (!made || text_in(object_in(object_in(*made, "metadata"), "labels"), kClusterLabelOfPods) != config_->cluster) {
    throw Error(ErrorCode::kConflict, fmt::format("the stateful set {} is somebody else's", to_string(set)), "",
                "give the cluster another name, or delete it");
  }
  const ObjectName first{namespace_, set.name + "-0"};
  const Instant deadline = world_.clock.now() + settings_.free_timeout;
  while (world_.clock.now() < deadline) {
    const std::optional<json> pod = co_await client_->find(pods(), first);
    if (pod && is_alive(machine_of_pod(*config_, *pod, namespace_, world_.clock.wall()))) co_return pod_id(*pod);
    co_await Sleep(world_.clock.loop(), world_.clock.now() + settings_.free_pause);
  }
  throw Error(ErrorCode::kUnavailable, fmt::format("the stateful set {} makes no pod", to_string(set)), "",
              fmt::format("kubectl describe statefulset {} -n {}", set.name, namespace_));
}

Task<MachineCloud::Launched> PodMachines::launch_at(LaunchOrder order, size_t place) {
  (void)place;
  Launched out;
  out.place = namespace_;
  for (const NodeId& node : order.nodes) {
    try {
      json manifest = pod_manifest(*config_, order.sample, node);
      Task<std::string> making =
          order.sample.of_head ? make_head(std::move(manifest), node) : make(std::move(manifest), node);
      out.ids[node] = co_await std::move(making);
    } catch (const Error& error) {
      out.error = as_usage(error);
    }
  }
  co_return out;
}

Task<void> PodMachines::start(std::string, NodeId) {
  throw cannot_stop();
  co_return;
}

Task<void> PodMachines::stop(std::vector<std::string>) {
  throw cannot_stop();
  co_return;
}

Task<void> PodMachines::end(std::vector<std::string> ids) {
  for (const std::string& id : ids) {
    const PodName pod = pod_of_id(id);
    const ObjectName object{namespace_, pod.name};
    co_await client_->remove(pods(), object, pod.uid);
  }
}

Task<void> PodMachines::write_status(std::vector<std::string> ids, std::string status) {
  for (const std::string& id : ids) {
    const ObjectName object{namespace_, pod_of_id(id).name};
    json patch = {{"metadata", {{"annotations", {{"rubato.dev/status", status}}}}}};
    co_await client_->merge_patch(pods(), object, "", std::move(patch));
  }
}

std::unique_ptr<provider::Instances> make_pod_instances(World& world, const provider::InstancesSettings& settings,
                                                        const Log& log) {
  PodMachinesSettings of;
  of.env = rest::environment_of(settings.env);
  of.on_head = true;
  auto cloud = std::make_unique<PodMachines>(world, std::move(of));
  CloudInstancesSettings on_head = settings_on_head(world, settings);
  on_head.public_head = true;  // a pod is reached by its name, from wherever
  return std::make_unique<CloudInstances>(world, std::move(cloud), std::move(on_head), log);
}

}  // namespace rubato::clouds

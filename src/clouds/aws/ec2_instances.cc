#include "clouds/aws/ec2_instances.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "aws/policy.h"
#include "clouds/aws/file_systems.h"
#include "rest/cloud_error.h"

namespace rubato::clouds {
namespace {

using aws::Instance;
using rest::CloudError;

constexpr int kTokenRounds = 64;  // machines of one node that have ended, in one life of the cluster
constexpr size_t kIdsMax = 500;  // of one call
// Of names that `up` has just made, or seen.
constexpr std::string_view kNewNames[] = {"InvalidGroup.NotFound", "InvalidKeyPair.NotFound",
                                          "InvalidPlacementGroup.Unknown"};

MachineState state_of(const Instance& instance) {
  static const std::map<std::string, MachineState, std::less<>> kStates = {
      {"pending", MachineState::kStarting},      {"running", MachineState::kRunning},
      {"stopping", MachineState::kStopping},     {"stopped", MachineState::kStopped},
      {"shutting-down", MachineState::kEnding},  {"terminated", MachineState::kEnded}};
  const auto found = kStates.find(instance.state);
  return found == kStates.end() ? MachineState::kStopping : found->second;
}

}  // namespace

CloudMachine machine_of(const Instance& from) {
  CloudMachine out;
  out.id = from.id;
  out.state = state_of(from);
  out.node = node_of(from);
  out.launch_hash = from.tag(kHashTag);
  out.zone = from.zone;
  out.network = from.subnet;
  out.private_address = from.private_address;
  out.public_address = from.public_address;
  out.end_reason = from.state_reason;
  out.lacked_stock = from.state_reason.starts_with("Server.");
  out.spot = from.spot;
  return out;
}

Ec2Machines::Ec2Machines(World& world, Ec2Settings settings) : world_(world), settings_(std::move(settings)) {}

CloudRules Ec2Machines::configure(const nlohmann::json& told) {
  Ec2Config config = ec2_config_from_json(told);
  if (config_ && config_->region != config.region) {
    throw Error(ErrorCode::kUsage, fmt::format("the cluster's machines are in {}", config_->region),
                config.provider_where, "run rubato down first, then rubato up in the other region");
  }
  config_ = std::move(config);
  return {config_->cluster, config_->cache_stopped, config_->internal_head};
}

Task<void> Ec2Machines::open() {
  if (client_) co_return;
  aws::Settings settings;
  settings.env = settings_.env;
  // Where `up` asked, unless somebody has told this machine otherwise.
  if (settings_.around || world_.files.exists(settings_.surroundings_file)) {
    const bool told = settings.env.contains("AWS_ENDPOINT_URL");
    for (const auto& [name, url] : around().endpoints) {
      if (!told) settings.env.emplace(name, url);
    }
  }
  settings.region = config_->region;
  std::unique_ptr<aws::Client> opened = co_await aws::open_client(world_, std::move(settings));
  if (!client_) client_ = std::move(opened);
}

aws::Client& Ec2Machines::client() {
  CHECK(client_ != nullptr);
  return *client_;
}

Ec2Surroundings Ec2Machines::around() {
  if (settings_.around) return *settings_.around;
  return surroundings_from_json(read_surroundings_file(world_, settings_.surroundings_file));
}

Task<std::vector<CloudMachine>> Ec2Machines::list() {
  std::vector<aws::Filter> filters;
  filters.push_back({"tag:" + std::string(aws::kClusterTag), {config_->cluster}});
  std::vector<std::string> any;
  const auto found = co_await aws::describe_instances(*client_, std::move(any), std::move(filters));
  std::vector<CloudMachine> out;
  for (const Instance& one : found) {
    // Whatever the filter let through: what is not ours might be ended.
    if (one.tag(aws::kClusterTag) == config_->cluster) out.push_back(machine_of(one));
  }
  co_return out;
}

// ---- making ----

// A tag holds the names of all machines of a request.
bool Ec2Machines::fit_together(const std::vector<NodeId>& nodes) const {
  return nodes.size() <= kBatchMax && pack_nodes(nodes).has_value();
}

size_t Ec2Machines::count_places(const LaunchOrder& order) { return plan_launch(*config_, around(), order).size(); }

Task<MachineCloud::Launched> Ec2Machines::launch_at(LaunchOrder order, size_t place) {
  Launched out;
  // EC2 may give fewer than asked for, and more when asked again: until it has none.
  while (!order.nodes.empty() && !out.error) {
    std::map<NodeId, std::string> ids;
    try {
      LaunchRequest request = plan_launch(*config_, around(), order)[place];
      out.place = request.place;
      std::vector<Instance> got = co_await run(std::move(request));
      ids = co_await assign(order.nodes, std::move(got));
    } catch (const Error& error) {
      out.error = error;
    }
    if (ids.empty()) break;
    for (const auto& [node, id] : ids) std::erase(order.nodes, node);
    out.ids.merge(ids);
  }
  co_return out;
}

// By EC2's index of each machine in its request. Where that repeats, it is worth nothing: then in order, and written on
// the machines.
Task<std::map<NodeId, std::string>> Ec2Machines::assign(std::vector<NodeId> nodes, std::vector<Instance> got) {
  std::map<NodeId, std::string> ids;
  bool repeats = false;
  for (const Instance& one : got) {
    const auto index = static_cast<size_t>(std::max(one.launch_index, 0));
    repeats = repeats || index >= nodes.size() || !ids.emplace(nodes[index], one.id).second;
  }
  if (!repeats) co_return ids;
  ids.clear();
  for (size_t i = 0; i < got.size() && i < nodes.size(); ++i) {
    std::vector<std::string> one{got[i].id};
    aws::Tags tags{{std::string(kNodeTag), nodes[i].value}};
    co_await aws::create_tags(*client_, std::move(one), std::move(tags));
    ids[nodes[i]] = got[i].id;
  }
  co_return ids;
}

// What was made a moment ago, and EC2 may not have heard of yet.
bool Ec2Machines::may_come(const std::string& reason) {
  if (reason == "InvalidParameterValue") return settings_.new_profile || !around().worker_profile.empty();
  return settings_.around && std::ranges::find(kNewNames, reason) != std::end(kNewNames);
}

Task<bool> Ec2Machines::knows_type(const nlohmann::json& config) {
  std::vector<std::string> names;
  if (const std::string name = config.value("InstanceType", ""); !name.empty()) names.push_back(name);
  if (names.empty()) co_return true;  // a launch template's
  try {
    const auto found = co_await aws::describe_instance_types(*client_, std::move(names));
    co_return !found.empty() || client_->has_own_endpoint(aws::kEc2);
  } catch (const CloudError& error) {
    // Else: who may not ask, or a server that cannot tell.
    co_return error.reason != "InvalidInstanceType" && error.reason != "InvalidParameterValue";
  }
}

Task<std::vector<Instance>> Ec2Machines::run(LaunchRequest request) {
  const Instant deadline = world_.clock.now() + settings_.profile_timeout;
  bool has_type = false;
  for (int round = 0; round < kTokenRounds;) {
    aws::Launch launch;
    launch.config = &request.config;
    launch.count = request.count;
    launch.client_token = token_of(request, round);
    bool was_another = false;
    std::optional<Error> not_yet;
    std::vector<Instance> got;
    try {
      got = co_await aws::run_instances(*client_, std::move(launch));
    } catch (const CloudError& error) {
      was_another = error.reason == "IdempotentParameterMismatch";
      if (may_come(error.reason) && world_.clock.now() < deadline) not_yet = as_usage(error);
      if (!was_another && !not_yet) throw as_usage(error);
    }
    if (not_yet) {
      // EC2 has the same code for what will never be: a type that it does not have is not waited for.
      if (!has_type) has_type = co_await knows_type(request.config);
      if (!has_type) throw *not_yet;
      co_await Sleep(world_.clock.loop(), world_.clock.now() + settings_.profile_pause);
      continue;
    }
    ++round;
    if (was_another) continue;  // of an earlier time, with another image or network
    co_await tag_untagged(request.config, got);
    std::erase_if(got, [](const Instance& one) { return is_gone(machine_of(one)); });
    if (!got.empty()) co_return got;
  }
  throw Error(ErrorCode::kUnavailable, fmt::format("EC2 gives machines in {} that have ended already", request.place));
}

// AWS answers with the tags that it gave. A server that does not may have passed over those of the request: nobody
// would ever find these machines again.
Task<void> Ec2Machines::tag_untagged(const nlohmann::json& config, const std::vector<Instance>& got) {
  std::vector<std::string> ids;
  for (const Instance& one : got) {
    if (one.tag(aws::kClusterTag).empty() && !is_gone(machine_of(one))) ids.push_back(one.id);
  }
  if (ids.empty()) co_return;
  aws::Tags tags;
  for (const nlohmann::json& kind : config.value("TagSpecifications", nlohmann::json::array())) {
    if (kind.value("ResourceType", "") != "instance") continue;
    for (const nlohmann::json& one : kind.value("Tags", nlohmann::json::array())) {
      tags.emplace_back(one.value("Key", ""), one.value("Value", ""));
    }
  }
  co_await aws::create_tags(*client_, std::move(ids), std::move(tags));
}

Task<void> Ec2Machines::start(std::string id, NodeId node) {
  std::vector<std::string> ids{id};
  aws::Tags tags{{std::string(kNodeTag), node.value}, {std::string(kStatusTag), "uninitialized"}};
  co_await aws::create_tags(*client_, ids, std::move(tags));
  co_await aws::start_instances(*client_, ids);
}

// ---- ending ----

Task<void> Ec2Machines::stop(std::vector<std::string> ids) {
  co_await aws::stop_instances(*client_, std::move(ids));
}

Task<void> Ec2Machines::end(std::vector<std::string> ids) {
  for (size_t i = 0; i < ids.size(); i += kIdsMax) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(i);
    std::vector<std::string> some(begin, begin + static_cast<std::ptrdiff_t>(std::min(kIdsMax, ids.size() - i)));
    co_await end_some(std::move(some));
  }
}

// EC2 ends none of them where it does not know one: then one after the other. What is not known has ended.
Task<void> Ec2Machines::end_some(std::vector<std::string> ids) {
  std::vector<std::string> alone;
  try {
    co_await aws::terminate_instances(*client_, ids);
  } catch (const CloudError& error) {
    if (error.code != ErrorCode::kNotFound) throw;
    if (ids.size() > 1) alone = std::move(ids);
  }
  for (std::string& id : alone) {
    std::vector<std::string> one;
    one.push_back(std::move(id));
    co_await end_some(std::move(one));
  }
}

Task<void> Ec2Machines::write_status(std::vector<std::string> ids, std::string status) {
  aws::Tags tags{{std::string(kStatusTag), status}};
  co_await aws::create_tags(*client_, std::move(ids), std::move(tags));
}

MachineCloud::Preparation Ec2Machines::prepare(const std::string& zone) {
  Preparation out;
  if (!settings_.around && !world_.files.exists(settings_.surroundings_file)) return out;
  for (const Ec2Surroundings::Mount& one : around().mounts) {
    out.host_commands.push_back(mount_script(one, zone));
    out.container_options.push_back(mount_option(one));
  }
  return out;
}

std::unique_ptr<provider::Instances> make_ec2_instances(World& world, const provider::InstancesSettings& settings,
                                                        const Log& log) {
  Ec2Settings of;
  of.env = rest::environment_of(settings.env);
  of.surroundings_file = surroundings_file_of(settings);
  auto cloud = std::make_unique<Ec2Machines>(world, std::move(of));
  return std::make_unique<CloudInstances>(world, std::move(cloud), settings_on_head(world, settings), log);
}

}  // namespace rubato::clouds

#include "clouds/gcp/gcp_instances.h"

#include <fmt/format.h>

#include <algorithm>

#include "clouds/gcp/gcp_login.h"
#include "core/scope.h"
#include "rest/cloud_error.h"
#include "rest/json.h"

namespace rubato::clouds {
namespace {

using rest::CloudError;

constexpr int kRoundsMax = 32;
// An error that is there at once is probably that of an earlier try; so many in a row are not.
constexpr int kReplaysMax = 4;
constexpr size_t kTogetherMax = 50;  // requests at the same time
constexpr Duration kLabelsTimeout = 60s;

std::string id_of(const std::string& name, const std::string& number) { return fmt::format("{}.{}", name, number); }
std::string name_of(const std::string& id) { return id.substr(0, id.rfind('.')); }

MachineState state_of(const gcp::Instance& instance) {
  static const std::map<std::string, MachineState, std::less<>> kStates = {
      {"PROVISIONING", MachineState::kStarting}, {"STAGING", MachineState::kStarting},
      {"REPAIRING", MachineState::kStarting},    {"RUNNING", MachineState::kRunning},
      {"STOPPING", MachineState::kStopping},     {"SUSPENDING", MachineState::kStopping},
      {"TERMINATED", MachineState::kStopped},    {"SUSPENDED", MachineState::kStopped}};
  const auto found = kStates.find(instance.status);
  return found == kStates.end() ? MachineState::kStopping : found->second;
}

}  // namespace

CloudMachine machine_of(const gcp::Instance& from) {
  CloudMachine out;
  out.id = id_of(from.name, from.id);
  out.state = state_of(from);
  if (const std::string& label = from.label(kNodeTag); !label.empty()) out.node = node_of_label(label);
  out.launch_hash = from.label(kHashTag);
  out.zone = from.zone;
  out.network = from.subnetwork;
  out.private_address = from.private_address;
  out.public_address = from.public_address;
  out.spot = from.spot;
  return out;
}

GcpMachines::GcpMachines(World& world, GcpMachinesSettings settings) : world_(world), settings_(std::move(settings)) {}

CloudRules GcpMachines::configure(const nlohmann::json& told) {
  GcpConfig config = gcp_config_from_json(told);
  if (config_ && (config_->region != config.region || config_->project != config.project)) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the cluster's machines are in {} of {}", config_->region, config_->project),
                config.provider_where, "run rubato down first, then rubato up in the other region or project");
  }
  config_ = std::move(config);
  return {config_->cluster, config_->cache_stopped, config_->internal_head};
}

GcpSurroundings GcpMachines::around() {
  if (settings_.around) return *settings_.around;
  return gcp_surroundings_from_json(read_surroundings_file(world_, settings_.surroundings_file));
}

Task<void> GcpMachines::open() {
  if (client_) co_return;
  gcp::Settings settings;
  settings.env = settings_.env;
  settings.given = settings_.given;
  const bool has_surroundings = settings_.around || world_.files.exists(settings_.surroundings_file);
  if (has_surroundings) {
    const GcpSurroundings told = around();
    settings.endpoint = told.endpoint;
    for (const auto& [name, url] : told.endpoints) settings.env.emplace(name, url);
  }
  client_ = gcp::open_client(world_, config_->project, std::move(settings));
}

gcp::Client& GcpMachines::client() {
  CHECK(client_ != nullptr);
  return *client_;
}

Task<std::vector<CloudMachine>> GcpMachines::list() {
  gcp::Labels labels{{std::string(kClusterLabel), config_->cluster}};
  const auto found = co_await gcp::list_instances(*client_, std::move(labels), config_->region);
  const bool any_login = std::ranges::any_of(found, [&](const gcp::Instance& one) {
    return one.uses_login && one.label(kClusterLabel) == config_->cluster;
  });
  has_used_login_ = has_used_login_ || any_login;
  std::optional<Error> no_login;
  try {
    if (any_login) co_await ensure_login();
  } catch (const Error& error) {
    no_login = error;  // who only ends machines needs no user
  }
  std::vector<CloudMachine> out;
  listed_.clear();
  for (const gcp::Instance& one : found) {
    // Whatever the filter let through: what is not ours might be ended.
    if (one.label(kClusterLabel) != config_->cluster) continue;
    out.push_back(machine_of(one));
    if (one.uses_login) out.back().user = login_user_;
    if (one.uses_login) out.back().no_user = no_login;
    listed_[out.back().id] = one;
    zones_.erase(out.back().id);
  }
  co_return out;
}

// Once: the user and the key stay when machines come and go.
Task<void> GcpMachines::ensure_login() {
  if (!login_user_.empty() || settings_.own_key.empty()) co_return;
  const std::string account = co_await gcp::login_account(*client_);
  login_user_ = co_await gcp::ensure_login_key(*client_, account, settings_.own_key, login_comment(*config_));
}

std::string GcpMachines::zone_of(const std::string& id) const {
  if (const auto found = listed_.find(id); found != listed_.end()) return found->second.zone;
  if (const auto found = zones_.find(id); found != zones_.end()) return found->second;
  throw Error(ErrorCode::kNotFound, fmt::format("the machine {} is not known", id));
}

// ---- making ----

bool GcpMachines::fit_together(const std::vector<NodeId>& nodes) const { return nodes.size() <= kTogetherMax; }

size_t GcpMachines::count_places(const LaunchOrder& order) { return zones_for(around(), order).size(); }

Task<MachineCloud::Launched> GcpMachines::launch_at(LaunchOrder order, size_t place) {
  const std::string& node_config = order.sample.type.node_config;
  const bool by_login = uses_login(node_config.empty() ? nlohmann::json::object() : nlohmann::json::parse(node_config),
                                   around().uses_login);
  if (by_login) co_await ensure_login();  // who may not is told before there is a machine
  Launched out;
  out.place = zones_for(around(), order)[place];
  std::vector<Outcome> outcomes(order.nodes.size());
  Scope requests(world_.clock.loop());
  for (size_t i = 0; i < order.nodes.size(); ++i) {
    requests.spawn(launch_one(order, order.nodes[i], out.place, outcomes[i]));
  }
  co_await requests.join();
  for (size_t i = 0; i < order.nodes.size(); ++i) {
    if (!outcomes[i].error) {
      out.ids[order.nodes[i]] = outcomes[i].id;
      continue;
    }
    // That there are no more of them here is what the next place can help with.
    if (!out.error || outcomes[i].error->code == ErrorCode::kNoCapacity) out.error = outcomes[i].error;
  }
  co_return out;
}

Task<void> GcpMachines::launch_one(const LaunchOrder& order, NodeId node, std::string zone, Outcome& outcome) {
  try {
    outcome.id = co_await insert(order, std::move(node), std::move(zone));
  } catch (const Error& error) {
    outcome.error = as_usage(error);
  }
}

// Round after round: a name that a machine of an earlier time has, or that could not be had, is not tried again.
Task<std::string> GcpMachines::insert(const LaunchOrder& order, NodeId node, std::string zone) {
  const std::string key = request_key(order, node, zone);
  const Instant deadline = world_.clock.now() + settings_.account_timeout;
  for (int tries = 0; tries < kRoundsMax;) {
    InstanceRequest request = instance_request(*config_, around(), order, node, zone, rounds_[key]);
    bool unknown_account = false;
    std::optional<std::string> made;
    try {
      made = co_await try_insert(std::move(request), node, tries);
    } catch (const CloudError& error) {
      unknown_account = settings_.new_account && (error.status == 400 || error.status == 404) &&
                        world_.clock.now() < deadline;
      if (!unknown_account) {
        if (error.code == ErrorCode::kNoCapacity || error.code == ErrorCode::kQuota) ++rounds_[key];
        throw;
      }
    }
    if (made) {
      zones_[*made] = zone;
      co_return *made;
    }
    if (unknown_account) {
      co_await Sleep(world_.clock.loop(), world_.clock.now() + settings_.account_pause);
      continue;
    }
    ++rounds_[key];
    ++tries;
  }
  throw Error(ErrorCode::kUnavailable,
              fmt::format("Compute Engine gives machines in {} that have ended already", zone));
}

// The machine's id; nullopt: the request was made before, for a machine that is no more, or failed then. Throws what it
// failed with.
Task<std::optional<std::string>> GcpMachines::try_insert(InstanceRequest request, NodeId node, int tries) {
  const std::string zone = request.zone, name = request.name;
  gcp::Operation operation;
  bool exists = false;
  try {
    operation = co_await gcp::insert_instance(*client_, zone, std::move(request.body), request.request_id);
  } catch (const CloudError& error) {
    if (error.status != 409) throw;
    exists = true;
  }
  // An operation that is done in the moment it is begun may be one of an earlier time.
  const bool was_before = exists || operation.is_done;
  if (!exists) {
    operation = co_await gcp::wait_operation(*client_, std::move(operation),
                                             world_.clock.now() + settings_.launch_timeout);
    const bool is_news = !operation.is_replayed && (!was_before || tries >= kReplaysMax);
    if (operation.error && is_news) throw *operation.error;
    if (operation.error) co_return std::nullopt;
  }
  if (!was_before && !operation.target_id.empty()) co_return id_of(name, operation.target_id);
  const std::optional<gcp::Instance> found = co_await gcp::get_instance(*client_, zone, name);
  if (!found || !is_alive(machine_of(*found)) || machine_of(*found).node != node) co_return std::nullopt;
  co_return id_of(name, found->id);
}

Task<void> GcpMachines::start(std::string id, NodeId node) {
  const std::string zone = zone_of(id), name = name_of(id);
  std::optional<gcp::Instance> found = co_await gcp::get_instance(*client_, zone, name);
  if (!found) throw Error(ErrorCode::kNotFound, fmt::format("the machine {} is gone", id));
  gcp::Labels labels{{std::string(kNodeTag), label_of_node(node).value_or("")},
                     {std::string(kStatusTag), "uninitialized"}};
  gcp::Operation named = co_await gcp::change_labels(*client_, std::move(*found), std::move(labels));
  co_await gcp::finish_operation(*client_, std::move(named), world_.clock.now() + kLabelsTimeout);
  gcp::Operation started = co_await gcp::start_instance(*client_, zone, name);
  co_await gcp::finish_operation(*client_, std::move(started), world_.clock.now() + settings_.launch_timeout);
}

// ---- ending ----

Task<void> GcpMachines::change_one(std::string id, Change change, std::string status, std::optional<Error>& error) {
  try {
    const std::string zone = zone_of(id), name = name_of(id);
    if (change == Change::kEnd) {
      co_await gcp::delete_instance(*client_, zone, name);
    } else if (change == Change::kStop) {
      co_await gcp::stop_instance(*client_, zone, name);
    } else if (const auto listed = listed_.find(id); listed != listed_.end()) {
      gcp::Instance instance = listed->second;
      gcp::Labels labels{{std::string(kStatusTag), status}};
      co_await gcp::change_labels(*client_, std::move(instance), std::move(labels));
    }
  } catch (const Error& failed) {
    // What is gone, or going, has ended.
    const bool ended = failed.code == ErrorCode::kNotFound || failed.code == ErrorCode::kConflict;
    if (change != Change::kEnd || !ended) error = failed;
  }
}

Task<void> GcpMachines::change_all(std::vector<std::string> ids, Change change, std::string status) {
  std::optional<Error> first;
  for (size_t i = 0; i < ids.size(); i += kTogetherMax) {
    const size_t count = std::min(kTogetherMax, ids.size() - i);
    std::vector<std::optional<Error>> errors(count);
    Scope requests(world_.clock.loop());
    for (size_t k = 0; k < count; ++k) requests.spawn(change_one(ids[i + k], change, status, errors[k]));
    co_await requests.join();
    for (const std::optional<Error>& one : errors) {
      if (one && !first) first = one;
    }
  }
  if (first) throw *first;
}

Task<void> GcpMachines::stop(std::vector<std::string> ids) { return change_all(std::move(ids), Change::kStop, ""); }

Task<void> GcpMachines::end(std::vector<std::string> ids) { return change_all(std::move(ids), Change::kEnd, ""); }

Task<void> GcpMachines::write_status(std::vector<std::string> ids, std::string status) {
  return change_all(std::move(ids), Change::kStatus, std::move(status));
}

std::unique_ptr<provider::Instances> make_gcp_instances(World& world, const provider::InstancesSettings& settings,
                                                        const Log& log) {
  GcpMachinesSettings of;
  of.env = rest::environment_of(settings.env);
  of.surroundings_file = surroundings_file_of(settings);
  CloudInstancesSettings on_head = settings_on_head(world, settings);
  of.own_key = on_head.head_key;
  auto cloud = std::make_unique<GcpMachines>(world, std::move(of));
  return std::make_unique<CloudInstances>(world, std::move(cloud), std::move(on_head), log);
}

}  // namespace rubato::clouds

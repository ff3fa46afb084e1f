#include "clouds/common/cloud_instances.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/text.h"

namespace rubato::clouds {
namespace {

using provider::LaunchErrors;
using provider::Machine;
using provider::NodeOrder;

constexpr Duration kStatusDelay = 1s;     // steps of many nodes come together
constexpr Duration kFreshEnough = 500ms;  // a list for who only reads

// A machine of the spot market that was taken away and stopped by it: nobody starts it again, its disk costs money.
bool is_taken(const CloudMachine& one) {
  return one.spot && (one.state == MachineState::kStopped || one.state == MachineState::kStopping);
}

}  // namespace

Error as_usage(const Error& error) {
  const bool never = error.code == ErrorCode::kFailed || error.code == ErrorCode::kNotFound;
  return Error(never ? ErrorCode::kUsage : error.code, error.message, error.where, error.hint);
}

Error not_surroundings(const std::exception& why) {
  return Error(ErrorCode::kUsage, fmt::format("this does not tell what surrounds the machines: {}", why.what()), "",
               "run rubato up with the cluster file again");
}

std::string surroundings_file_of(const provider::InstancesSettings& settings) {
  return settings.folder + "/provider-carry.json";
}

nlohmann::json read_surroundings_file(World& world, const std::string& path) {
  const auto text = world.files.read(path);
  if (!text) {
    throw Error(ErrorCode::kUsage, "nobody has said in which network the machines are", path,
                "run rubato up with the cluster file again");
  }
  return nlohmann::json::parse(*text, nullptr, false);
}

CloudInstancesSettings settings_on_head(World& world, const provider::InstancesSettings& settings) {
  CloudInstancesSettings out;
  if (const auto key = world.files.read(settings.folder + "/ssh/id_ed25519.pub")) out.head_key = trim(*key);
  Machine own;
  own.host.host = own.address = settings.address;
  own.this_machine = true;
  out.own = own;
  return out;
}

// Ends the turn also when the coroutine is cancelled.
class CloudInstances::Turn {
 public:
  explicit Turn(CloudInstances& owner) : owner_(owner) { owner_.listing_ = true; }
  Turn(const Turn&) = delete;
  ~Turn() {
    owner_.listing_ = false;
    owner_.list_done_.notify();
  }

 private:
  CloudInstances& owner_;
};

CloudInstances::CloudInstances(World& world, std::unique_ptr<MachineCloud> cloud, CloudInstancesSettings settings,
                               Log log)
    : world_(world),
      cloud_(std::move(cloud)),
      settings_(std::move(settings)),
      log_(std::move(log)),
      list_done_(world.clock.loop()),
      tasks_(world.clock.loop()) {}

void CloudInstances::configure(const std::string& provider_config) {
  if (provider_config.empty() || provider_config == told_) return;
  rules_ = cloud_->configure(nlohmann::json::parse(provider_config, nullptr, false));
  told_ = provider_config;
}

bool CloudInstances::is_own(const NodeId& node) const { return settings_.own && node.value == kHeadNode; }

// Who comes while a list is on its way, and needs a newer one, waits for the next.
Task<void> CloudInstances::refresh(Instant not_before) {
  if (!rules_) throw Error(ErrorCode::kUnavailable, "no cluster file has named a region yet");
  co_await cloud_->open();
  while (!has_list_ || listed_at_ < not_before) {
    if (listing_) {
      co_await list_done_.wait();
      continue;
    }
    const Turn turn(*this);
    const Instant asked = world_.clock.now();
    std::vector<CloudMachine> found = co_await cloud_->list();
    machines_ = std::move(found);
    listed_at_ = asked;
    has_list_ = true;
    std::erase_if(made_, [&](const auto& one) {
      const CloudMachine* machine = listed(one.second.id);
      return machine ? is_alive(*machine) && machine->node == one.first
                     : asked - one.second.at > settings_.known_timeout;
    });
    std::erase_if(claimed_, [&](const std::string& id) {
      const CloudMachine* machine = listed(id);
      return !machine || machine->state != MachineState::kStopped;
    });
  }
}

const CloudMachine* CloudInstances::listed(const std::string& id) const {
  const auto found = std::ranges::find(machines_, id, &CloudMachine::id);
  return found == machines_.end() ? nullptr : &*found;
}

std::string CloudInstances::launch_hash_of(const std::string& id) const {
  const CloudMachine* found = listed(id);
  return found ? found->launch_hash : "";
}

const CloudMachine* CloudInstances::alive(const NodeId& node) const {
  const auto belongs = [&](const CloudMachine& one) { return is_alive(one) && one.node == node; };
  const auto found = std::ranges::find_if(machines_, belongs);
  return found == machines_.end() ? nullptr : &*found;
}

const CloudMachine* CloudInstances::ended(const NodeId& node) const {
  const auto belongs = [&](const CloudMachine& one) { return is_gone(one) && one.node == node; };
  const auto found = std::ranges::find_if(machines_, belongs);
  return found == machines_.end() ? nullptr : &*found;
}

std::string CloudInstances::address_of(const CloudMachine& machine) const {
  return settings_.public_head && !rules_->internal_head ? machine.public_address : machine.private_address;
}

Machine CloudInstances::machine_of(const CloudMachine& from) const {
  Machine machine;
  machine.id = from.id;
  machine.host.host = address_of(from);
  machine.host.user = from.user;
  machine.address = from.private_address;
  return prepared(std::move(machine), from.zone);
}

Machine CloudInstances::prepared(Machine machine, const std::string& zone) const {
  MachineCloud::Preparation of = cloud_->prepare(zone);
  machine.host_commands = std::move(of.host_commands);
  machine.container_options = std::move(of.container_options);
  return machine;
}

// ---- making ----

// Orders of one type, offering and hash.
Task<void> CloudInstances::launch_group(std::vector<NodeOrder> orders, LaunchErrors& errors) {
  LaunchOrder order;
  order.sample = orders.front();
  if (!order.sample.of_head) order.head_key = settings_.head_key;
  for (const NodeOrder& one : orders) order.nodes.push_back(one.node);
  const auto give_up = [&](const Error& error) {
    for (const NodeId& node : order.nodes) errors.emplace(node, error);
  };
  size_t places = 0;
  try {
    places = cloud_->count_places(order);
  } catch (const Error& error) {
    give_up(error);
    co_return;
  }
  std::optional<Error> why;
  for (size_t i = 0; i < places && !order.nodes.empty(); ++i) {
    LaunchOrder left = order;
    MachineCloud::Launched got = co_await cloud_->launch_at(std::move(left), i);
    for (const auto& [node, id] : got.ids) {
      made_[node] = Made{id, world_.clock.now()};
      std::erase(order.nodes, node);
      log_.info("machine launched", {{"node", node.value}, {"id", id}, {"place", got.place}});
    }
    if (got.error) why = std::move(got.error);
    if (why && got.ids.empty() && why->code != ErrorCode::kNoCapacity) break;  // elsewhere it is the same
  }
  if (order.nodes.empty()) co_return;
  if (!why) {
    why.emplace(ErrorCode::kNoCapacity,
                fmt::format("{} has fewer '{}' than asked for", cloud_->name(), order.sample.type.name));
  }
  give_up(*why);
}

Task<LaunchErrors> CloudInstances::launch(std::vector<NodeOrder> orders) {
  std::erase_if(orders, [this](const NodeOrder& order) { return is_own(order.node); });
  LaunchErrors errors;
  const Instant now = world_.clock.now();
  co_await refresh(now);
  std::map<std::string, std::vector<NodeOrder>> groups;
  for (NodeOrder& order : orders) {
    if (made_.contains(order.node) || alive(order.node)) continue;
    const bool started = co_await start_stopped(order);
    if (started) continue;
    const std::string key = fmt::format("{}\n{}\n{}\n{}", order.type.name, order.launch_hash, order.offering.zone,
                                        to_string(order.offering.market));
    std::vector<NodeOrder>& group = groups[key];
    std::vector<NodeId> names;
    for (const NodeOrder& one : group) names.push_back(one.node);
    names.push_back(order.node);
    std::vector<NodeOrder> full;
    if (!group.empty() && !cloud_->fit_together(names)) full = std::exchange(group, {});
    group.push_back(std::move(order));
    if (!full.empty()) co_await launch_group(std::move(full), errors);
  }
  for (auto& [key, group] : groups) {
    if (!group.empty()) co_await launch_group(std::move(group), errors);
  }
  co_return errors;
}

// Machines that were stopped when their nodes went, made as this one would be.
std::vector<CloudMachine> CloudInstances::stopped_for(const NodeOrder& order) const {
  std::vector<CloudMachine> out;
  // The head's own is started again whatever is said of workers: the cluster's journal is on it.
  if (!order.of_head && (!rules_->cache_stopped || order.offering.market == Market::kSpot)) return out;
  for (const CloudMachine& one : machines_) {
    const bool of_head = one.node == NodeId{kHeadNode};
    const bool same = one.launch_hash == order.launch_hash && !one.spot &&
                      (order.offering.zone.empty() || one.zone == order.offering.zone);
    const bool fits = order.of_head ? of_head : same && !of_head;  // a worker's machine lacks the head's role
    if (one.state == MachineState::kStopped && fits && !claimed_.contains(one.id)) out.push_back(one);
  }
  // One that was meant for this node already, by a head that died meanwhile.
  std::ranges::stable_partition(out, [&](const CloudMachine& one) { return one.node == order.node; });
  return out;
}

Task<bool> CloudInstances::start_stopped(const NodeOrder& order) {
  const NodeId node = order.node;
  const std::vector<CloudMachine> candidates = stopped_for(order);
  for (const CloudMachine& one : candidates) {
    if (!claimed_.insert(one.id).second) continue;
    try {
      co_await cloud_->start(one.id, node);
      made_[node] = Made{one.id, world_.clock.now()};
      log_.info("stopped machine started", {{"node", node.value}, {"id", one.id}});
      co_return true;
    } catch (const Error& error) {
      log_.warning("stopped machine not started", {{"id", one.id}, {"error", error.message}});
    }
    claimed_.erase(one.id);
  }
  co_return false;
}

Task<CloudMachine> CloudInstances::wait_until_running(NodeId node) {
  const Instant begun = world_.clock.now();
  Duration pause = settings_.poll_min;
  while (true) {
    const Instant now = world_.clock.now();
    co_await refresh(now - std::max(pause / 2, kFreshEnough));
    const auto made = made_.find(node);
    const CloudMachine* found = made != made_.end() ? listed(made->second.id) : alive(node);
    if (!found && made == made_.end()) found = ended(node);  // it was there, and has a reason
    const bool running = found && found->state == MachineState::kRunning;
    if (running && found->no_user) throw *found->no_user;
    if (running && !address_of(*found).empty()) co_return *found;
    if (found && is_gone(*found)) {
      made_.erase(node);
      throw Error(found->lacked_stock ? ErrorCode::kNoCapacity : ErrorCode::kUnavailable,
                  fmt::format("machine {} ended before it had started ({})", found->id,
                              found->end_reason.empty() ? "no reason given" : found->end_reason));
    }
    if (!found && made == made_.end()) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("{} does not know the machine of {} any more", cloud_->name(), node.value));
    }
    if (running && now - begun > settings_.known_timeout) {
      throw Error(ErrorCode::kUsage, fmt::format("machine {} has no public address", found->id), found->network,
                  "use a subnet that gives public addresses, or use_internal_ips: true where you reach private ones");
    }
    if (now - begun >= settings_.create_timeout) {
      throw Error(ErrorCode::kUnavailable, fmt::format("the machine of {} does not run after {}", node.value,
                                                       format_duration(settings_.create_timeout)));
    }
    co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
    const bool boots = world_.clock.now() - begun < settings_.boot_usual;
    pause = std::min(pause * 2, boots ? std::min(settings_.poll_boot, settings_.poll_max) : settings_.poll_max);
  }
}

Task<Machine> CloudInstances::create(NodeOrder order) {
  if (is_own(order.node)) {
    const CloudMachine* const listed = alive(order.node);  // nobody is asked for it: the head starts without its cloud
    co_return prepared(*settings_.own, listed == nullptr ? "" : listed->zone);
  }
  const NodeId node = order.node;
  if (order.on_step) order.on_step("machine", fmt::format("{} of {}", order.type.name, cloud_->name()));
  if (!made_.contains(node)) {
    const Instant now = world_.clock.now();
    co_await refresh(alive(node) ? now - kFreshEnough : now);
  }
  if (!made_.contains(node) && !alive(node)) {
    const bool started = co_await start_stopped(order);
    if (!started) {
      LaunchErrors errors;
      std::vector<NodeOrder> one;
      one.push_back(std::move(order));
      co_await launch_group(std::move(one), errors);
      if (!errors.empty()) throw errors.begin()->second;
    }
  }
  const CloudMachine machine = co_await wait_until_running(node);
  note_step(node, "reachable");
  co_return machine_of(machine);
}

Task<std::optional<Machine>> CloudInstances::find(NodeId node) {
  if (is_own(node)) co_return settings_.own;
  const Instant now = world_.clock.now();
  co_await refresh(now - kFreshEnough);
  const CloudMachine* found = alive(node);
  if (!found && !made_.contains(node)) co_return std::nullopt;
  if (!found || address_of(*found).empty()) co_return Machine();  // it comes: there is something to remove
  co_return machine_of(*found);
}

Task<std::vector<NodeId>> CloudInstances::list() {
  if (!rules_) co_return std::vector<NodeId>();  // no file yet: nothing was ever made
  const Instant now = world_.clock.now();
  co_await refresh(now);
  std::set<NodeId> nodes;
  for (const CloudMachine& one : machines_) {
    // One that nothing gives a name is somebody's leftover: by its id it can be ended.
    if (is_alive(one) || is_taken(one)) nodes.insert(one.node.value_or(NodeId{one.id}));
  }
  for (const auto& [node, made] : made_) {
    const CloudMachine* found = listed(made.id);
    if (!found || !is_gone(*found)) nodes.insert(node);
  }
  // Whoever sweeps what nobody knows must not come to the machine that it runs on.
  if (settings_.own) nodes.erase(NodeId{kHeadNode});
  co_return std::vector<NodeId>(nodes.begin(), nodes.end());
}

// ---- ending ----

Task<void> CloudInstances::remove(provider::NodeRemoval removal, bool cleaned) {
  (void)cleaned;
  const NodeId node = removal.node;
  if (is_own(node)) co_return;  // whoever made it ends it, not we who stand on it
  const Instant now = world_.clock.now();
  co_await refresh(now);
  std::vector<std::string> ending, stopping;
  for (const CloudMachine& one : machines_) {
    if (one.node != node && one.id != node.value) continue;
    if (!is_alive(one) && !is_taken(one)) continue;
    const bool keep =
        rules_->cache_stopped && !one.spot && one.state == MachineState::kRunning && node.value != kHeadNode;
    (keep ? stopping : ending).push_back(one.id);
  }
  if (const auto made = made_.find(node); made != made_.end() && !listed(made->second.id)) {
    ending.push_back(made->second.id);  // the cloud may not know it yet: then this throws, and is tried again
  }
  if (!stopping.empty()) {
    bool stopped = true;
    try {
      co_await cloud_->stop(stopping);
    } catch (const Error& error) {
      if (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kAuth) throw;
      stopped = false;  // of a kind that cannot be
    }
    if (!stopped) ending.insert(ending.end(), stopping.begin(), stopping.end());
  }
  if (!ending.empty()) co_await cloud_->end(std::move(ending));
  made_.erase(node);
  status_.erase(node);
  has_list_ = false;  // who reads next sees it gone
}

Task<size_t> CloudInstances::end_all() {
  const Instant begun = world_.clock.now();
  Duration pause = settings_.poll_min;
  std::set<std::string> ended;
  while (true) {
    const Instant now = world_.clock.now();
    co_await refresh(now);
    std::vector<std::string> ids;
    bool all_gone = true;
    for (const CloudMachine& one : machines_) {
      all_gone = all_gone && one.state == MachineState::kEnded;
      const bool asked = one.state == MachineState::kStopping && ended.contains(one.id);  // some clouds end so
      if (!is_gone(one) && !asked) ids.push_back(one.id);
    }
    ended.insert(ids.begin(), ids.end());
    if (!ids.empty()) co_await cloud_->end(std::move(ids));
    if (all_gone) co_return ended.size();
    if (now - begun >= settings_.create_timeout) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("machines of '{}' are still ending after {}", rules_->cluster,
                              format_duration(settings_.create_timeout)),
                  "", "run rubato down again");
    }
    co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
    pause = std::min(pause * 2, settings_.poll_max);
  }
}

// ---- Ray's status, for people's consoles and scripts ----

void CloudInstances::note_failure(const NodeId& node, const std::string& why) {
  (void)why;
  note_step(node, "failed");
}

void CloudInstances::note_step(const NodeId& node, const std::string& step) {
  static const std::map<std::string, std::string, std::less<>> kStatus = {
      {"reachable", "waiting-for-ssh"}, {"files", "syncing-files"}, {"initialization", "setting-up"},
      {"setup", "setting-up"},          {"agent", "setting-up"},    {"up", "up-to-date"},
      {"failed", "update-failed"}};
  const auto status = kStatus.find(step);
  if (status == kStatus.end() || is_own(node)) return;
  status_[node] = status->second;
  if (!std::exchange(writing_status_, true)) tasks_.spawn(keep_status());
}

// A call for each status that some nodes have come to meanwhile.
Task<void> CloudInstances::keep_status() {
  while (!status_.empty()) {
    co_await Sleep(world_.clock.loop(), world_.clock.now() + kStatusDelay);
    std::map<std::string, std::vector<std::string>> ids;
    for (const auto& [node, status] : std::exchange(status_, {})) {
      const CloudMachine* found = alive(node);
      if (found) ids[status].push_back(found->id);
    }
    for (auto& [status, some] : ids) {
      try {
        co_await cloud_->write_status(std::move(some), status);
      } catch (const Error& error) {
        log_.warning("status not written", {{"status", status}, {"error", error.message}});
      }
    }
  }
  writing_status_ = false;
}

}  // namespace rubato::clouds

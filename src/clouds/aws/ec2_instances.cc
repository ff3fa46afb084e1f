#include "clouds/aws/ec2_instances.h"

#include <fmt/format.h>

#include <algorithm>

#include "aws/policy.h"
#include "core/text.h"
#include "rest/cloud_error.h"

namespace rubato::clouds {
namespace {

using aws::Instance;
using provider::LaunchErrors;
using provider::Machine;
using provider::NodeOrder;
using rest::CloudError;

constexpr int kTokenRounds = 8;
constexpr Duration kStatusDelay = 1s;     // steps of many nodes come together
constexpr Duration kFreshEnough = 500ms;  // a list for who only looks
constexpr size_t kIdsMax = 500;           // of one call

bool is_gone(const Instance& instance) { return instance.state == "shutting-down" || instance.state == "terminated"; }

// What no second try and no other place would change is the file's fault.
Error as_usage(const CloudError& error) {
  const bool never = error.code == ErrorCode::kFailed || error.code == ErrorCode::kNotFound;
  return Error(never ? ErrorCode::kUsage : error.code, error.message, error.where, error.hint);
}

}  // namespace

aws::Environment environment_of(const std::vector<std::string>& env) {
  aws::Environment out;
  for (const std::string& entry : env) {
    if (const auto parts = split_once(entry, '=')) out[std::string(parts->first)] = std::string(parts->second);
  }
  return out;
}

// Ends the turn also when the coroutine is cancelled.
class Ec2Instances::Turn {
 public:
  explicit Turn(Ec2Instances& owner) : owner_(owner) { owner_.listing_ = true; }
  Turn(const Turn&) = delete;
  ~Turn() {
    owner_.listing_ = false;
    owner_.list_done_.notify();
  }

 private:
  Ec2Instances& owner_;
};

Ec2Instances::Ec2Instances(World& world, Ec2InstancesSettings settings, Log log)
    : world_(world),
      settings_(std::move(settings)),
      log_(std::move(log)),
      list_done_(world.clock.loop()),
      tasks_(world.clock.loop()) {}

void Ec2Instances::configure(const std::string& provider_config) {
  if (provider_config.empty() || provider_config == told_) return;
  const auto told = nlohmann::json::parse(provider_config, nullptr, false);
  Ec2Config config = ec2_config_from_json(told);
  if (config_ && config_->region != config.region) {
    throw Error(ErrorCode::kUsage, fmt::format("the cluster's machines are in {}", config_->region),
                config.provider_where, "run rubato down first, then rubato up in the other region");
  }
  config_ = std::move(config);
  told_ = provider_config;
}

Task<void> Ec2Instances::open() {
  if (!config_) throw Error(ErrorCode::kUnavailable, "no cluster file has named a region yet");
  if (client_) co_return;
  aws::Settings settings;
  settings.env = settings_.env;
  settings.region = config_->region;
  std::unique_ptr<aws::Client> opened = co_await aws::open_client(world_, std::move(settings));
  if (!client_) client_ = std::move(opened);
}

aws::Client& Ec2Instances::client() {
  CHECK(client_ != nullptr);
  return *client_;
}

bool Ec2Instances::is_own(const NodeId& node) const { return settings_.own && node.value == kHeadNode; }

Ec2Surroundings Ec2Instances::around() {
  if (settings_.around) return *settings_.around;
  const auto text = world_.files.read(settings_.surroundings_file);
  if (!text) {
    throw Error(ErrorCode::kUsage, "nobody has said in which network the machines are", settings_.surroundings_file,
                "run rubato up with the cluster file again");
  }
  return surroundings_from_json(nlohmann::json::parse(*text, nullptr, false));
}

// Who comes while a list is on its way, and needs a newer one, waits for the next.
Task<void> Ec2Instances::refresh(Instant not_before) {
  co_await open();
  while (!has_list_ || listed_at_ < not_before) {
    if (listing_) {
      co_await list_done_.wait();
      continue;
    }
    const Turn turn(*this);
    const Instant asked = world_.clock.now();
    std::vector<aws::Filter> filters;
    filters.push_back({"tag:" + std::string(aws::kClusterTag), {config_->cluster}});
    std::vector<std::string> any;
    instances_ = co_await aws::describe_instances(*client_, std::move(any), std::move(filters));
    listed_at_ = asked;
    has_list_ = true;
    std::erase_if(made_, [&](const auto& one) {
      const Instance* found = listed(one.second.id);
      return found ? is_alive(*found) && node_of(*found) == one.first : asked - one.second.at > settings_.known_timeout;
    });
    std::erase_if(claimed_, [&](const std::string& id) {
      const Instance* found = listed(id);
      return !found || found->state != "stopped";
    });
  }
}

const Instance* Ec2Instances::listed(const std::string& id) const {
  const auto found = std::ranges::find(instances_, id, &Instance::id);
  return found == instances_.end() ? nullptr : &*found;
}

std::string Ec2Instances::launch_hash_of(const std::string& id) const {
  const Instance* found = listed(id);
  return found ? std::string(found->tag(kHashTag)) : "";
}

const Instance* Ec2Instances::alive(const NodeId& node) const {
  const auto belongs = [&](const Instance& one) { return is_alive(one) && node_of(one) == node; };
  const auto found = std::ranges::find_if(instances_, belongs);
  return found == instances_.end() ? nullptr : &*found;
}

std::string Ec2Instances::address_of(const Instance& instance) const {
  return settings_.public_head && !config_->internal_head ? instance.public_address : instance.private_address;
}

Machine Ec2Instances::machine_of(const Instance& instance) const {
  Machine machine;
  machine.id = instance.id;
  machine.host.host = address_of(instance);
  machine.address = instance.private_address;
  return machine;
}

// ---- making ----

Task<std::vector<Instance>> Ec2Instances::run(LaunchRequest request, bool is_new_profile) {
  const Instant deadline = world_.clock.now() + settings_.known_timeout;
  for (int round = 0; round < kTokenRounds;) {
    aws::Launch launch;
    launch.config = &request.config;
    launch.count = request.count;
    launch.client_token = token_of(request, round);
    bool other_words = false, unknown_profile = false;
    std::vector<Instance> got;
    try {
      got = co_await aws::run_instances(*client_, std::move(launch));
    } catch (const CloudError& error) {
      other_words = error.reason == "IdempotentParameterMismatch";
      unknown_profile = is_new_profile && error.reason == "InvalidParameterValue" && world_.clock.now() < deadline;
      if (!other_words && !unknown_profile) throw as_usage(error);
    }
    if (unknown_profile) {
      co_await Sleep(world_.clock.loop(), world_.clock.now() + settings_.poll_max);
      continue;
    }
    ++round;
    if (other_words) continue;  // of an earlier time, with another image or network
    std::erase_if(got, is_gone);
    if (!got.empty()) co_return got;
  }
  throw Error(ErrorCode::kUnavailable, fmt::format("EC2 gives machines in {} that have ended already", request.place));
}

// Orders of one type, offering and hash.
Task<void> Ec2Instances::launch_group(std::vector<NodeOrder> orders, LaunchErrors& errors) {
  LaunchOrder order;
  order.sample = orders.front();
  if (!order.sample.of_head) order.head_key = settings_.head_key;
  for (const NodeOrder& one : orders) order.nodes.push_back(one.node);
  std::optional<Error> why;
  const auto give_up = [&](const Error& error) {
    for (const NodeId& node : order.nodes) errors.emplace(node, error);
  };
  size_t places = 0;
  try {
    places = plan_launch(*config_, around(), order).size();
  } catch (const Error& error) {
    give_up(error);
    co_return;
  }
  for (size_t i = 0; i < places && !order.nodes.empty(); ++i) {
    LaunchRequest request = plan_launch(*config_, around(), order)[i];  // for those that are left
    const std::string place = request.place;
    std::vector<Instance> got;
    try {
      got = co_await run(std::move(request), settings_.new_profile);
    } catch (const Error& error) {
      why = error;
    }
    if (why && got.empty() && why->code != ErrorCode::kNoCapacity) break;  // elsewhere it is the same
    std::vector<NodeId> left = order.nodes;
    for (const Instance& one : got) {
      const auto index = static_cast<size_t>(std::max(one.launch_index, 0));
      if (index >= order.nodes.size()) continue;
      made_[order.nodes[index]] = Made{one.id, world_.clock.now()};
      std::erase(left, order.nodes[index]);
      log_.info("machine launched", {{"node", order.nodes[index].value}, {"id", one.id}, {"place", place}});
    }
    order.nodes = std::move(left);
  }
  if (order.nodes.empty()) co_return;
  if (!why)
    why.emplace(ErrorCode::kNoCapacity, fmt::format("EC2 has fewer '{}' than asked for", order.sample.type.name));
  give_up(*why);
}

Task<LaunchErrors> Ec2Instances::launch(std::vector<NodeOrder> orders) {
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
    group.push_back(std::move(order));
    std::vector<NodeId> names;
    for (const NodeOrder& one : group) names.push_back(one.node);
    if (group.size() < kBatchMax && pack_nodes(names)) continue;
    // A tag holds no more: this request is full.
    std::vector<NodeOrder> full = std::exchange(group, {});
    if (!pack_nodes(names)) {
      group.push_back(std::move(full.back()));
      full.pop_back();
    }
    co_await launch_group(std::move(full), errors);
  }
  for (auto& [key, group] : groups) {
    if (!group.empty()) co_await launch_group(std::move(group), errors);
  }
  co_return errors;
}

// Machines that were stopped when their nodes went, made as this one would be.
std::vector<Instance> Ec2Instances::stopped_for(const NodeOrder& order) const {
  std::vector<Instance> out;
  // The head's own is started again whatever is said of workers: the cluster's journal is on it.
  if (!order.of_head && (!config_->cache_stopped || order.offering.market == Market::kSpot)) return out;
  for (const Instance& one : instances_) {
    const bool of_head = node_of(one) == NodeId{kHeadNode};
    const bool same = one.tag(kHashTag) == order.launch_hash && !one.spot &&
                      (order.offering.zone.empty() || one.zone == order.offering.zone);
    const bool fits = order.of_head ? of_head : same && !of_head;  // a worker's machine lacks the head's role
    if (one.state == "stopped" && fits && !claimed_.contains(one.id)) out.push_back(one);
  }
  // One that was meant for this node already, by a head that died meanwhile.
  std::ranges::stable_partition(out, [&](const Instance& one) { return node_of(one) == order.node; });
  return out;
}

Task<bool> Ec2Instances::start_stopped(const NodeOrder& order) {
  const NodeId node = order.node;
  const std::vector<Instance> candidates = stopped_for(order);
  for (const Instance& one : candidates) {
    if (!claimed_.insert(one.id).second) continue;
    try {
      // Its name before it runs: a running machine that nobody knows would be ended.
      std::vector<std::string> ids{one.id};
      aws::Tags tags{{std::string(kNodeTag), node.value}, {std::string(kStatusTag), "uninitialized"}};
      co_await aws::create_tags(*client_, ids, std::move(tags));
      co_await aws::start_instances(*client_, ids);
      made_[node] = Made{one.id, world_.clock.now()};
      log_.info("stopped machine started", {{"node", node.value}, {"id", one.id}});
      co_return true;
    } catch (const CloudError& error) {
      log_.warning("stopped machine not started", {{"id", one.id}, {"error", error.message}});
    }
    claimed_.erase(one.id);
  }
  co_return false;
}

Task<Instance> Ec2Instances::wait_until_running(NodeId node) {
  const Instant begun = world_.clock.now();
  Duration pause = settings_.poll_min;
  while (true) {
    const Instant now = world_.clock.now();
    co_await refresh(now - std::max(pause / 2, kFreshEnough));
    const auto made = made_.find(node);
    const Instance* found = made != made_.end() ? listed(made->second.id) : alive(node);
    if (found && found->state == "running" && !address_of(*found).empty()) co_return *found;
    if (found && is_gone(*found)) {
      made_.erase(node);
      const bool stock = found->state_reason.starts_with("Server.");
      throw Error(stock ? ErrorCode::kNoCapacity : ErrorCode::kUnavailable,
                  fmt::format("machine {} ended before it had started ({})", found->id,
                              found->state_reason.empty() ? "no reason given" : found->state_reason));
    }
    if (!found && made == made_.end()) {
      throw Error(ErrorCode::kUnavailable, fmt::format("EC2 does not know the machine of {} any more", node.value));
    }
    if (found && found->state == "running" && now - begun > settings_.known_timeout) {
      throw Error(ErrorCode::kUsage, fmt::format("machine {} has no public address", found->id), found->subnet,
                  "use a subnet that gives public addresses, or use_internal_ips: true where you reach private ones");
    }
    if (now - begun >= settings_.create_timeout) {
      throw Error(ErrorCode::kUnavailable, fmt::format("the machine of {} does not run after {}", node.value,
                                                       format_duration(settings_.create_timeout)));
    }
    co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
    pause = std::min(pause * 2, settings_.poll_max);
  }
}

Task<Machine> Ec2Instances::create(NodeOrder order) {
  if (is_own(order.node)) co_return *settings_.own;
  const NodeId node = order.node;
  if (order.on_step) order.on_step("machine", fmt::format("{} of EC2", order.type.name));
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
  const Instance instance = co_await wait_until_running(node);
  note_step(node, "reachable");
  co_return machine_of(instance);
}

Task<std::optional<Machine>> Ec2Instances::find(NodeId node) {
  if (is_own(node)) co_return settings_.own;
  const Instant now = world_.clock.now();
  co_await refresh(now - kFreshEnough);
  const Instance* found = alive(node);
  if (!found && !made_.contains(node)) co_return std::nullopt;
  if (!found || address_of(*found).empty()) co_return Machine();  // it comes: there is something to remove
  co_return machine_of(*found);
}

Task<std::vector<NodeId>> Ec2Instances::list() {
  if (!config_) co_return std::vector<NodeId>();  // no file yet: nothing was ever made
  const Instant now = world_.clock.now();
  co_await refresh(now);
  std::set<NodeId> nodes;
  for (const Instance& one : instances_) {
    // One that no tag gives a name is somebody's leftover: by its id it can be ended.
    if (is_alive(one)) nodes.insert(node_of(one).value_or(NodeId{one.id}));
  }
  for (const auto& [node, made] : made_) {
    const Instance* found = listed(made.id);
    if (!found || !is_gone(*found)) nodes.insert(node);
  }
  // Whoever sweeps what nobody knows must not come to the machine that it runs on.
  if (settings_.own) nodes.erase(NodeId{kHeadNode});
  co_return std::vector<NodeId>(nodes.begin(), nodes.end());
}

// ---- ending ----

Task<void> Ec2Instances::end(std::vector<std::string> ids) {
  for (size_t i = 0; i < ids.size(); i += kIdsMax) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(i);
    std::vector<std::string> some(begin, begin + static_cast<std::ptrdiff_t>(std::min(kIdsMax, ids.size() - i)));
    co_await aws::terminate_instances(*client_, std::move(some));
  }
}

Task<void> Ec2Instances::remove(provider::NodeRemoval removal, bool cleaned) {
  (void)cleaned;
  const NodeId node = removal.node;
  if (is_own(node)) co_return;  // whoever made it ends it, not we who stand on it
  const Instant now = world_.clock.now();
  co_await refresh(now);
  std::vector<std::string> ending, stopping;
  for (const Instance& one : instances_) {
    if (!is_alive(one) || (node_of(one) != node && one.id != node.value)) continue;
    const bool keep = config_->cache_stopped && !one.spot && one.state == "running" && node.value != kHeadNode;
    (keep ? stopping : ending).push_back(one.id);
  }
  if (const auto made = made_.find(node); made != made_.end() && !listed(made->second.id)) {
    ending.push_back(made->second.id);  // EC2 may not know it yet: then this throws, and is tried again
  }
  if (!stopping.empty()) {
    bool stopped = true;
    try {
      co_await aws::stop_instances(*client_, stopping);
    } catch (const CloudError& error) {
      if (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kAuth) throw;
      stopped = false;  // of a kind that cannot be
    }
    if (!stopped) ending.insert(ending.end(), stopping.begin(), stopping.end());
  }
  if (!ending.empty()) co_await end(ending);
  made_.erase(node);
  status_.erase(node);
  has_list_ = false;  // who looks next sees it gone
}

Task<size_t> Ec2Instances::end_all() {
  const Instant begun = world_.clock.now();
  Duration pause = settings_.poll_min;
  std::set<std::string> ended;
  while (true) {
    const Instant now = world_.clock.now();
    co_await refresh(now);
    std::vector<std::string> ids;
    bool all_gone = true;
    for (const Instance& one : instances_) {
      all_gone = all_gone && one.state == "terminated";
      if (!is_gone(one)) ids.push_back(one.id);
    }
    ended.insert(ids.begin(), ids.end());
    if (!ids.empty()) co_await end(std::move(ids));
    if (all_gone) co_return ended.size();
    if (now - begun >= settings_.create_timeout) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("machines of '{}' are still ending after {}", config_->cluster,
                              format_duration(settings_.create_timeout)),
                  "", "run rubato down again");
    }
    co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
    pause = std::min(pause * 2, settings_.poll_max);
  }
}

// ---- Ray's status tags, for people's consoles and scripts ----

void Ec2Instances::note_failure(const NodeId& node, const std::string& why) {
  (void)why;
  note_step(node, "failed");
}

void Ec2Instances::note_step(const NodeId& node, const std::string& step) {
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
Task<void> Ec2Instances::keep_status() {
  while (!status_.empty()) {
    co_await Sleep(world_.clock.loop(), world_.clock.now() + kStatusDelay);
    std::map<std::string, std::vector<std::string>> ids;
    for (const auto& [node, status] : std::exchange(status_, {})) {
      const Instance* found = alive(node);
      if (found) ids[status].push_back(found->id);
    }
    for (auto& [status, some] : ids) {
      aws::Tags tags{{std::string(kStatusTag), status}};
      try {
        co_await aws::create_tags(*client_, std::move(some), std::move(tags));
      } catch (const Error& error) {
        log_.warning("tags not written", {{"status", status}, {"error", error.message}});
      }
    }
  }
  writing_status_ = false;
}

std::unique_ptr<provider::Instances> make_ec2_instances(World& world, const provider::InstancesSettings& settings,
                                                        const Log& log) {
  Ec2InstancesSettings out;
  out.env = environment_of(settings.env);
  out.surroundings_file = settings.folder + "/provider-carry.json";
  if (const auto key = world.files.read(settings.folder + "/ssh/id_ed25519.pub")) out.head_key = trim(*key);
  Machine own;
  own.host.host = own.address = settings.address;
  own.this_machine = true;
  out.own = own;
  return std::make_unique<Ec2Instances>(world, std::move(out), log);
}

}  // namespace rubato::clouds

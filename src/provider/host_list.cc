#include "provider/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace rubato::provider {

namespace {

using nlohmann::json;

int64_t microseconds_of(WallTime time) { return time.time_since_epoch().count(); }

// With its recipes: when it can be ended at last, the head has forgotten it.
json leftover_json(const NodeRemoval& left) {
  json recipes = json::array();
  for (const NodeRecipe& recipe : left.recipes) recipes.push_back(to_json(recipe));
  return {{"node", left.node.value}, {"recipes", std::move(recipes)}};
}

NodeRemoval leftover_from_json(const json& value) {
  if (value.is_string()) return NodeRemoval(NodeId{value.get<std::string>()});  // as 0.1.0 wrote it
  NodeRemoval left(NodeId{value.at("node").get<std::string>()});
  for (const json& recipe : value.at("recipes")) left.recipes.push_back(node_recipe_from_json(recipe));
  return left;
}

HostAddress host_in(const json& value) {
  const std::optional<HostAddress> host = parse_host_address(value.get<std::string>());
  if (!host) throw Error(ErrorCode::kUsage, fmt::format("'{}' is no host", value.get<std::string>()));
  return *host;
}

}  // namespace

HostList::HostList(World& world, HostListSettings settings) : world_(world), settings_(std::move(settings)) {}

void HostList::load_once() {
  if (loaded_) return;
  load();
  loaded_ = true;
}

void HostList::configure(const std::string& provider_config) {
  if (provider_config.empty()) return;
  try {
    const json told = json::parse(provider_config);
    std::optional<HostAddress> head;
    if (told.contains("head")) head = host_in(told.at("head"));
    std::vector<HostAddress> workers;
    for (const json& worker : told.at("workers")) workers.push_back(host_in(worker));
    settings_.head = std::move(head);
    settings_.workers = std::move(workers);
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kUsage, fmt::format("this is no list of hosts: {}", error.what()));
  }
}

void HostList::load() {
  const std::optional<std::string> text = world_.files.read(settings_.file);
  if (!text) return;
  try {
    const json document = json::parse(*text);
    for (const auto& [name, value] : document.at("hosts").items()) {
      Host host;
      if (value.contains("node")) host.node = NodeId{value.at("node").get<std::string>()};
      for (const json& left : value.at("leftovers")) host.leftovers.push_back(leftover_from_json(left));
      if (value.contains("failed_us")) {
        host.failed = WallTime(std::chrono::microseconds(value.at("failed_us").get<int64_t>()));
      }
      host.why = value.value("why", "");
      if (!parse_host_address(name)) throw Error(ErrorCode::kFailed, fmt::format("'{}' is no host", name));
      hosts_[name] = std::move(host);
    }
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kFailed, fmt::format("the list of hosts in use is damaged: {}", error.what()),
                settings_.file, "if no node of this cluster runs any more, remove the file");
  }
}

void HostList::save() {
  json hosts = json::object();
  for (const auto& [name, host] : hosts_) {
    json value = {{"leftovers", json::array()}};
    if (host.node) value["node"] = host.node->value;
    for (const NodeRemoval& left : host.leftovers) value["leftovers"].push_back(leftover_json(left));
    if (host.failed) value["failed_us"] = microseconds_of(*host.failed);
    if (!host.why.empty()) value["why"] = host.why;
    hosts[name] = std::move(value);
  }
  const json document = {{"hosts", std::move(hosts)}};
  world_.files.write_atomically(settings_.file, document.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

HostList::Entry* HostList::host_of(const NodeId& node) {
  load_once();
  for (Entry& entry : hosts_) {
    if (entry.second.node == node) return &entry;
  }
  return nullptr;
}

Machine HostList::machine_at(const Entry& entry) const {
  const std::optional<HostAddress> address = parse_host_address(entry.first);
  CHECK(address);
  Machine machine;
  machine.host = *address;
  machine.address = address->host;
  machine.this_machine = settings_.head && to_string(*settings_.head) == entry.first;
  machine.leftovers = entry.second.leftovers;
  return machine;
}

std::string HostList::choose() {
  // Those that did not fail lately in the order of the file, then those that did, the longest ago first.
  const int64_t now = microseconds_of(world_.clock.wall());
  const int64_t memory = std::chrono::duration_cast<std::chrono::microseconds>(settings_.failure_memory).count();
  std::string best;
  int64_t best_failed = 0;
  for (const HostAddress& address : settings_.workers) {
    const std::string name = to_string(address);
    const auto found = hosts_.find(name);
    if (found != hosts_.end() && found->second.node) continue;
    int64_t failed = found == hosts_.end() || !found->second.failed ? 0 : microseconds_of(*found->second.failed);
    if (failed + memory < now) failed = 0;
    if (best.empty() || failed < best_failed) {
      best = name;
      best_failed = failed;
    }
  }
  if (best.empty()) {
    throw Error(ErrorCode::kConflict, fmt::format("all {} worker hosts are in use", settings_.workers.size()), "",
                "add hosts to provider.worker_ips of the cluster file, or lower max_workers");
  }
  return best;
}

Task<Machine> HostList::create(NodeOrder order) {
  Entry* mine = host_of(order.node);
  if (mine == nullptr) {
    if (order.of_head && !settings_.head) throw Error(ErrorCode::kUsage, "the cluster file names no head_ip");
    const std::string name = order.of_head ? to_string(*settings_.head) : choose();
    hosts_[name].node = order.node;
    save();
    mine = host_of(order.node);
  }
  co_return machine_at(*mine);
}

Task<std::optional<Machine>> HostList::find(NodeId node) {
  const Entry* mine = host_of(node);
  if (mine == nullptr) co_return std::nullopt;
  co_return machine_at(*mine);
}

Task<void> HostList::remove(NodeRemoval removal, bool cleaned) {
  Entry* mine = host_of(removal.node);
  if (mine == nullptr) co_return;
  Host& host = mine->second;
  host.node.reset();
  if (!cleaned) {
    host.leftovers.push_back(std::move(removal));
    host.failed = world_.clock.wall();
    host.why = "it did not answer when its node was removed";
  }
  if (host.leftovers.empty() && !host.failed) {
    const std::string name = mine->first;
    hosts_.erase(name);
  }
  save();
}

Task<std::vector<NodeId>> HostList::list() {
  load_once();
  std::vector<NodeId> nodes;
  for (const auto& [name, host] : hosts_) {
    if (host.node) nodes.push_back(*host.node);
  }
  std::ranges::sort(nodes);
  co_return nodes;
}

bool HostList::is_leftover(const NodeId& node) {
  return std::ranges::any_of(hosts_, [&](const auto& entry) {
    return std::ranges::count(entry.second.leftovers, node, &NodeRemoval::node) > 0;
  });
}

void HostList::note_cleaned(const NodeId& node) {
  Entry* mine = host_of(node);
  if (mine == nullptr || mine->second.leftovers.empty()) return;
  mine->second.leftovers.clear();
  save();
}

void HostList::note_failure(const NodeId& node, const std::string& why) {
  Entry* mine = host_of(node);
  if (mine == nullptr) return;
  mine->second.failed = world_.clock.wall();
  mine->second.why = why.substr(0, why.find('\n'));
  save();
}

std::unique_ptr<Instances> make_host_list(World& world, const InstancesSettings& settings, const Log&) {
  HostListSettings list;
  list.file = settings.folder + "/hosts.json";
  return std::make_unique<HostList>(world, std::move(list));
}

}  // namespace rubato::provider

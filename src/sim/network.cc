#include "sim/network.h"

#include <algorithm>

#include "core/error.h"
#include "sim/link.h"

namespace rubato::sim {

uint16_t Node::free_port() {
  constexpr uint16_t kFirst = 32768, kLast = 60999;  // Linux's ip_local_port_range
  for (int tries = 0; tries <= kLast - kFirst; ++tries) {
    const uint16_t port = next_port;
    next_port = port == kLast ? kFirst : static_cast<uint16_t>(port + 1);
    if (!ports.contains(port)) return port;
  }
  throw Error(ErrorCode::kConflict, "no free port", name);
}

void Node::take_port(uint16_t port, SimListener* user) {
  if (!ports.emplace(port, user).second) {
    throw Error(ErrorCode::kConflict, "port " + std::to_string(port) + " is in use", name);
  }
}

SimNetwork::SimNetwork(Simulator& simulator) : simulator_(simulator), random_(simulator.random().fork()) {}
SimNetwork::~SimNetwork() = default;

Node& SimNetwork::add_node(std::string name) {
  auto node = std::make_unique<Node>();
  node->id = static_cast<NodeId>(nodes_.size());
  node->address = "10." + std::to_string(node->id >> 16) + "." + std::to_string(node->id >> 8 & 255) + "." +
                  std::to_string(node->id & 255);
  node->name = std::move(name);
  names_[node->name] = names_[node->address] = node->id;
  nodes_.push_back(std::move(node));
  return *nodes_.back();
}

Node* SimNetwork::resolve(const std::string& host, NodeId from) {
  if (host == "localhost" || host == "127.0.0.1" || host == "::1") return &node(from);
  const auto found = names_.find(host);
  return found == names_.end() ? nullptr : &node(found->second);
}

std::vector<bool> SimNetwork::members(const std::vector<NodeId>& ids) const {
  std::vector<bool> out(nodes_.size());
  for (const NodeId id : ids) out.at(static_cast<size_t>(id)) = true;
  return out;
}

SimNetwork::CutId SimNetwork::add_cut(Cut cut, NodeId first) {
  const CutId id = next_cut_++;
  simulator_.mark(cut.both ? "network.cut" : "network.cut_one_way");
  simulator_.record(EventKind::kNetwork, first, id);
  cuts_.emplace(id, std::move(cut));
  changed();
  return id;
}

SimNetwork::CutId SimNetwork::cut(const std::vector<NodeId>& from, const std::vector<NodeId>& to, Direction direction) {
  Cut cut{members(from), members(to), direction == Direction::kBoth};
  return add_cut(std::move(cut), from.empty() ? 0 : from.front());
}

SimNetwork::CutId SimNetwork::isolate(NodeId id) {
  const std::vector<NodeId> alone{id};
  Cut cut{members(alone), std::vector<bool>(nodes_.size(), true), true};
  return add_cut(std::move(cut), id);
}

void SimNetwork::heal(CutId id) {
  if (cuts_.erase(id) == 0) return;
  simulator_.record(EventKind::kNetwork, -1, id);
  changed();
}

void SimNetwork::heal() {
  cuts_.clear();
  simulator_.record(EventKind::kNetwork, -1, 0);
  changed();
}

bool SimNetwork::open(NodeId from, NodeId to) const {
  if (from == to || cuts_.empty()) return true;
  const auto holds = [](const std::vector<bool>& set, NodeId id) {
    return static_cast<size_t>(id) < set.size() && set[static_cast<size_t>(id)];
  };
  return std::none_of(cuts_.begin(), cuts_.end(), [&](const auto& entry) {
    const Cut& cut = entry.second;
    return (holds(cut.from, from) && holds(cut.to, to)) || (cut.both && holds(cut.from, to) && holds(cut.to, from));
  });
}

bool SimNetwork::deliverable(NodeId from, NodeId to) const {
  return nodes_[static_cast<size_t>(to)]->answers() && open(from, to);
}

bool SimNetwork::round_trip(NodeId a, NodeId b) const { return deliverable(a, b) && deliverable(b, a); }

Duration SimNetwork::random_up_to(Duration most) {
  return most <= Duration::zero() ? Duration::zero()
                                  : Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(most.count()))));
}

Duration SimNetwork::latency(NodeId from, NodeId to) {
  if (from == to) return faults.latency_local;
  const double u = random_.unit();
  const auto span = static_cast<double>((faults.latency_max - faults.latency_min).count());
  Duration out = faults.latency_min + Duration(static_cast<int64_t>(span * u * u * u * u));
  for (Duration again = faults.retransmit_min; faults.loss > 0 && random_.chance(faults.loss); again *= 2) {
    simulator_.mark("network.loss");
    out += again;
    if (again > 60s) break;
  }
  if (faults.stall > 0 && random_.chance(faults.stall)) {
    simulator_.mark("network.stall");
    out += random_up_to(faults.stall_max);
  }
  return out;
}

void SimNetwork::changed() {
  for (const auto& [id, link] : links_) link->path_changed();
  for (const auto& call : subscribers_) call();
}

void SimNetwork::changed(NodeId id) {
  for (const uint64_t number : links_of_[id]) links_.at(number)->path_changed();
  for (const auto& call : subscribers_) call();
}

void SimNetwork::adopt(std::shared_ptr<Link> link, uint64_t id) {
  for (const int end : {0, 1}) links_of_[link->node(end).id].insert(id);
  links_.emplace(id, std::move(link));
}

void SimNetwork::forget(uint64_t id) {
  const auto it = links_.find(id);
  if (it == links_.end()) return;
  for (const int end : {0, 1}) links_of_[it->second->node(end).id].erase(id);
  links_.erase(it);
}

void SimNetwork::lose_node(NodeId id) {
  std::vector<std::shared_ptr<Link>> lost;
  for (const uint64_t number : links_of_[id]) lost.push_back(links_.at(number));
  for (const auto& link : lost) link->lose_node(id, random_.chance(0.5));
}

}  // namespace rubato::sim

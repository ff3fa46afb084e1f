// The controller and nodes that nobody hears: whether they are dead, when they are given up, when their workers have
// surely ended. The rules are in reconcile/fence.h.
#include <fmt/format.h>

#include <algorithm>

#include "elastic/lease.h"
#include "head/controller.h"
#include "reconcile/fence.h"

namespace rubato::head {

using cluster::NodePhase;

namespace {
constexpr Duration kAskProviderEvery = 10s;
// Clouds list a new machine late: that an old one is not listed means something.
constexpr Duration kListedAfter = 5min;
constexpr Duration kListedAfterNotice = 1min;
constexpr Duration kKnockMax = 2s;
constexpr Duration kKnockAgain = 250ms;
constexpr Duration kKnockAgainMax = 5s;
// Nodes that are silent and not given up yet are looked at so often.
constexpr Duration kLookAgain = 100ms;
// A node counts as heard if it was so within this part of a heartbeat: three beats.
constexpr int kHeardPart = 2;
constexpr size_t kDoorsSpare = 64;
}  // namespace

void Controller::give_up_absent(std::vector<cluster::Event>& happened) {
  const Instant listened = listening_.at(world_.clock.now());
  std::vector<NodeId> due;
  for (const auto& [node, absence] : absent_) {
    if (absence.dead || absence.give_up <= listened) due.push_back(node);
  }
  for (const NodeId& id : due) {
    observed_.away.erase(id);
    const auto node = state_.nodes.find(id);
    const bool there = node != state_.nodes.end() &&
                       (node->second.phase == NodePhase::kUp || node->second.phase == NodePhase::kDraining);
    if (there) {
      std::optional<cluster::NodeLost> lost = judge_absent(id, absent_.at(id), listened);
      if (!lost) continue;
      happened.emplace_back(std::move(*lost));
    }
    observed_.unheard.erase(id);
    observed_.silent.erase(id);
    absent_.erase(id);
  }
}

std::optional<cluster::NodeLost> Controller::judge_absent(const NodeId& id, Absence& absence, Instant listened) {
  // One without a door of its own: that its kernel ended the connection is all that can be known.
  const bool has_door = state_.nodes.at(id).info.peer_port != 0;
  if (absence.dead || (absence.closed && !has_door)) return cluster::NodeLost{id, "its agent is gone"};
  if (const auto promise = promises_.find(state_.nodes.at(id).agent);
      promise != promises_.end() && world_.clock.now() >= promise->second)
    return cluster::NodeLost{id, "its machine has gone, as it had told"};
  const auto heard = [this](const NodeId& node) { return is_heard(node); };
  // Who holds no lease is ended by this head, and then it is known.
  const bool is_leased = observed_.leases && id.value != kHeadNode;
  const Duration allowed = is_leased ? reconcile::silence_allowed(state_, id, heard) : 0s;
  const auto answered = answered_.find(id);
  const Instant last = answered == answered_.end() ? began_ : std::max(began_, answered->second);
  if (world_.clock.now() - last >= allowed) return cluster::NodeLost{id, "nothing is heard of its agent", true};
  if (observed_.silent.insert(id).second) {
    log_.warning("a node is silent; its jobs may go on for their lease",
                 {{"node", id.value}, {"seconds", to_seconds(allowed)}});
    if (!std::exchange(asking_provider_, true)) scope_.spawn(ask_provider());
  }
  observed_.unheard.erase(id);
  absence.give_up = listened + kLookAgain;
  return std::nullopt;
}

// One that said that its machine would go by now is believed sooner.
Duration Controller::listed_after(const cluster::Node& node) const {
  const bool overdue = node.noticed && node.deadline != WallTime{} && now() >= node.deadline;
  return overdue ? kListedAfterNotice : kListedAfter;
}

Task<void> Controller::ask_provider() {
  while (!observed_.silent.empty()) {
    const std::optional<std::vector<NodeId>> listed = co_await machines_.list_machines();
    const std::set<NodeId> silent = observed_.silent;
    for (const NodeId& id : silent) {
      const auto node = state_.nodes.find(id);
      const auto absent = absent_.find(id);
      if (!listed || std::ranges::count(*listed, id) > 0 || node == state_.nodes.end() || absent == absent_.end() ||
          now() - node->second.requested < listed_after(node->second))
        continue;
      absent->second.dead = true;
      absent->second.give_up = listening_.at(world_.clock.now());
      changed_.notify();
    }
    co_await Sleep(world_.clock.loop(), world_.clock.now() + kAskProviderEvery);
  }
  asking_provider_ = false;
}

bool Controller::is_heard(const NodeId& node) const {
  const std::optional<Instant> heard = sessions_.heard(node);
  return heard && !observed_.unheard.contains(node) &&
         listening_.at(world_.clock.now()) - *heard <= settings_.heartbeat / kHeardPart;
}

elastic::LeaseAnswer::Word Controller::vouch(const NodeId& node, const AgentId& agent) {
  using Word = elastic::LeaseAnswer::Word;
  const auto it = state_.nodes.find(node);
  if (it == state_.nodes.end()) return Word::kGivenUp;
  const cluster::Node& known = it->second;
  const bool going = known.phase == NodePhase::kLost || known.phase == NodePhase::kRemoving;
  const bool is_another = !known.agent.value.empty() && known.agent != agent;
  // A newer agent of the node was welcomed; that it has joined may not be written down yet.
  if (going || (is_another && sessions_.agent_of(node) != agent)) return Word::kGivenUp;
  // Who is not connected may be given up in a moment: the time until then is not to be counted anew.
  if (known.agent != agent || !sessions_.connected(node)) return Word::kNotKnown;
  answered_[node] = world_.clock.now();
  return Word::kGoOn;
}

void Controller::fenced(const AgentId& agent, const std::vector<AgentId>& others) {
  for (const AgentId& other : others) {
    if (observed_.fenced[other].insert(agent).second) decided_ = false;
  }
  if (!decided_) changed_.notify();
}

// What is decided by: how long they have been silent, of those who may live. What nobody asks for is forgotten.
void Controller::update_silence() {
  observed_.silence.clear();
  observed_.ends_in.clear();
  std::set<AgentId> agents;
  std::set<NodeId> nodes;
  for (const JobId& id : state_.beside_cut_off) {
    for (const auto& [node, cut_off] : state_.jobs.at(id).cut_off) {
      agents.insert(cut_off.agent);
      nodes.insert(node);
      if (const auto promise = promises_.find(cut_off.agent); promise != promises_.end())
        observed_.ends_in[node] = promise->second - world_.clock.now();
    }
  }
  // What was learned of agents that are gone is forgotten now and then.
  if (std::max(doors_.size(), promises_.size()) > 2 * state_.nodes.size() + kDoorsSpare) {
    std::set<AgentId> known = agents;
    for (const auto& [id, node] : state_.nodes) known.insert(node.agent);
    std::erase_if(doors_, [&](const AgentId& agent) { return !known.contains(agent); });
    std::erase_if(promises_, [&](const auto& entry) { return !known.contains(entry.first); });
  }
  std::erase_if(observed_.fenced, [&](const auto& entry) { return !agents.contains(entry.first); });
  std::erase_if(answered_,
                [&](const auto& entry) { return !nodes.contains(entry.first) && !state_.nodes.contains(entry.first); });
  for (const NodeId& node : nodes) {
    const auto last = answered_.find(node);
    const Instant since = last == answered_.end() ? began_ : std::max(began_, last->second);
    observed_.silence[node] = world_.clock.now() - since;
    begin_to_watch(node);
  }
}

// Where the agent listens, or did when it was cut off.
std::optional<Endpoint> Controller::door_of(const NodeId& id, const AgentId& agent) const {
  const auto node = state_.nodes.find(id);
  if (node != state_.nodes.end() && node->second.agent == agent) {
    const elastic::MemberInfo& info = node->second.info;
    if (info.peer_port != 0) return Endpoint{info.address, info.peer_port};
  }
  for (const JobId& job : state_.beside_cut_off) {
    const auto& all = state_.jobs.at(job).cut_off;
    const auto found = all.find(id);
    if (found != all.end() && found->second.agent == agent && found->second.port != 0)
      return Endpoint{found->second.address, found->second.port};
  }
  return std::nullopt;
}

Task<ConnectResult> Controller::knock(Endpoint door) {
  ChannelKey key = settings_.key;
  const Instant deadline = world_.clock.now() + kKnockMax;
  co_return co_await world_.network.connect(std::move(door), std::move(key), deadline, kKnockMax);
}

// Another machine may have the same address in another network: only who was reached there once can be missed there.
Task<void> Controller::try_door(NodeId node, AgentId agent) {
  while (sessions_.connected(node) && !doors_.contains(agent)) {
    const std::optional<Endpoint> door = door_of(node, agent);
    if (door) {
      const ConnectResult result = co_await knock(*door);
      if (result.connection) doors_.insert(agent);
    }
    // The first time its node may not be written down yet.
    if (!doors_.contains(agent)) co_await Sleep(world_.clock.loop(), world_.clock.now() + kKnockAgainMax / 5);
  }
}

void Controller::begin_to_watch(const NodeId& id) {
  AgentId agent;
  const auto node = state_.nodes.find(id);
  if (node != state_.nodes.end()) agent = node->second.agent;
  for (const JobId& job : state_.beside_cut_off) {
    const auto& all = state_.jobs.at(job).cut_off;
    if (const auto found = all.find(id); found != all.end()) agent = found->second.agent;
  }
  if (doors_.contains(agent) && watched_.insert(agent).second) scope_.spawn(watch_door(id, agent));
}

bool Controller::is_missed(const NodeId& id, const AgentId& agent) const {
  const auto node = state_.nodes.find(id);
  if (absent_.contains(id) && node != state_.nodes.end() && node->second.agent == agent) return true;
  return std::ranges::any_of(state_.beside_cut_off, [&](const JobId& job) {
    const auto& all = state_.jobs.at(job).cut_off;
    const auto found = all.find(id);
    return found != all.end() && found->second.agent == agent;
  });
}

Task<void> Controller::watch_door(NodeId node, AgentId agent) {
  Duration pause = kKnockAgain;
  while (is_missed(node, agent)) {
    const std::optional<Endpoint> door = door_of(node, agent);
    if (!door) break;
    const ConnectResult result = co_await knock(*door);
    if (result.failure && result.failure->kind == ConnectFailure::Kind::kRefused && is_missed(node, agent)) {
      doors_.erase(agent);
      const auto absent = absent_.find(node);
      if (absent != absent_.end()) {
        absent->second.dead = true;
        absent->second.give_up = listening_.at(world_.clock.now());
        changed_.notify();
      } else {
        tell(cluster::NodeLost{node, "nothing listens where its agent did"});
      }
      break;
    }
    co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
    pause = std::min(2 * pause, kKnockAgainMax);
  }
  watched_.erase(agent);
}

}  // namespace rubato::head

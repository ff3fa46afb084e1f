// FakeProvider: nodes of a simulation, with the delays and failures that a test asks for.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "core/error.h"
#include "provider/node_provider.h"
#include "world/clock.h"

namespace rubato::provider {

class FakeProvider final : public NodeProvider {
 public:
  // What there is outlives a head and its clock: give the nodes from outside and let each head have its own provider.
  struct Machines {
    std::map<NodeId, NodeOrder> nodes;
    std::function<void(const NodeOrder&)> started;  // start the agent
    std::function<void(const NodeId&)> stopped;     // end the agent, if it runs
    std::function<Task<void>(NodeId)> last_output;   // LocalSettings::last_output; after `stopped`
    std::function<Task<void>(NodeId)> salvage;      // as NodeProvider's; after `stopped`
    std::function<void(const NodeId&)> removed;     // end it, if it runs
    Duration create_delay = 100ms;
    Duration remove_delay = 100ms;
    Duration launch_delay = 0s;
    std::vector<size_t> launched;     // calls for several nodes, and how many each was for
    LaunchErrors launch_errors;       // of each such call, for these nodes
    std::deque<Error> launch_throws;  // by the next calls, one each
    std::deque<Error> create_errors;  // thrown by the next calls, after the delay, one each
    std::deque<Error> remove_errors;
    int creates = 0, removes = 0;                        // calls
    std::map<NodeId, std::vector<NodeRecipe>> ended_by;  // those that were removed, and what that was told
    // Machines that do not answer: they are not ended, whatever is called.
    std::function<bool(const NodeId&)> unreachable;
    bool kills_for_sure = false;
    std::set<NodeId> left;  // removed without an answer: their agents may live
  };

  FakeProvider(Clock& clock, Machines& machines) : clock_(clock), machines_(machines) {}

  Task<LaunchErrors> launch(std::vector<NodeOrder> orders) override {
    machines_.launched.push_back(orders.size());
    co_await Sleep(clock_.loop(), clock_.now() + machines_.launch_delay);
    throw_next(machines_.launch_throws);
    LaunchErrors errors;
    for (const NodeOrder& order : orders) {
      const auto error = machines_.launch_errors.find(order.node);
      if (error != machines_.launch_errors.end()) errors.insert(*error);
    }
    co_return errors;
  }

  Task<void> create(NodeOrder order) override {
    ++machines_.creates;
    co_await Sleep(clock_.loop(), clock_.now() + machines_.create_delay);
    throw_next(machines_.create_errors);
    const bool made = machines_.nodes.emplace(order.node, order).second;
    if (made && machines_.started) machines_.started(order);
  }

  Task<void> salvage(NodeRemoval removal) override {
    const NodeId node = std::move(removal.node);
    if (!machines_.salvage || !machines_.nodes.contains(node) || !reaches(node)) co_return;
    machines_.stopped(node);
    co_await Sleep(clock_.loop(), clock_.now() + 1ms);
    Task<void> brought = machines_.salvage(node);
    co_await std::move(brought);
  }

  Task<void> remove(NodeRemoval removal) override {
    const NodeId node = removal.node;
    ++machines_.removes;
    co_await Sleep(clock_.loop(), clock_.now() + machines_.remove_delay);
    throw_next(machines_.remove_errors);
    if (!reaches(node)) {
      machines_.left.insert(node);
      machines_.nodes.erase(node);
      co_return;
    }
    if (machines_.last_output && machines_.nodes.contains(node)) {
      machines_.stopped(node);
      co_await Sleep(clock_.loop(), clock_.now() + 1ms);
      Task<void> said = machines_.last_output(node);
      co_await std::move(said);
    }
    if (machines_.nodes.erase(node) > 0 && machines_.removed) machines_.removed(node);
    machines_.ended_by[node] = std::move(removal.recipes);
  }

  bool is_ended(const NodeId& node) override { return !machines_.left.contains(node); }
  bool kills_for_sure() const override { return machines_.kills_for_sure; }
  Task<bool> kill(NodeId node) override {
    if (!machines_.kills_for_sure || !machines_.stopped) co_return false;
    machines_.stopped(node);
    co_await Sleep(clock_.loop(), clock_.now() + 1ms);
    co_return true;
  }

  Task<std::vector<NodeId>> list() override {
    std::vector<NodeId> nodes;
    for (const auto& [node, order] : machines_.nodes) nodes.push_back(node);
    co_return nodes;
  }

 private:
  bool reaches(const NodeId& node) const { return !machines_.unreachable || !machines_.unreachable(node); }
  static void throw_next(std::deque<Error>& errors) {
    if (errors.empty()) return;
    const Error error = errors.front();
    errors.pop_front();
    throw error;
  }

  Clock& clock_;
  Machines& machines_;
};

}  // namespace rubato::provider

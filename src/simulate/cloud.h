// Cloud: the machines that a simulated provider rents out, and everything that a cloud does to its customers.
//
// An instance:
//   (1) launching ──booted──▶ (2) up ──asked to remove──▶ (4) gone
//          │                    │ ──reclaimed, with notice──▶ (4)
//          └──────never boots (3)────────────────────────────┘
// It outlives heads; each head has a CloudProvider of its own. Launches of a node that is there already answer as the
// first one did. A machine is used again for later instances: empty, with the clock of a fresh boot.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "provider/node_provider.h"
#include "sim/simulation.h"
#include "simulate/scenario.h"

namespace rubato::simulate {

struct Instance {
  rubato::NodeId node;
  std::string type;
  std::string zone;
  Market market = Market::kOnDemand;
  double price_per_hour = 0;
  Instant launched{};
  Instant boots{};  // when the machine answers; Instant::max(): never
  std::optional<Instant> ended;
  bool reclaimed = false;
  bool crashed = false;
  bool hurt = false;  // something was done to it: nobody is surprised when it is given up
  int machine = 0;
  sim::SimProgram* agent = nullptr;
  std::string runtime;     // what was put on it last
  bool starting = false;   // its agent will run in a moment
  bool asked_for = false;  // with others, in one call: it needs none of its own
};

class Cloud {
 public:
  using StartAgent = std::function<sim::SimProgram&(sim::SimMachine&, const provider::NodeOrder&, Instance&)>;
  Cloud(sim::Simulation& sim, const Scenario& scenario, StartAgent start_agent);

  // ---- what a provider asks for; throw as NodeProvider says ----
  void check_call();
  Instance& launch(const provider::NodeOrder& order);
  void start(const provider::NodeOrder& order, Instance& instance);
  void remove(const rubato::NodeId& node);
  std::vector<rubato::NodeId> list() const;
  bool is_out_of_reach(const rubato::NodeId& node);  // and stays as it is for now
  Instance* find(const rubato::NodeId& node);

  // ---- faults ----
  void stock_out(const std::string& offering, Instant until);  // "type/zone/market", parts may be *
  void throttle(Instant until) { throttled_until_ = std::max(throttled_until_, until); }
  void reclaim(const rubato::NodeId& node);  // after a notice as the scenario has it
  void crash(const rubato::NodeId& node);
  void calm();  // no more reclaims, slow boots or failures

  // Sends the node's agent the notice that its machine goes, or only SIGTERM; set by whoever runs agents.
  std::function<void(Instance&, Duration in, bool by_signal)> on_notice;
  std::function<void(const Instance&)> on_remove;  // before its machine is taken away
  std::function<void(const Instance&, std::string_view what)> on_change;

  const std::map<rubato::NodeId, std::unique_ptr<Instance>>& live() const { return live_; }
  const std::vector<Instance>& past() const { return past_; }
  std::vector<std::string> offerings() const;  // of the cluster's types
  double cost(Instant now) const;
  double cost_per_hour() const { return rate_; }
  sim::SimMachine& machine_of(const Instance& instance) { return sim_.machine(instance.machine); }
  Duration call_time() { return draw(scenario_.cloud.call); }
  Duration remove_time() { return draw(scenario_.cloud.remove); }
  sim::Simulation& simulation() { return sim_; }

 private:
  void mark(std::string_view mark) const;
  Duration draw(const Span& span);
  int take_machine(const Resources& resources);
  void end(const rubato::NodeId& node, std::string_view what);
  void plan_reclaim(const rubato::NodeId& node);
  double price_of(const NodeType& type, const Offering& offering) const;

  sim::Simulation& sim_;
  const Scenario& scenario_;
  StartAgent start_agent_;
  Random random_;
  bool calm_ = false;
  std::map<rubato::NodeId, std::unique_ptr<Instance>> live_;
  std::vector<Instance> past_;
  std::map<std::string, int> of_type_;
  std::vector<int> free_machines_;
  std::map<std::string, Instant> stock_outs_;  // pattern to its end
  Instant throttled_until_{};
  std::vector<std::pair<Instant, rubato::NodeId>> vanished_;  // still listed until then
  double spent_ = 0, rate_ = 0;
};

class CloudProvider final : public provider::NodeProvider {
 public:
  CloudProvider(Clock& clock, Cloud& cloud) : clock_(clock), cloud_(cloud) {}
  Task<provider::LaunchErrors> launch(std::vector<provider::NodeOrder> orders) override;
  Task<void> create(provider::NodeOrder order) override;
  Task<void> remove(provider::NodeRemoval removal) override;
  bool is_ended(const rubato::NodeId& node) override { return cloud_.find(node) == nullptr; }
  Task<std::vector<rubato::NodeId>> list() override;

 private:
  Clock& clock_;
  Cloud& cloud_;
};

}  // namespace rubato::simulate

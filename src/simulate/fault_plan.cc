#include "simulate/fault_plan.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "simulate/coverage.h"

namespace rubato::simulate {

using sim::SimMachine;

FaultPlan::FaultPlan(Run& run)
    : run_(run), simulator_(run.sim_.simulator), random_(run.sim_.simulator.random().fork()) {}

void FaultPlan::begin() {
  const Faults& faults = run_.scenario_.faults;
  for (const Faults::StockOut& fault : faults.stock_outs) pace(fault, [this, &fault] { stock_out(fault); });
  pace(faults.throttling, [this, &faults] {
    note("fault.throttling", "the cloud throttles calls");
    run_.cloud_.throttle(run_.sim_.now() + faults.throttling.lasts);
  });
  pace(faults.partition, [this, &faults] { partition(faults.partition.lasts); });
  pace(faults.head_partition, [this, &faults] { head_partition(faults.head_partition.lasts); });
  pace(faults.head_crash, [this, &faults] {
    if (!run_.head_up()) return;
    note("fault.head_crash", "the head is killed");
    run_.kill_head(faults.head_crash.lasts);
  });
  pace(faults.agent_crash, [this] { crash_agent(); });
  pace(faults.node_crash, [this] {
    const Instance* node = hurt(some_node());
    if (!node) return;
    note("fault.node_crash", fmt::format("{} loses power", node->node.value));
    run_.cloud_.crash(node->node);
  });
  pace(faults.reclaim, [this] {
    const Instance* node = hurt(some_node());
    if (node) run_.cloud_.reclaim(node->node);
  });
  pace(faults.freeze, [this, &faults] { freeze(faults.freeze.lasts); });
  pace(faults.head_pause, [this, &faults] { pause_head(faults.head_pause.lasts); });
  pace(faults.agent_pause, [this, &faults] { pause_agent(faults.agent_pause.lasts); });
  pace(faults.head_freeze, [this, &faults] { freeze_head(faults.head_freeze.lasts); });
  pace(faults.clock_jump, [this] { jump_clock(); });
  pace(faults.disk_full, [this, &faults] { fill_disk(faults.disk_full.lasts); });
  pace(faults.head_disk_full, [this, &faults] { fill_head_disk(faults.head_disk_full.lasts); });
}

void FaultPlan::pace(const Pace& pace, std::function<void()> strike) {
  for (const Duration at : pace.at) {
    simulator_.at(Instant{} + at, [this, strike] {
      if (!run_.over_) strike();
    });
  }
  if (pace.every) again(pace, strike);
}

void FaultPlan::again(const Pace& pace, const std::function<void()>& strike) {
  const Duration wait = seconds(-std::log(1 - random_.unit()) * to_seconds(*pace.every));
  const Instant from = std::max(run_.sim_.now(), Instant{} + run_.scenario_.faults.from);
  if (from + wait >= Instant{} + run_.scenario_.faults_until()) return;
  simulator_.at(from + wait, [this, &pace, strike] {
    if (run_.over_) return;
    strike();
    again(pace, strike);
  });
}

void FaultPlan::for_a_while(Duration lasts, std::function<void()> undo) {
  const uint64_t id = next_++;
  undo_[id] = std::move(undo);
  simulator_.at(run_.sim_.now() + lasts, [this, id] {
    const auto it = undo_.find(id);
    if (it == undo_.end()) return;
    const std::function<void()> call = std::move(it->second);
    undo_.erase(it);
    call();
  });
}

void FaultPlan::calm() {
  while (!undo_.empty()) {
    const std::function<void()> call = std::move(undo_.begin()->second);
    undo_.erase(undo_.begin());
    call();
  }
}

void FaultPlan::note(std::string_view mark, std::string text) {
  CHECK(known_mark(mark));
  simulator_.mark(mark);
  run_.meter_.happening("fault", std::move(text));
}

// One whose agent runs.
Instance* FaultPlan::some_node() {
  std::vector<Instance*> nodes;
  for (const auto& [node, instance] : run_.cloud_.live()) {
    if (instance->agent && instance->agent->running()) nodes.push_back(instance.get());
  }
  return nodes.empty() ? nullptr : nodes[random_.below(nodes.size())];
}

void FaultPlan::stock_out(const Faults::StockOut& fault) {
  std::vector<std::string> offerings = fault.offerings;
  if (offerings.empty()) {
    const std::vector<std::string> all = run_.cloud_.offerings();
    offerings.push_back(all[random_.below(all.size())]);
  }
  for (const std::string& offering : offerings) {
    note("fault.stock_out", fmt::format("no {} for {}", offering, format_duration(fault.lasts)));
    run_.cloud_.stock_out(offering, run_.sim_.now() + fault.lasts);
  }
}

void FaultPlan::partition(Duration lasts) {
  const Instance* node = hurt(some_node());
  if (!node) return;
  note("fault.partition", fmt::format("{} is cut off for {}", node->node.value, format_duration(lasts)));
  const auto cut = run_.sim_.network.isolate(run_.cloud_.machine_of(*node).node());
  for_a_while(lasts, [this, cut] { run_.sim_.network.heal(cut); });
}

void FaultPlan::head_partition(Duration lasts) {
  std::vector<sim::NodeId> half;
  for (const auto& [node, instance] : run_.cloud_.live()) {
    if (instance->machine == 0 || !random_.chance(0.5)) continue;
    half.push_back(run_.sim_.machine(instance->machine).node());
    hurt(instance.get());
  }
  if (half.empty()) return;
  note("fault.head_partition",
       fmt::format("the head does not reach {} nodes for {}", half.size(), format_duration(lasts)));
  const auto direction = random_.chance(0.3) ? sim::SimNetwork::Direction::kOneWay : sim::SimNetwork::Direction::kBoth;
  const auto cut = run_.sim_.network.cut({run_.sim_.machine(1).node()}, half, direction);
  for_a_while(lasts, [this, cut] { run_.sim_.network.heal(cut); });
}

void FaultPlan::crash_agent() {
  const Instance* node = hurt(some_node());
  if (!node) return;
  note("fault.agent_crash", fmt::format("the agent of {} is killed", node->node.value));
  node->agent->kill();
}

void FaultPlan::freeze(Duration lasts) {
  const Instance* node = hurt(some_node());
  if (!node) return;
  note("fault.freeze", fmt::format("{} stands still for {}", node->node.value, format_duration(lasts)));
  SimMachine& machine = run_.cloud_.machine_of(*node);
  machine.freeze();
  for_a_while(lasts, [&machine] { machine.thaw(); });
}

Instance* FaultPlan::hurt(Instance* node) {
  if (node) node->hurt = true;
  return node;
}

void FaultPlan::pause_head(Duration lasts) {
  sim::SimProgram* head = run_.head_program_;
  if (!head || !head->running()) return;
  note("fault.head_pause", fmt::format("the head is stopped for {}", format_duration(lasts)));
  head->stop();
  for_a_while(lasts, [head] { head->resume(); });
}

void FaultPlan::freeze_head(Duration lasts) {
  SimMachine& machine = run_.sim_.machine(1);
  if (!run_.head_up() || machine.frozen()) return;
  note("fault.head_freeze", fmt::format("the head's machine stands still for {}", format_duration(lasts)));
  machine.freeze();
  for_a_while(lasts, [&machine] { machine.thaw(); });
}

// One that is stopped for less than a heartbeat is not missed by anybody.
void FaultPlan::pause_agent(Duration lasts) {
  Instance* node = some_node();
  if (!node) return;
  if (lasts >= run_.scenario_.head.heartbeat / 2) hurt(node);
  note("fault.agent_pause", fmt::format("the agent of {} is stopped for {}", node->node.value, format_duration(lasts)));
  sim::SimProgram* agent = node->agent;
  agent->stop();
  for_a_while(lasts, [agent] { agent->resume(); });
}

void FaultPlan::head_starts() {
  const Faults& faults = run_.scenario_.faults;
  if (faults.pause_new_head == 0 || run_.over_ || !random_.chance(faults.pause_new_head)) return;
  simulator_.at(run_.sim_.now() + seconds(random_.unit()), [this] {
    if (!run_.over_) pause_head(run_.scenario_.faults.head_pause.lasts);
  });
}

void FaultPlan::worker_failed(const sim::WorkerRecord& worker) {
  const Faults& faults = run_.scenario_.faults;
  if (faults.crash_after_failure == 0 || run_.over_ || !random_.chance(faults.crash_after_failure)) return;
  simulator_.at(run_.sim_.now() + seconds(random_.unit()), [this, machine = worker.machine] {
    if (run_.over_) return;
    for (const auto& [node, instance] : run_.cloud_.live()) {
      const bool other = instance->machine != 0 && run_.sim_.machine(instance->machine).node() != machine;
      if (!other || !instance->agent || !instance->agent->running() || !run_.busy(*instance)) continue;
      note("fault.crash_after_failure", fmt::format("the agent of {} is killed after a failure", node.value));
      hurt(instance.get());
      instance->agent->kill();
      return;
    }
  });
}

void FaultPlan::jump_clock() {
  const Instance* node = random_.chance(0.5) ? some_node() : nullptr;
  SimMachine& machine = node ? run_.cloud_.machine_of(*node) : run_.sim_.machine(1);
  const double share = 2 * random_.unit() - 1;
  const Duration by = seconds(share * to_seconds(run_.scenario_.faults.clock_jump_by));
  note(by < 0s ? "fault.clock_back" : "fault.clock_forward",
       fmt::format("the wall clock of {} jumps by {:.0f} s", node ? node->node.value : "the head", to_seconds(by)));
  machine.clock().step_wall(by);
}

void FaultPlan::fill_disk(Duration lasts) {
  const Instance* node = hurt(some_node());
  if (!node) return;
  note("fault.disk_full", fmt::format("the disk of {} is full for {}", node->node.value, format_duration(lasts)));
  SimMachine& machine = run_.cloud_.machine_of(*node);
  const uint64_t before = machine.disk().free_bytes();
  machine.disk().set_free_bytes(0);
  for_a_while(lasts, [&machine, before] { machine.disk().set_free_bytes(before); });
}

void FaultPlan::fill_head_disk(Duration lasts) {
  note("fault.head_disk_full", fmt::format("the head's disk is full for {}", format_duration(lasts)));
  SimMachine& machine = run_.sim_.machine(1);
  const uint64_t before = machine.disk().free_bytes();
  if (before == 0) return;
  machine.disk().set_free_bytes(0);
  for_a_while(lasts, [&machine, before] { machine.disk().set_free_bytes(before); });
}

}  // namespace rubato::simulate

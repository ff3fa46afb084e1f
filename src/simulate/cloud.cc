#include "simulate/cloud.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "simulate/coverage.h"

namespace rubato::simulate {

using rubato::NodeId;
using sim::SimMachine;

namespace {

constexpr double kSignalChance = 0.2;

double hours(Duration d) { return to_seconds(d) / 3600; }

// "gpu/us-east-1a/spot" against "gpu/*/spot"; a pattern with fewer parts matches all that begins so.
bool matches(std::string_view pattern, std::string_view offering) {
  const std::vector<std::string_view> wanted = split(pattern, '/'), have = split(offering, '/');
  if (wanted.size() > have.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != "*" && wanted[i] != have[i]) return false;
  }
  return true;
}

std::string key_of(const std::string& type, const Offering& offering) {
  return fmt::format("{}/{}/{}", type, offering.zone, to_string(offering.market));
}

}  // namespace

Cloud::Cloud(sim::Simulation& sim, const Scenario& scenario, StartAgent start_agent)
    : sim_(sim), scenario_(scenario), start_agent_(std::move(start_agent)), random_(sim.simulator.random().fork()) {}

Duration Cloud::draw(const Span& span) { return span.from + seconds(random_.unit() * to_seconds(span.to - span.from)); }

void Cloud::check_call() {
  if (sim_.now() >= throttled_until_) return;
  mark("cloud.throttled");
  throw Error(ErrorCode::kUnavailable, "the cloud refuses calls: too many requests");
}

std::vector<std::string> Cloud::offerings() const {
  std::vector<std::string> keys;
  for (const auto& [name, type] : scenario_.spec.types) {
    if (type.offerings.empty()) keys.push_back(key_of(name, Offering{}));
    for (const Offering& offering : type.offerings) keys.push_back(key_of(name, offering));
  }
  return keys;
}

// The scenario's price before the file's, which may be an estimate.
double Cloud::price_of(const NodeType& type, const Offering& offering) const {
  const auto given = scenario_.cloud.prices.find(type.name);
  if (given == scenario_.cloud.prices.end()) return offering.price_per_hour;
  return offering.market == Market::kSpot ? given->second * scenario_.cloud.spot_price : given->second;
}

// Empty and used before, else a new one.
int Cloud::take_machine(const Resources& resources) {
  if (!free_machines_.empty()) {
    const int number = free_machines_.back();
    free_machines_.pop_back();
    SimMachine& machine = sim_.machine(number);
    machine.reboot();
    machine.disk().remove_tree("/node");
    machine.disk().set_free_bytes(uint64_t{1} << 40);
    return number;
  }
  sim::MachineOptions options;
  options.clock_start = Instant{} + 1s;
  options.clock_rate_ppb = static_cast<int64_t>(random_.below(100'001)) - 50'000;  // a quartz is within ±50 ppm
  options.wall_offset = std::chrono::milliseconds(static_cast<int64_t>(random_.below(101)) - 50);
  options.cpus = static_cast<int>(std::max<int64_t>(1, resources.of(kCpu) / 1000));
  options.gpus = static_cast<int>(resources.of(kGpu) / 1000);
  sim_.add_machine(options);
  return sim_.machines();
}

bool Cloud::is_out_of_reach(const NodeId& node) {
  const Instance* const instance = find(node);
  if (!scenario_.cloud.machines_stay || !instance || instance->machine == 0) return false;
  // By a cut. One without power is carried away.
  const sim::NodeId head = sim_.machine(1).node();
  const sim::NodeId there = machine_of(*instance).node();
  const bool reached = sim_.network.open(head, there) && sim_.network.open(there, head);
  if (!reached) mark("cloud.out_of_reach");
  return !reached;
}

Instance* Cloud::find(const NodeId& node) {
  const auto it = live_.find(node);
  return it == live_.end() ? nullptr : it->second.get();
}

void Cloud::mark(std::string_view mark) const {
  CHECK(known_mark(mark));
  sim_.simulator.mark(mark);
}

Instance& Cloud::launch(const provider::NodeOrder& order) {
  if (Instance* there = find(order.node)) return *there;
  const Offering& offering = order.offering;
  const std::string key = key_of(order.type.name, offering);
  for (const auto& [pattern, until] : stock_outs_) {
    if (sim_.now() >= until || !matches(pattern, key)) continue;
    mark("cloud.stock_out");
    throw Error(ErrorCode::kNoCapacity, fmt::format("no machine of {} is to be had now", key));
  }
  const auto quota = scenario_.cloud.quota.find(order.type.name);
  int& count = of_type_[order.type.name];
  if (quota != scenario_.cloud.quota.end() && count >= quota->second) {
    mark("cloud.quota");
    throw Error(ErrorCode::kQuota, fmt::format("the account may have {} of {}", quota->second, order.type.name));
  }
  auto instance = std::make_unique<Instance>();
  instance->node = order.node;
  instance->type = order.type.name;
  instance->zone = offering.zone;
  instance->market = offering.market;
  instance->price_per_hour = price_of(order.type, offering);
  instance->launched = sim_.now();
  Duration boot = draw(scenario_.cloud.boot);
  if (!calm_ && random_.chance(scenario_.faults.slow_boot)) {
    mark("cloud.slow_boot");
    boot = seconds(to_seconds(boot) * scenario_.faults.slow_boot_factor);
  }
  instance->boots = sim_.now() + boot;
  if (!calm_ && random_.chance(scenario_.faults.boot_failure)) {
    mark("cloud.boot_failure");
    instance->boots = Instant::max();
  }
  ++count;
  rate_ += instance->price_per_hour;
  Instance& made = *live_.emplace(order.node, std::move(instance)).first->second;
  if (on_change) on_change(made, "launched");
  if (made.market == Market::kSpot) plan_reclaim(order.node);
  return made;
}

// When its machine has booted. Nothing happens when the agent runs already, with what is to be there.
void Cloud::start(const provider::NodeOrder& order, Instance& instance) {
  if (instance.machine == 0) {
    instance.machine = take_machine(order.type.resources);
  }
  const bool other = std::exchange(instance.runtime, order.runtime) != order.runtime || order.restart;
  const bool again = instance.agent != nullptr;
  if (again && instance.agent->running()) {
    if (!other || order.keep_running) return;
    mark("cloud.updated");
    instance.agent->kill();
  }
  SimMachine& machine = machine_of(instance);
  if (!machine.up() || machine.frozen()) throw Error(ErrorCode::kUnavailable, "the machine does not answer");
  if (instance.starting) return;  // it will
  const Span& first_word = scenario_.cloud.agent_start;
  if (again || first_word.to == 0s || random_.chance(0.5)) {
    instance.agent = &start_agent_(machine, order, instance);
  } else {
    instance.starting = true;
    sim_.simulator.at(sim_.now() + draw(first_word), [this, order, launched = instance.launched] {
      Instance* waited = find(order.node);
      if (!waited || waited->launched != launched) return;
      waited->starting = false;
      if (machine_of(*waited).up() && !machine_of(*waited).frozen())
        waited->agent = &start_agent_(machine_of(*waited), order, *waited);
    });
  }
}

void Cloud::end(const NodeId& node, std::string_view what) {
  const auto it = live_.find(node);
  if (it == live_.end()) return;
  Instance instance = *it->second;
  live_.erase(it);
  instance.ended = sim_.now();
  --of_type_[instance.type];
  rate_ -= instance.price_per_hour;
  spent_ += instance.price_per_hour * hours(sim_.now() - instance.launched);
  if (scenario_.cloud.list_lag > 0s) vanished_.emplace_back(sim_.now() + scenario_.cloud.list_lag, node);
  if (instance.machine != 0) {
    sim_.machine(instance.machine).crash();
    free_machines_.push_back(instance.machine);
  }
  if (on_change) on_change(instance, what);
  past_.push_back(std::move(instance));
}

// Taking a machine away from inside the head's turn would be too early: it is planned for this instant.
void Cloud::remove(const NodeId& node) {
  const Instance* instance = find(node);
  if (!instance) return;
  if (on_remove) on_remove(*instance);
  sim_.simulator.at(sim_.now(), [this, node] { end(node, "removed"); });
}

std::vector<NodeId> Cloud::list() const {
  std::vector<NodeId> nodes;
  for (const auto& [node, instance] : live_) {
    if (sim_.now() - instance->launched >= scenario_.cloud.list_lag) {
      nodes.push_back(node);
    } else {
      mark("cloud.not_listed_yet");
    }
  }
  for (const auto& [until, node] : vanished_) {
    if (sim_.now() >= until) continue;
    mark("cloud.listed_still");
    nodes.push_back(node);
  }
  return nodes;
}

void Cloud::stock_out(const std::string& offering, Instant until) {
  std::erase_if(stock_outs_, [this](const auto& entry) { return entry.second <= sim_.now(); });
  Instant& end = stock_outs_[offering];
  end = std::max(end, until);
}

void Cloud::plan_reclaim(const NodeId& node) {
  const double rate = scenario_.faults.reclaims_per_node_hour;
  if (rate <= 0 || calm_) return;
  const Duration after = seconds(std::min(1e8, -std::log(1 - random_.unit()) / rate * 3600));
  sim_.simulator.at(sim_.now() + after, [this, node] {
    if (!calm_) reclaim(node);
  });
}

void Cloud::reclaim(const NodeId& node) {
  Instance* instance = find(node);
  if (!instance || instance->reclaimed) return;
  const Duration notice = draw(scenario_.faults.reclaim_notice);
  instance->reclaimed = true;
  mark("cloud.reclaimed");
  if (on_change) on_change(*instance, "notice");
  if (notice > 0s && on_notice && instance->agent && instance->agent->running()) {
    // Some clouds only shut the machine down.
    const bool by_signal = random_.chance(kSignalChance);
    mark(by_signal ? "cloud.notice_by_signal" : "cloud.notice");
    on_notice(*instance, notice, by_signal);
  }
  sim_.simulator.at(sim_.now() + notice, [this, node] { end(node, "reclaimed"); });
}

void Cloud::crash(const NodeId& node) {
  Instance* instance = find(node);
  if (!instance || instance->machine == 0) return;
  instance->crashed = true;
  sim_.machine(instance->machine).crash();
  if (on_change) on_change(*instance, "crashed");
}

void Cloud::calm() {
  calm_ = true;
  stock_outs_.clear();
  throttled_until_ = {};
}

double Cloud::cost(Instant now) const {
  double sum = spent_;
  for (const auto& [node, instance] : live_) sum += instance->price_per_hour * hours(now - instance->launched);
  return sum;
}

Task<provider::LaunchErrors> CloudProvider::launch(std::vector<provider::NodeOrder> orders) {
  co_await Sleep(clock_.loop(), clock_.now() + cloud_.call_time());
  cloud_.check_call();
  provider::LaunchErrors errors;
  for (const provider::NodeOrder& order : orders) {
    try {
      cloud_.launch(order).asked_for = true;
    } catch (const Error& error) {
      errors.emplace(order.node, error);
    }
  }
  co_return errors;
}

Task<void> CloudProvider::create(provider::NodeOrder order) {
  if (Instance* known = cloud_.find(order.node); known && known->asked_for) {
    known->asked_for = false;
  } else {
    co_await Sleep(clock_.loop(), clock_.now() + cloud_.call_time());
    cloud_.check_call();
    cloud_.launch(order);
  }
  // The machine boots by itself; whoever asks for it, this head or the next, starts the agent once it answers.
  while (true) {
    Instance* instance = cloud_.find(order.node);
    if (!instance) throw Error(ErrorCode::kUnavailable, "the machine went away while it was booting");
    const Instant now = cloud_.simulation().now();
    if (instance->boots <= now) {
      cloud_.start(order, *instance);
      co_return;
    }
    // Looks again and again, as a real one does.
    const Duration wait = std::min<Duration>(instance->boots - now, 30s);
    co_await Sleep(clock_.loop(), clock_.now() + wait + 1ms);
  }
}

Task<void> CloudProvider::remove(provider::NodeRemoval removal) {
  const NodeId node = std::move(removal.node);
  co_await Sleep(clock_.loop(), clock_.now() + cloud_.call_time());
  cloud_.check_call();
  co_await Sleep(clock_.loop(), clock_.now() + cloud_.remove_time());
  if (cloud_.is_out_of_reach(node)) co_return;  // it is found and removed later, as a stray
  cloud_.remove(node);
  // remove() is carried out in this instant, but not in this turn.
  while (cloud_.find(node)) co_await Sleep(clock_.loop(), clock_.now() + 1ms);
}

Task<std::vector<NodeId>> CloudProvider::list() {
  co_await Sleep(clock_.loop(), clock_.now() + cloud_.call_time());
  cloud_.check_call();
  co_return cloud_.list();
}

}  // namespace rubato::simulate

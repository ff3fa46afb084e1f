#include "reconcile/scale_input.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/apply.h"
#include "core/time.h"
#include "model/provider_kind.h"

namespace rubato::reconcile {

using cluster::Job;
using cluster::JobPhase;
using cluster::later;
using cluster::Node;
using cluster::NodePhase;
using cluster::State;
using cluster::Wake;

namespace {

// All or nothing is dear to plan, and launches come a few at a time: the first in the queue are enough, and of those
// that ask for the same, fewer.
constexpr size_t kGangsMax = 256;
constexpr size_t kGangsAlike = 32;

// Demand that no cluster of this file could hold does not change the answer, and a queue may be long.
class Caps {
 public:
  explicit Caps(const State& state) : state_(state) {}

  // How many of `count` more workers of this size count.
  int64_t take(const Resources& each, int64_t count) {
    const auto [it, first] = left_.try_emplace(each, 0);
    if (first) it->second = most(each);
    const int64_t taken = std::min(count, it->second);
    it->second -= taken;
    return taken;
  }

 private:
  int64_t most(const Resources& each) const {
    int64_t sum = 0, largest = 0;
    for (const auto& [name, type] : state_.spec->types) {
      const int64_t fits = each.times_in(resources_of(state_, type));
      largest = std::max(largest, fits);
      const int64_t nodes = type.max_workers + (name == state_.spec->head_type ? 1 : 0);
      sum += std::min<int64_t>(fits, 1'000'000) * nodes;
    }
    const int64_t all = std::min<int64_t>(largest, 1'000'000) * (state_.spec->max_workers + 1);
    // One that fits nowhere is still wanted, to be told so.
    return std::max<int64_t>(1, std::min(sum, all));
  }

  const State& state_;
  std::map<Resources, int64_t> left_;
};

class InputMaker {
 public:
  InputMaker(const State& state, WallTime now, Wake& wake)
      : state_(state), spec_(*state.spec), now_(now), wake_(wake), caps_(state) {}

  policy::ScaleInput make() {
    add_limits();
    add_demand();
    add_requests();
    add_types();
    add_nodes();
    return std::move(input_);
  }

  void add_demand();
  policy::ScaleInput& input() { return input_; }

 private:
  void add_limits();
  void add_queued();
  void add_growth(const Job& job, int have);
  void add_requests();
  void add_types();
  void add_nodes();
  void add_node(const Node& node, const std::set<NodeId>& shunned);
  bool holds_some(const Resources& room) const;
  std::vector<policy::Offering> offered(const NodeType& type);
  std::string blocked(const NodeType& type, const Offering& offering);
  bool bringup();
  bool has_demand() const { return !input_.gangs.empty() || !input_.demands.empty() || !input_.requests.empty(); }
  void demand(const Resources& each, int64_t count);
  void add_gang(std::string name, const Resources& each, int count);

  const State& state_;
  const ClusterSpec& spec_;
  const WallTime now_;
  Wake& wake_;
  Caps caps_;
  policy::ScaleInput input_;
  std::map<Resources, size_t> demand_at_;
};

// They cost nothing unless the file gives a price.
bool has_own_machines(const ClusterSpec& spec) { return provider_kind(spec.provider).has_own_machines; }

// The type that workers are of when nobody says it: the only one besides the head's.
std::string worker_type(const ClusterSpec& spec) {
  std::string only;
  for (const auto& [name, type] : spec.types) {
    if (name == spec.head_type && spec.types.size() > 1) continue;
    if (!only.empty()) return "";
    only = name;
  }
  return only;
}

void InputMaker::add_limits() {
  const Scaling& scaling = spec_.scaling;
  input_.head_type = spec_.head_type;
  input_.max_workers = spec_.max_workers;
  input_.upscaling_speed = scaling.upscaling_speed;
  input_.launch_concurrency = scaling.launch_concurrency;
  input_.idle_timeout = scaling.idle_timeout;
  input_.spot = scaling.spot;
  input_.on_demand_base = scaling.on_demand_base;
  input_.price_cap = scaling.price_cap;
  input_.budget_per_hour = scaling.budget_per_hour;
}

void InputMaker::demand(const Resources& each, int64_t count) {
  count = caps_.take(each, count);
  if (count <= 0) return;
  const auto [it, first] = demand_at_.try_emplace(each, input_.demands.size());
  if (first) input_.demands.push_back({each, 0});
  input_.demands[it->second].count += count;
}

// What it lacks of its MAX, if it would take more: one whose first workers have ended well does not grow any more.
void InputMaker::add_growth(const Job& job, int have) {
  if (!job.done.empty() || job.restarts.failure_pending) return;
  const int missing = std::max(0, job.workers_worthwhile() - have);
  const int step = job.spec.workers_step;
  if (step == 1) return demand(job.spec.per_worker, missing);
  // A node for a part of a step would stand idle.
  for (size_t i = 0; i < std::min(kGangsAlike, static_cast<size_t>(missing / step)); ++i) {
    if (input_.gangs.size() >= kGangsMax || caps_.take(job.spec.per_worker, step) < step) return;
    add_gang(fmt::format("a step of job {}", job.id.value), job.spec.per_worker, step);
  }
}

// All of them at once or none.
void InputMaker::add_gang(std::string name, const Resources& each, int count) {
  policy::Gang gang;
  gang.name = std::move(name);
  gang.bundles.push_back({each, count});
  input_.gangs.push_back(std::move(gang));
}

void InputMaker::add_queued() {
  std::vector<std::tuple<int, WallTime, const Job*>> order;
  order.reserve(state_.queued.size());
  for (const JobId& id : state_.queued) {
    const Job& job = state_.jobs.at(id);
    order.emplace_back(-job.spec.priority, job.submitted, &job);
  }
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  std::map<std::pair<Resources, int>, size_t> alike;
  for (const auto& [priority, submitted, job] : order) {
    const JobSpec& spec = job->spec;
    if (spec.workers_min == 1) {
      demand(spec.per_worker, 1);
    } else if (input_.gangs.size() < kGangsMax && ++alike[{spec.per_worker, spec.workers_min}] <= kGangsAlike &&
               caps_.take(spec.per_worker, spec.workers_min) > 0) {
      add_gang(fmt::format("job {}", job->id.value), spec.per_worker, spec.workers_min);
    }
  }
  for (const auto& [priority, submitted, job] : order) add_growth(*job, job->spec.workers_min);
}

void InputMaker::add_demand() {
  if (state_.shutting_down) return;
  add_queued();
  for (const JobId& id : state_.index.elastic_jobs()) {
    const Job& job = state_.jobs.at(id);
    if (cluster::placed(job.phase)) add_growth(job, job.workers());
  }
}

void InputMaker::add_requests() {
  for (const cluster::Bundle& bundle : state_.wanted_bundles) input_.requests.push_back({bundle.each, bundle.count});
}

// A new cluster has its initial workers for as long as an idle node would stay.
bool InputMaker::bringup() {
  if (spec_.scaling.initial_workers == 0) return false;
  const WallTime end = later(state_.born, spec_.scaling.idle_timeout);
  if (now_ >= end) return false;
  wake_.by(end);
  return true;
}

std::string InputMaker::blocked(const NodeType& type, const Offering& offering) {
  const auto health = state_.health.find(type.name);
  if (health != state_.health.end() && health->second.failures > 0 && now_ < health->second.not_before) {
    wake_.by(health->second.not_before);
    return fmt::format("the last nodes of '{}' did not live ({} in a row): the next is tried at {}", type.name,
                       health->second.failures, format_time(health->second.not_before));
  }
  if (const cluster::Shortage* shortage = cluster::shortage_of(state_.shortages, type.name, offering, now_)) {
    wake_.by(shortage->until);
    return fmt::format("{} until {} ({})", to_string(shortage->code), format_time(shortage->until), shortage->error);
  }
  if (spec_.scaling.budget && cluster::cost_so_far(state_, now_) >= cluster::price_micros(*spec_.scaling.budget))
    return fmt::format("the budget of ${} is spent", *spec_.scaling.budget);
  return "";
}

std::vector<policy::Offering> InputMaker::offered(const NodeType& type) {
  std::vector<policy::Offering> out;
  for (const Offering& one : offerings_of(type)) {
    policy::Offering offering;
    offering.zone = one.zone;
    offering.market = one.market;
    if (one.price_per_hour > 0 || has_own_machines(spec_)) offering.price_per_hour = one.price_per_hour;
    offering.blocked = blocked(type, one);
    out.push_back(std::move(offering));
  }
  return out;
}

void InputMaker::add_types() {
  const Scaling& scaling = spec_.scaling;
  const std::string usual = worker_type(spec_);
  const bool starting = bringup();
  if (scaling.target_utilization > 0 && !usual.empty()) {
    policy::LegacyScaling legacy;
    legacy.target_utilization_fraction = scaling.target_utilization;
    legacy.initial_workers = scaling.initial_workers;
    legacy.aggressive = scaling.aggressive;
    legacy.bringup = starting;
    legacy.worker_type = usual;
    input_.legacy = legacy;
  }
  for (const auto& [name, type] : spec_.types) {
    policy::ScaleType out;
    out.resources = resources_of(state_, type);
    out.min_workers = type.min_workers;
    out.max_workers = type.max_workers;
    out.priority = type.priority;
    if (name == usual && starting && !input_.legacy)
      out.min_workers = std::min(type.max_workers, std::max(type.min_workers, scaling.initial_workers));
    // Nobody knows what such a machine has before one has joined.
    if (out.resources.empty() && has_demand() && state_.index.count(name).all == 0)
      out.min_workers = std::min(type.max_workers, std::max(1, type.min_workers));
    out.offerings = offered(type);
    for (const policy::Offering& one : out.offerings) {
      if (one.market == Market::kOnDemand && one.price_per_hour) out.price_per_hour = one.price_per_hour;
    }
    input_.types.emplace(name, std::move(out));
  }
}

void InputMaker::add_node(const Node& node, const std::set<NodeId>& shunned) {
  // It goes, whatever is decided: its replacement need not wait for that.
  if (node.departs()) return;
  const auto type = spec_.types.find(node.type);
  const Resources resources = type == spec_.types.end() ? node.resources : resources_of(state_, type->second);
  const bool known = type != spec_.types.end();
  const bool comes = node.phase == NodePhase::kRequested || node.phase == NodePhase::kStarting ||
                     (node.phase == NodePhase::kDraining && node.update);
  if (comes && known && !node.head) {
    policy::ScaleLaunching launching;
    launching.type = node.type;
    launching.zone = node.offering.zone;
    launching.market = node.offering.market;
    input_.launching.push_back(std::move(launching));
    return;
  }
  policy::ScaleNode out;
  out.id = node.id;
  out.type = node.type;
  out.head = node.head;
  out.zone = node.offering.zone;
  out.market = node.offering.market;
  out.leaving = node.phase != NodePhase::kUp && !comes;
  if (comes) {
    out.available = resources;
  } else if (shunned.contains(node.id)) {
    out.available = Resources();
  } else if (!out.leaving) {
    // Absent means all that its type has.
    const auto room = state_.index.rooms().find(node.id);
    const Resources free = room == state_.index.rooms().end() ? Resources() : room->second.soon;
    if (free != resources) out.available = free;
  }
  if (node.phase == NodePhase::kUp) {
    const auto jobs = state_.jobs_on.find(node.id);
    if (jobs != state_.jobs_on.end()) {
      out.keep = fmt::format("job {} is there", jobs->second.begin()->value);
    } else {
      const WallTime due = later(node.idle_since, idle_timeout(spec_, node.type));
      // Types have time-outs of their own: the plan is told only whether this one is over.
      if (now_ >= due) {
        out.idle = std::max<Duration>(input_.idle_timeout, 1us);
        // A machine that is not quite as its type says is idle all the same.
        if (!shunned.contains(node.id)) out.available.reset();
      } else {
        wake_.by(due);
      }
    }
  }
  input_.nodes.push_back(std::move(out));
}

// Whether something that is asked for fits there.
bool InputMaker::holds_some(const Resources& room) const {
  const auto fits = [&](const policy::Bundles& bundles) { return bundles.each.fits_in(room); };
  return std::ranges::any_of(input_.demands, fits) ||
         std::ranges::any_of(input_.gangs, [&](const policy::Gang& gang) { return fits(gang.bundles.front()); });
}

void InputMaker::add_nodes() {
  // A job that waits because a node did not answer it must not be told that there is room on it.
  std::set<NodeId> shunned;
  for (const JobId& id : state_.queued) {
    for (const auto& [node, until] : state_.jobs.at(id).shunned) {
      if (until <= now_) continue;
      shunned.insert(node);
      wake_.by(until);
    }
  }
  // Busy nodes without room are only counted, but where it is asked what each could hold, or how much of it is in use.
  const bool one_by_one = !input_.requests.empty() || input_.legacy || !shunned.empty();
  for (const NodeId& id : state_.index.unassigned()) add_node(state_.nodes.at(id), shunned);
  for (const auto& [lot, nodes] : state_.index.busy()) {
    if (!one_by_one && !holds_some(lot.free)) {
      input_.full.push_back({lot.type, static_cast<int>(nodes.size()), lot.zone, lot.market, lot.free});
      continue;
    }
    for (const NodeId& id : nodes) add_node(state_.nodes.at(id), shunned);
  }
}

}  // namespace

policy::ScaleInput scale_input(const State& state, WallTime now, Wake& wake) {
  return InputMaker(state, now, wake).make();
}

Duration idle_timeout(const ClusterSpec& spec, const std::string& type) {
  const auto it = spec.types.find(type);
  return it == spec.types.end() ? spec.scaling.idle_timeout
                                : it->second.idle_timeout.value_or(spec.scaling.idle_timeout);
}

const Resources& resources_of(const State& state, const NodeType& type) {
  if (!type.resources.empty()) return type.resources;
  const auto it = state.learned.find(type.name);
  return it == state.learned.end() ? type.resources : it->second;
}

std::vector<Offering> offerings_of(const NodeType& type) {
  return type.offerings.empty() ? std::vector<Offering>{Offering{}} : type.offerings;
}

double price_of(const State& state, const NodeType& type, const Offering& offering) {
  if (offering.price_per_hour > 0) return offering.price_per_hour;
  return has_own_machines(*state.spec) ? 0 : policy::estimated_price(resources_of(state, type));
}

policy::ScalePlan plan_with(const State& state, const ClusterSpec& next, WallTime now) {
  State changed = state;
  cluster::Record record;
  record.offset = state.offset + 1;
  record.time = now;
  record.event = cluster::ClusterConfigured{next, state.spec_text};
  cluster::apply(changed, record);
  Wake unused;
  return policy::plan_scale(scale_input(changed, now, unused));
}

std::vector<std::string> demand_texts(const State& state, WallTime now) {
  std::vector<std::string> texts;
  if (!state.spec) return texts;
  Wake unused;
  InputMaker maker(state, now, unused);
  maker.add_demand();
  std::map<Resources, std::pair<int64_t, int64_t>> gangs;  // workers, jobs
  for (const policy::Gang& gang : maker.input().gangs) {
    auto& [workers, jobs] = gangs[gang.bundles.front().each];
    workers += gang.bundles.front().count;
    ++jobs;
  }
  for (const auto& [each, sum] : gangs) {
    texts.push_back(fmt::format("{} workers of {} for {} job{}", sum.first, describe(each), sum.second,
                                sum.second == 1 ? "" : "s"));
  }
  for (const policy::Bundles& one : maker.input().demands) {
    texts.push_back(fmt::format("{} worker{} of {}", one.count, one.count == 1 ? "" : "s", describe(one.each)));
  }
  for (const cluster::Bundle& one : state.wanted_bundles) {
    texts.push_back(one.count == 1 ? fmt::format("a request for {}", describe(one.each))
                                   : fmt::format("a request for {} times {}", one.count, describe(one.each)));
  }
  return texts;
}

}  // namespace rubato::reconcile

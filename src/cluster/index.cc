#include "cluster/index.h"

#include <algorithm>

#include "cluster/state.h"

namespace rubato::cluster {

namespace {

// Its agent is there, and is the one that has the workers.
bool is_there(const State& state, const Seat& seat) {
  const auto node = state.nodes.find(seat.node);
  return node != state.nodes.end() && node->second.usable() && node->second.agent == seat.agent;
}

bool is_pending(const State& state, const Job& job) {
  if (ended(job.phase)) return false;
  if (job.finished()) return true;
  if (job.spec.timeout > 0s && job.started != WallTime{}) return true;
  if (job.phase == JobPhase::kStopping || gathering(job.phase)) return true;
  if (job.phase != JobPhase::kRunning) return false;
  if (job.restarts.failure_pending || job.done.size() == job.seats.size()) return true;
  if (job.in_place && !job.done.empty()) return true;  // who joined last has nothing to do
  return std::ranges::any_of(job.seats,
                             [&](const Seat& seat) { return !is_there(state, seat) && !job.done.contains(seat.node); });
}

Index::Use use_of(const Job& job) {
  const auto workers = static_cast<uint64_t>(job.workers());
  if (workers == 0) return {};
  const Resources& each = job.spec.per_worker;
  return {1, workers * static_cast<uint64_t>(each.of(kCpu)), workers * static_cast<uint64_t>(each.of(kGpu))};
}

void add_use(std::map<std::string, Index::Use>& all, const std::string& owner, const Index::Use& use, bool adding) {
  Index::Use& sum = all[owner];
  sum.jobs += adding ? use.jobs : -use.jobs;
  sum.cpus += adding ? use.cpus : -use.cpus;
  sum.gpus += adding ? use.gpus : -use.gpus;
  if (sum.jobs == 0) all.erase(owner);
}

}  // namespace

Index::TypeCount Index::count(const std::string& type) const {
  const auto it = types_.find(type);
  return it == types_.end() ? TypeCount{} : it->second;
}

bool Index::as_wanted(const State& state, const Node& node) const {
  if (!state.spec) return true;
  const auto type = state.spec->types.find(node.type);
  return type != state.spec->types.end() && launch_hashes_.at(node.type) == node.hash && !node.restart &&
         runtime_hash(*state.spec, type->second, node.head) == node.runtime;
}

Index::NodeFacts Index::facts_of(const State& state, const Node& node) const {
  NodeFacts facts;
  facts.lot = {node.type, node.offering.zone, node.offering.market, {}};
  facts.up = node.usable();
  facts.coming = node.phase == NodePhase::kRequested || node.phase == NodePhase::kStarting;
  facts.limited = !node.head && (facts.up || facts.coming || (node.phase == NodePhase::kDraining && node.update));
  switch (node.phase) {
    case NodePhase::kStarting:
    case NodePhase::kLost:
    case NodePhase::kDraining:
      facts.pending = true;
      break;
    case NodePhase::kRequested:
    case NodePhase::kUp:
      facts.pending = !as_wanted(state, node);
      break;
    case NodePhase::kRemoving:
      break;
  }
  if (!facts.up) return facts;
  facts.size = node.resources;
  facts.room = {free_on(state, node), free_soon(state, node)};
  facts.busy = !node.head && !facts.size.empty() && state.jobs_on.contains(node.id);
  if (facts.busy) facts.lot.free = facts.room.soon;
  return facts;
}

void Index::add(const NodeId& id, const NodeFacts& facts) {
  TypeCount& count = types_[facts.lot.type];
  ++count.all;
  count.limited += facts.limited ? 1 : 0;
  limited_ += facts.limited ? 1 : 0;
  count.up += facts.up ? 1 : 0;
  count.coming += facts.coming ? 1 : 0;
  if (facts.pending) pending_nodes_.insert(id);
  if (facts.up) ++sizes_[facts.size];
  if (!facts.room.now.empty() || !facts.room.soon.empty()) rooms_[id] = facts.room;
  if (facts.busy) {
    busy_[facts.lot].insert(id);
  } else {
    unassigned_.insert(id);
  }
}

void Index::take(const NodeId& id, const NodeFacts& facts) {
  const auto count = types_.find(facts.lot.type);
  count->second.limited -= facts.limited ? 1 : 0;
  limited_ -= facts.limited ? 1 : 0;
  count->second.up -= facts.up ? 1 : 0;
  count->second.coming -= facts.coming ? 1 : 0;
  if (--count->second.all == 0) types_.erase(count);
  pending_nodes_.erase(id);
  if (facts.up) {
    const auto size = sizes_.find(facts.size);
    if (--size->second == 0) sizes_.erase(size);
  }
  rooms_.erase(id);
  unassigned_.erase(id);
  if (!facts.busy) return;
  const auto lot = busy_.find(facts.lot);
  lot->second.erase(id);
  if (lot->second.empty()) busy_.erase(lot);
}

void Index::update_node(const State& state, const NodeId& id) {
  const auto node = state.nodes.find(id);
  const auto known = node_facts_.find(id);
  if (node == state.nodes.end()) {
    if (known == node_facts_.end()) return;
    take(id, known->second);
    node_facts_.erase(known);
    return;
  }
  NodeFacts facts = facts_of(state, node->second);
  if (known == node_facts_.end()) {
    add(id, facts);
    node_facts_.emplace(id, std::move(facts));
  } else if (known->second != facts) {
    take(id, known->second);
    add(id, facts);
    known->second = std::move(facts);
  }
}

void Index::enqueue(const JobId& id, const JobFacts& facts) {
  lines_[facts.priority][facts.owner].emplace(facts.submitted, id);
}

void Index::dequeue(const JobId& id, const JobFacts& facts) {
  const auto owners = lines_.find(facts.priority);
  const auto line = owners->second.find(facts.owner);
  line->second.erase({facts.submitted, id});
  if (line->second.empty()) owners->second.erase(line);
  if (owners->second.empty()) lines_.erase(owners);
}

void Index::update_job(const State& state, const JobId& id) {
  JobFacts facts;
  const auto job = state.jobs.find(id);
  if (job != state.jobs.end() && !ended(job->second.phase)) {
    facts.owner = job->second.spec.owner;
    facts.pending = is_pending(state, job->second);
    facts.elastic = job->second.spec.workers_min < job->second.spec.workers_max && !job->second.seats.empty();
    facts.use = use_of(job->second);
    facts.queued = job->second.phase == JobPhase::kQueued;
    if (facts.queued) facts.priority = job->second.spec.priority;
    if (facts.queued) facts.submitted = job->second.submitted;
  }
  const auto known = job_facts_.find(id);
  const JobFacts before = known == job_facts_.end() ? JobFacts{} : known->second;
  if (facts.pending != before.pending) {
    facts.pending ? void(pending_jobs_.insert(id)) : void(pending_jobs_.erase(id));
  }
  if (facts.elastic != before.elastic) {
    facts.elastic ? void(elastic_jobs_.insert(id)) : void(elastic_jobs_.erase(id));
  }
  if (facts.queued && !before.queued) enqueue(id, facts);
  if (!facts.queued && before.queued) dequeue(id, before);
  if (facts.use != before.use) {
    if (before.use.jobs > 0) add_use(used_by_, before.owner, before.use, false);
    if (facts.use.jobs > 0) add_use(used_by_, facts.owner, facts.use, true);
  }
  if (facts == JobFacts{.owner = facts.owner}) {
    if (known != job_facts_.end()) job_facts_.erase(known);
  } else if (known == job_facts_.end()) {
    job_facts_.emplace(id, std::move(facts));
  } else {
    known->second = std::move(facts);
  }
}

void Index::update_spec(const State& state) {
  launch_hashes_.clear();
  if (state.spec) {
    for (const auto& [name, type] : state.spec->types) launch_hashes_[name] = launch_hash(*state.spec, type);
  }
  for (const auto& [id, node] : state.nodes) update_node(state, id);
}

Index index_of(const State& state) {
  Index index;
  index.update_spec(state);
  for (const auto& [id, job] : state.jobs) index.update_job(state, id);
  return index;
}

}  // namespace rubato::cluster

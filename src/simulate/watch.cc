#include "simulate/watch.h"

#include <fmt/format.h>

#include "cluster/apply.h"
#include "core/error.h"

namespace rubato::simulate {

using cluster::JobPhase;
using cluster::NodePhase;
using cluster::Record;
using rubato::NodeId;

namespace {

constexpr size_t kBrokenMax = 5;
// A head looks for what nobody owns when it starts and now and then; calls may be throttled meanwhile.
constexpr Duration kOrphanMax = 30min;
// After each record, what it touched is checked; at these intervals and at the end, everything.
constexpr Duration kAllEvery = 1h;
// Between two sizes of a job, when nothing but what jobs tell has changed: cluster/apply_jobs.cc.
constexpr Duration kResizeEvery = 30s;

bool counts_for_limits(const cluster::Node& node) {
  if (node.head) return false;
  return node.phase == NodePhase::kRequested || node.phase == NodePhase::kStarting || node.phase == NodePhase::kUp;
}

// What the sizes of jobs may follow at once: nodes that come and go, jobs that end or take room, a new head or file.
bool is_cause(const cluster::Event& event) {
  const bool of_job =
      std::holds_alternative<cluster::JobEnded>(event) || std::holds_alternative<cluster::JobPlaced>(event);
  const bool of_node = cluster::node_of(event) && !cluster::job_of(event);
  return of_job || of_node || std::holds_alternative<cluster::HeadStarted>(event) ||
         std::holds_alternative<cluster::ClusterConfigured>(event);
}

}  // namespace

Watch::Watch(sim::Simulation& sim, const sim::SimJournal& journal, Cloud& cloud)
    : sim_(sim), journal_(journal), cloud_(cloud) {}

void Watch::add_broken(std::string text) {
  if (broken.size() < kBrokenMax)
    broken.push_back(fmt::format("{}: {}", format_duration(sim_.now() - Instant{}), std::move(text)));
}

void Watch::check() {
  if (state_.offset < journal_.end()) {
    for (auto it = journal_.records().upper_bound(state_.offset); it != journal_.records().end(); ++it)
      take(cluster::decode(it->first, it->second));
    if (limits_due_) check_limits();
    limits_due_ = false;
  }
  if (sim_.workers.version() != workers_version_) check_workers();
  if (!frozen_.empty()) check_thawed();
}

void Watch::take(const Record& record) {
  check_before(record);
  if (is_cause(record.event)) ++causes_;
  if (const auto* placed = std::get_if<cluster::JobPlaced>(&record.event)) ++placed_[placed->job];
  cluster::apply(state_, record);
  mark_transitions(record);
  check_after(record);
  if (on_record) on_record(record);
}

void Watch::check_before(const Record& record) {
  if (const auto* removing = std::get_if<cluster::NodeRemoving>(&record.event)) {
    count("no busy node is removed");
    const auto it = state_.nodes.find(removing->node);
    if (it == state_.nodes.end() || it->second.phase == NodePhase::kLost) return;
    if (state_.jobs_on.contains(removing->node))
      add_broken(fmt::format("{} is removed with workers on it ({})", removing->node.value, removing->reason));
  } else if (const auto* started = std::get_if<cluster::JobStarted>(&record.event)) {
    count("a generation starts once, with all its seats ready");
    const auto it = state_.jobs.find(started->job);
    if (it == state_.jobs.end() || !cluster::gathering(it->second.phase) ||
        it->second.generation != started->generation)
      add_broken(fmt::format("{} starts generation {} out of turn", started->job.value, started->generation));
    count("a node that drains gets no new workers");
    if (it != state_.jobs.end()) {
      for (const cluster::Seat& seat : it->second.seats) {
        const auto node = state_.nodes.find(seat.node);
        if (node != state_.nodes.end() && node->second.phase == NodePhase::kDraining)
          add_broken(fmt::format("{} starts on {}, which drains", started->job.value, seat.node.value));
      }
    }
    count("who has ended well is not run again");
    if (ended_well(started->job))
      add_broken(
          fmt::format("{} ended well, and runs again as generation {}", started->job.value, started->generation));
  } else if (const auto* ended = std::get_if<cluster::JobEnded>(&record.event)) {
    count("a job ends once, and as its workers did");
    const auto it = state_.jobs.find(ended->job);
    if (it == state_.jobs.end() || cluster::ended(it->second.phase))
      add_broken(fmt::format("{} ends again", ended->job.value));
    if (ended->result != cluster::JobResult::kSucceeded && ended_well(ended->job))
      add_broken(fmt::format("{} ended well, and is said to have not: {}", ended->job.value, ended->reason));
    finished_.erase(ended->job.value);
  } else if (const auto* lost = std::get_if<cluster::NodeLost>(&record.event)) {
    check_lost(lost->node);
  } else if (const auto* sized = std::get_if<cluster::JobSized>(&record.event)) {
    check_sized(*sized, record.time);
  } else if (const auto* profiled = std::get_if<cluster::JobProfiled>(&record.event)) {
    const auto it = state_.jobs.find(profiled->job);
    if (it != state_.jobs.end() && !it->second.adaptive()) ++causes_;
  } else if (const auto* placed = std::get_if<cluster::JobPlaced>(&record.event)) {
    count("generations grow");
    const auto it = state_.jobs.find(placed->job);
    if (it == state_.jobs.end() || placed->generation <= it->second.generation)
      add_broken(fmt::format("{} is placed as generation {} again", placed->job.value, placed->generation));
  }
}

void Watch::check_after(const Record& record) {
  if (const auto* placed = std::get_if<cluster::JobPlaced>(&record.event)) check_seats(*placed);
  if (const auto node = cluster::node_of(record.event)) count_for_limits(*node);
  if (std::holds_alternative<cluster::NodeRequested>(record.event)) limits_due_ = true;
  if (const auto* lost = std::get_if<cluster::NodeLost>(&record.event)) lost_.insert(lost->node);
  if (const auto* gone = std::get_if<cluster::NodeGone>(&record.event)) lost_.erase(gone->node);
}

void Watch::check_seats(const cluster::JobPlaced& placed) {
  const cluster::Job& job = state_.jobs.at(placed.job);
  count("a job has between its least and most workers");
  if (!job.seats.empty() && (job.workers() < job.spec.workers_min || job.workers() > job.spec.workers_max))
    add_broken(fmt::format("{} gets {} workers, it wants {} to {}", job.id.value, job.workers(), job.spec.workers_min,
                           job.spec.workers_max));
  if (job.workers() != job.spec.usable(job.workers()))
    add_broken(fmt::format("{} gets {} workers, it runs on multiples of {}", job.id.value, job.workers(),
                           job.spec.workers_step));
  for (const cluster::Seat& seat : job.seats) {
    count("no resource is given twice");
    const auto node = state_.nodes.find(seat.node);
    count("a node that drains gets no new workers");
    if (node != state_.nodes.end() && !node->second.usable())
      add_broken(
          fmt::format("{} is placed on {}, which is {}", job.id.value, seat.node.value, to_string(node->second.phase)));
    if (node == state_.nodes.end()) {
      add_broken(fmt::format("{} is placed on {}, which is not there", job.id.value, seat.node.value));
    } else if (!cluster::used_on(state_, seat.node).fits_in(node->second.resources)) {
      add_broken(fmt::format("{} has {} but {} is in use", seat.node.value, describe(node->second.resources),
                             describe(cluster::used_on(state_, seat.node))));
    }
  }
}

// Sizes follow what jobs tell with patience: no size is left soon after it was decided, unless something else has
// changed.
void Watch::check_sized(const cluster::JobSized& sized, WallTime at) {
  const auto it = state_.jobs.find(sized.job);
  if (it == state_.jobs.end()) return;
  const cluster::Job& job = it->second;
  count("an adaptive job's size is one that it can have");
  if (sized.workers < job.spec.workers_min || sized.workers > job.spec.workers_max ||
      sized.workers != job.spec.usable(sized.workers))
    add_broken(fmt::format("{} is to have {} workers of {} to {} in steps of {}", job.id.value, sized.workers,
                           job.spec.workers_min, job.spec.workers_max, job.spec.workers_step));
  if (sized.workers == job.sized) return;
  if (job.sized > 0) sim_.simulator.mark(sized.workers > job.sized ? "adaptive.grows" : "adaptive.shrinks");
  const uint64_t causes = causes_ - placed_[sized.job];  // its own seats follow from its size
  const auto last = sized_.find(sized.job);
  if (last != sized_.end() && last->second.causes == causes) {
    count("sizes change with patience");
    if (at - last->second.at < kResizeEvery)
      add_broken(fmt::format("{} is sized again after {}, and nothing had changed", job.id.value,
                             format_duration(at - last->second.at)));
    // No invariant yet: for a gain within the errors of measuring a job grows, and shrinks again (docs/adaptive.md).
    if (sized.workers == last->second.before) sim_.simulator.mark("adaptive.sized_back");
  }
  sized_[sized.job] = {at, job.sized, causes};
}

void Watch::count_for_limits(const NodeId& id) {
  const auto node = state_.nodes.find(id);
  const auto before = limited_.find(id);
  if (before != limited_.end()) {
    --of_type_[before->second];
    limited_.erase(before);
  }
  if (node == state_.nodes.end() || !counts_for_limits(node->second)) return;
  limited_.emplace(id, node->second.type);
  ++of_type_[node->second.type];
}

void Watch::check_limits() {
  if (!state_.spec) return;
  count("the limits of the file are kept");
  const int all = static_cast<int>(limited_.size());
  if (all > state_.spec->max_workers)
    add_broken(fmt::format("{} nodes, but max_workers is {}", all, state_.spec->max_workers));
  for (const auto& [name, type] : state_.spec->types) {
    const int here = of_type_[name];
    if (here > type.max_workers)
      add_broken(fmt::format("{} nodes of {}, but its max_workers is {}", here, name, type.max_workers));
  }
}

// What was counted and indexed record by record, against the whole state.
void Watch::check_all() {
  count("what is kept beside the state follows from it");
  size_t limited = 0;
  for (const auto& [id, node] : state_.nodes) {
    limited += counts_for_limits(node) ? 1 : 0;
    if (!node.usable() || !state_.jobs_on.contains(id)) continue;
    count("no resource is given twice");
    if (!cluster::used_on(state_, id).fits_in(node.resources))
      add_broken(fmt::format("{} has {} but {} is in use", id.value, describe(node.resources),
                             describe(cluster::used_on(state_, id))));
  }
  if (limited != limited_.size() || cluster::index_of(state_) != state_.index)
    add_broken("what is kept beside the state does not follow from it");
}

// Marks of the state diagrams: "node up -> draining", "job running -> restarting".
void Watch::mark_transitions(const Record& record) {
  if (const auto id = cluster::node_of(record.event)) {
    const auto before = node_phases_.find(*id);
    const auto after = state_.nodes.find(*id);
    const std::string_view from = before == node_phases_.end() ? "none" : cluster::to_string(before->second);
    const std::string_view to = after == state_.nodes.end() ? "gone" : cluster::to_string(after->second.phase);
    if (from != to) sim_.simulator.mark(fmt::format("node {} -> {}", from, to));
    if (after == state_.nodes.end()) {
      if (before != node_phases_.end()) node_phases_.erase(before);
    } else {
      node_phases_[*id] = after->second.phase;
    }
  }
  if (const auto id = cluster::job_of(record.event)) {
    const auto before = job_phases_.find(*id);
    const auto after = state_.jobs.find(*id);
    if (after == state_.jobs.end()) return;
    const std::string_view from = before == job_phases_.end() ? "none" : cluster::to_string(before->second);
    const std::string_view to = cluster::to_string(after->second.phase);
    if (from != to) sim_.simulator.mark(fmt::format("job {} -> {}", from, to));
    if (cluster::ended(after->second.phase)) {
      if (before != job_phases_.end()) job_phases_.erase(before);
    } else {
      job_phases_[*id] = after->second.phase;
    }
  }
}

NodeId Watch::node_on(int machine) const {
  for (const auto& [node, instance] : cloud_.live()) {
    if (instance->machine != 0 && sim_.machine(instance->machine).node() == machine) return node;
  }
  return NodeId{};
}

bool Watch::is_frozen(int machine) const {
  for (int number = 1; number <= sim_.machines(); ++number) {
    if (sim_.machine(number).node() == machine) return sim_.machine(number).frozen();
  }
  return false;
}

bool Watch::given_up(const NodeId& node) const {
  const auto it = state_.nodes.find(node);
  return it == state_.nodes.end() || it->second.phase == NodePhase::kLost || it->second.phase == NodePhase::kRemoving;
}

// No rank twice within a generation, none outside its world, and no two generations of a job at once, on whatever
// machine: but for those that are frozen as a whole. They do not live, and when they go on their guards end what is
// overdue.
void Watch::add_worker(const sim::WorkerRecord& worker) {
  Run& run = runs_[worker.run_id];
  count("ranks are dense within a generation");
  if (worker.rank < 0 || worker.rank >= worker.world_size)
    add_broken(fmt::format("{}: rank {} of {}", worker.run_id, worker.rank, worker.world_size));
  for (const auto& [id, other] : run.workers) {
    const bool twice = other.first == worker.generation && other.second == worker.rank;
    if (!twice && other.first == worker.generation) continue;
    const auto live = sim_.workers.live().find(id);
    if (live == sim_.workers.live().end()) continue;
    if (is_frozen(live->second.machine)) {
      frozen_.try_emplace(id);
      continue;
    }
    add_broken(
        twice ? fmt::format("{}: rank {} runs twice", worker.run_id, worker.rank)
              : fmt::format("{}: generations {} and {} run at once", worker.run_id, other.first, worker.generation));
  }
  run.workers[worker.id] = {worker.generation, worker.rank};
}

// Its guard ends what is overdue in the moment in which the machine goes on.
void Watch::check_thawed() {
  for (auto it = frozen_.begin(); it != frozen_.end();) {
    const auto live = sim_.workers.live().find(it->first);
    std::optional<Instant>& thawed = it->second;
    const bool is_live = live != sim_.workers.live().end();
    if (is_live && is_frozen(live->second.machine)) thawed.reset();
    if (is_live && !is_frozen(live->second.machine) && !thawed) thawed = sim_.now();
    if (is_live && (!thawed || *thawed == sim_.now())) {
      ++it;
      continue;
    }
    count("a machine that stood still ends its old workers");
    if (is_live) check_alone(live->second);
    it = frozen_.erase(it);
  }
}

void Watch::check_alone(const sim::WorkerRecord& worker) {
  for (const auto& [id, other] : runs_[worker.run_id].workers) {
    if (other.first == worker.generation || !sim_.workers.live().contains(id)) continue;
    add_broken(fmt::format("{}: generation {} goes on beside {}", worker.run_id, worker.generation, other.first));
  }
}

void Watch::note_end(const sim::WorkerRecord& worker) {
  Finished& finished = finished_[worker.run_id];
  if (worker.generation < finished.generation) return;
  if (worker.generation > finished.generation) finished = Finished{worker.generation, worker.world_size, {}};
  if (!worker.status || !worker.status->ok() || worker.told_to_end) return;
  const NodeId node = node_on(worker.machine);
  const Instance* instance = cloud_.find(node);
  if (instance) finished.ranks[worker.rank] = {node, instance->agent};
}

// All its workers ended with 0, and the agents that know it are there.
bool Watch::ended_well(const JobId& job) const {
  const auto it = finished_.find(job.value);
  if (it == finished_.end() || static_cast<int>(it->second.ranks.size()) < it->second.world_size) return false;
  for (const auto& [rank, knows] : it->second.ranks) {
    const Instance* instance = cloud_.find(knows.first);
    if (!instance || instance->agent != knows.second || !instance->agent->running() || given_up(knows.first))
      return false;
  }
  return true;
}

// Whoever is given up has died, or something was done to it: that the head stood still is no reason.
void Watch::check_lost(const NodeId& node) {
  const auto it = state_.nodes.find(node);
  const Instance* instance = cloud_.find(node);
  if (it == state_.nodes.end() || !instance) return;
  if (it->second.phase != NodePhase::kUp && it->second.phase != NodePhase::kDraining) return;
  count("no healthy node is given up");
  const bool healthy =
      instance->agent && instance->agent->running() && !instance->hurt && !instance->crashed && !instance->reclaimed;
  if (healthy) add_broken(fmt::format("{} is given up, and nothing had been done to it", node.value));
}

void Watch::check_workers() {
  workers_version_ = sim_.workers.version();
  const std::vector<sim::WorkerRecord>& past = sim_.workers.past();
  for (; past_seen_ < past.size(); ++past_seen_) {
    note_end(past[past_seen_]);
    const auto run = runs_.find(past[past_seen_].run_id);
    if (run == runs_.end()) continue;
    run->second.workers.erase(past[past_seen_].id);
    if (run->second.workers.empty()) runs_.erase(run);
  }
  for (auto it = sim_.workers.live().upper_bound(last_worker_); it != sim_.workers.live().end(); ++it) {
    last_worker_ = it->first;
    add_worker(it->second);
  }
}

void Watch::removing(const Instance& instance, bool busy) {
  count("no machine is taken away while workers are on it");
  if (!busy || instance.reclaimed || instance.crashed) return;
  // A lost node is removed with whatever is on it.
  if (!state_.nodes.contains(instance.node) || lost_.contains(instance.node)) return;
  add_broken(fmt::format("the machine of {} is taken away with workers on it", instance.node.value));
}

void Watch::audit(bool head_up) {
  const Duration since = sim_.now() - std::exchange(audited_, sim_.now());
  if (sim_.now() >= all_due_) {
    all_due_ = sim_.now() + kAllEvery;
    check_all();
  }
  std::map<NodeId, Duration> orphans;
  auto owned = state_.nodes.begin();  // both are in the order of their names
  counts_["every instance is owned or being removed"] += cloud_.live().size();
  for (const auto& [node, instance] : cloud_.live()) {
    while (owned != state_.nodes.end() && owned->first < node) ++owned;
    if (owned != state_.nodes.end() && owned->first == node) continue;
    const auto before = orphans_.find(node);
    Duration& age = orphans[node];
    age = before == orphans_.end() ? 0s : before->second + (head_up ? since : 0s);
    sim_.simulator.mark("cloud.orphan");
    if (age > kOrphanMax) add_broken(fmt::format("the instance {} belongs to nobody and is not removed", node.value));
  }
  orphans_ = std::move(orphans);
}

void Watch::close(const cluster::State* head) {
  check_all();
  if (head && head->offset == state_.offset) {
    count("the head's state is what its journal says");
    if (cluster::encode_snapshot(*head) != cluster::encode_snapshot(state_) || head->index != state_.index)
      add_broken("the head's state differs from what its journal says");
  }
  for (const auto& [check, number] : counts_) checks[std::string(check)] = number;
}

}  // namespace rubato::simulate

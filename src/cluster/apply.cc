#include "cluster/apply.h"

#include <algorithm>
#include <utility>

#include "cluster/observed.h"
#include "cluster/reindex.h"

namespace rubato::cluster {

namespace {

constexpr size_t kFailuresMax = 64;
// A node that lived so long did not fail because of its type.
constexpr Duration kYoungDeath = 10s;
// Sizes of adaptive jobs are worked out anew so long after nodes or jobs have changed, and after a job's profile has.
constexpr Duration kResizeSoon = 1s;
constexpr Duration kResizeEvery = 30s;
constexpr Duration kTypeBackoffFirst = 500ms;
constexpr Duration kTypeBackoffMax = 60s;
// A node that did not answer in time is left out of that job for so long, four times as long each time again: a job
// that runs must not be stopped over and over for a node that never gets ready.
constexpr Duration kShunnedFirst = 60s;
constexpr Duration kShunnedMax = 4h;

Job* job_at(State& state, const JobId& id) {
  const auto it = state.jobs.find(id);
  return it == state.jobs.end() ? nullptr : &it->second;
}

Node* node_at(State& state, const NodeId& id) {
  const auto it = state.nodes.find(id);
  return it == state.nodes.end() ? nullptr : &it->second;
}

// Whether workers that were there may still be alive.
bool may_hold_workers(const State& state, const Seat& seat) {
  const auto it = state.nodes.find(seat.node);
  return it != state.nodes.end() && it->second.agent == seat.agent &&
         (it->second.phase == NodePhase::kUp || it->second.phase == NodePhase::kDraining);
}

void enter(Job& job, JobPhase phase, WallTime time) {
  if (job.phase == phase) return;
  job.phase = phase;
  job.since = time;
}

// The seats it had go, but for what `kept` still needs of them.
void vacate(const State& state, Job& job, const std::vector<Seat>& kept) {
  for (const Seat& seat : job.seats) {
    if (!may_hold_workers(state, seat) || job.done.contains(seat.node)) continue;
    // Some may be leaving already: a seat that shrinks twice still holds all that it began with.
    int& left = job.leaving[seat.node];
    left += seat.workers;
    for (const Seat& keep : kept) {
      if (keep.node == seat.node) left -= keep.workers;
    }
    if (left <= 0) job.leaving.erase(seat.node);
  }
}

void forget_output(State& state, const NodeId& node, const JobId& job) {
  const auto it = state.outputs_on.find(node);
  if (it == state.outputs_on.end()) return;
  it->second.erase(job);
  if (it->second.empty()) state.outputs_on.erase(it);
}

// Brings outputs_on up to date with one job.
void reindex_outputs(State& state, const Job& job) {
  for (const auto& [node, output] : job.outputs) {
    const bool needed = output.phase != Output::Phase::kKept || !ended(job.phase);
    if (needed && state.nodes.contains(node)) {
      state.outputs_on[node].insert(job.id);
    } else {
      forget_output(state, node, job.id);
    }
  }
}

// From now on its seats write.
void begin_outputs(State& state, Job& job) {
  int rank = 0;
  bool here = false;
  for (const Seat& seat : job.seats) {
    const auto node = state.nodes.find(seat.node);
    const bool own = node != state.nodes.end() && node->second.own_disk;
    if (own) {
      Output output;
      output.generation = job.generation;
      output.rank = rank;
      job.outputs[seat.node] = output;
    } else if (!std::exchange(here, true)) {
      job.output_here_generation = job.generation;
      job.output_here_rank = rank;
    }
    rank += seat.workers;
  }
  reindex_outputs(state, job);
}

void forget_oldest(State& state) {
  while (state.ended_jobs.size() > kEndedMax) {
    const JobId oldest = state.ended_jobs.front();
    state.ended_jobs.erase(state.ended_jobs.begin());
    if (const Job* job = job_at(state, oldest)) {
      if (!job->request_id.empty()) state.requests.erase(job->request_id);
      for (const auto& [node, output] : job->outputs) forget_output(state, node, oldest);
      state.jobs.erase(oldest);
    }
  }
}

bool refers_to(const Node& node, const std::string& recipe) {
  return node.recipe == recipe || std::ranges::count(node.recipes_before, recipe) > 0;
}

// Of `recipes`, those that the newest file has not and a node still needs.
std::map<std::string, NodeRecipe> still_needed(const State& state, std::map<std::string, NodeRecipe> recipes) {
  std::erase_if(recipes, [&](const auto& entry) {
    if (state.spec && state.spec->recipes.contains(entry.first)) return true;
    return std::ranges::none_of(state.nodes, [&](const auto& node) { return refers_to(node.second, entry.first); });
  });
  return recipes;
}

// From now on it is made by what the newest file says. What it was made by so far may still be there.
void take_recipe(const State& state, Node& node) {
  const std::string recipe = state.spec ? recipe_for(*state.spec, node.type, node.head) : "";
  if (recipe.empty() || recipe == node.recipe) return;
  const bool known = node.recipe.empty() || std::ranges::count(node.recipes_before, node.recipe) > 0;
  if (!known) node.recipes_before.push_back(node.recipe);
  node.recipe = recipe;
}

// In next_node: the number of types that the journal does not know yet, after a loss.
constexpr std::string_view kAnyType = "";

struct Applier {
  State& state;
  const uint64_t offset;
  const WallTime time;

  void operator()(const HeadStarted& e) {
    state.epoch = e.epoch;
    state.head_version = e.version;
    state.head_pid = e.pid;
    state.head_since = time;
    state.has_adaptive = std::ranges::any_of(state.jobs, [](const auto& entry) { return entry.second.adaptive(); });
    resize_in(kResizeSoon);
    // The shutdown before is complete: whoever starts a head now wants a cluster, and will say which.
    if (state.shutting_down && state.nodes.empty() && state.active.empty() && state.queued.empty()) {
      state.shutting_down = false;
      state.spec.reset();
      state.spec_text.clear();
      state.old_recipes.clear();
    }
  }
  void operator()(const ClusterConfigured& e) {
    if (!state.spec || state.shutting_down) state.born = time;
    std::map<std::string, NodeRecipe> recipes = std::move(state.old_recipes);
    if (state.spec) recipes.merge(state.spec->recipes);
    state.spec = with_recipes(e.spec, e.text);
    state.spec_text = e.text;
    state.old_recipes = still_needed(state, std::move(recipes));
    state.no_restart = e.no_restart;
    state.shutting_down = false;
    if (const auto any = state.next_node.find(std::string(kAnyType)); any != state.next_node.end()) {
      for (const auto& [name, type] : e.spec.types) state.next_node.try_emplace(name, any->second);
    }
    state.health.clear();
    state.shortages.clear();
    for (auto& [id, node] : state.nodes) node.restart = node.restart || e.restart;
  }
  void operator()(const ShutdownRequested&) { state.shutting_down = true; }
  // Agents obey no head that is older than one that they have obeyed. Nodes that only the lost records told of may
  // still be there, and are being removed: new ones have other numbers. A record makes one node at most.
  void operator()(const JournalLost& e) {
    state.epoch = std::max(state.epoch, e.epoch);
    const uint64_t lost = e.first <= e.last ? e.last - e.first + 1 : 0;
    state.next_node.try_emplace(std::string(kAnyType), 0);
    for (auto& [type, number] : state.next_node) number += lost;
  }

  void operator()(const NodeRequested& e) {
    Node node;
    node.id = e.node;
    node.type = e.type;
    node.hash = e.hash;
    node.requested = node.since = time;
    node.changed = offset;
    node.reason = e.why;
    node.offering = e.offering;
    node.reasons = e.reasons;
    node.runtime = e.runtime;
    node.head = e.head;
    take_recipe(state, node);  // the records are in order: what is configured now is what it is made by
    state.nodes[e.node] = node;
    if (!e.head) ++state.next_node[e.type];
  }
  void operator()(const NodeStepped& e) {
    Node* node = node_at(state, e.node);
    if (!node) return;
    node->step = e.step;
    node->detail = e.detail;
    node->step_since = time;
  }
  void operator()(const NodeUpdating& e) {
    Node* node = node_at(state, e.node);
    if (!node || node->phase == NodePhase::kLost || node->phase == NodePhase::kRemoving) return;
    drop_workers(*node);
    node->runtime = e.runtime;
    take_recipe(state, *node);
    node->refreshing.clear();
    node->update = false;
    if (!node->agent.value.empty()) node->retired = node->agent;
    node->agent = {};
    move(*node, NodePhase::kRequested, e.why);
  }
  void operator()(const NodeRefreshing& e) {
    if (Node* node = node_at(state, e.node)) node->refreshing = e.runtime;
  }
  void operator()(const NodeRefreshed& e) {
    Node* node = node_at(state, e.node);
    if (!node || node->refreshing != e.runtime) return;
    // One that failed is not tried again until the next configuration: its work goes on with what is there.
    node->refreshing.clear();
    node->runtime = e.runtime;
    node->reason = e.error;
  }
  void operator()(const NodeCreated& e) {
    Node* node = node_at(state, e.node);
    if (!node || node->phase != NodePhase::kRequested || node->runtime != e.runtime) return;
    node->restart = false;
    node->recipes_before.clear();
    note_success(state.shortages, node->type, node->offering);
    move(*node, NodePhase::kStarting, "");
  }
  void operator()(const NodeFailed& e) {
    Node* node = node_at(state, e.node);
    if (!node) return;
    // Of this kind there is none: that says nothing about the nodes of its type.
    const bool none = e.code != LaunchFailure::kOther;
    if (none) note_failure(state.shortages, e.code, node->type, node->offering, e.error, time);
    if (node->phase == NodePhase::kRemoving) return;  // it goes already
    if (none && node->agent.value.empty()) node->never_was = true;
    if (none) {
      drop_workers(*node);
      move(*node, NodePhase::kLost, e.error);
    } else {
      lose(*node, e.error, true);
    }
  }
  void operator()(const NodeJoined& e) {
    Node* node = node_at(state, e.node);
    // One that is given up stays given up, however late its agent speaks.
    if (!node || node->phase == NodePhase::kLost || node->phase == NodePhase::kRemoving) return;
    if (node->agent != e.agent) drop_workers(*node);
    // An agent may speak before the call that started it has ended: it is the new one, for the old one is retired.
    if (node->phase == NodePhase::kRequested) node->restart = false;
    node->agent = e.agent;
    node->agent_started = e.started;
    node->info = e.info;
    node->resources = e.resources;
    node->own_disk = e.own_disk;
    state.learned[node->type] = e.resources;
    if (node->phase != NodePhase::kDraining) move(*node, NodePhase::kUp, "");
    mind_idleness(state, e.node);
    state.last_join = time;
  }
  void operator()(const NodeLost& e) {
    if (!e.silent) forget_cut_off(e.node);
    Node* node = node_at(state, e.node);
    if (!node || node->phase == NodePhase::kRemoving || node->phase == NodePhase::kLost) return;  // that is how it goes
    if (e.silent) note_cut_off(*node);
    node->silent = e.silent;
    // One that drained had lived.
    lose(*node, e.reason, node->phase != NodePhase::kDraining && time - node->since < kYoungDeath);
  }
  void operator()(const NodeDraining& e) {
    Node* node = node_at(state, e.node);
    if (!node || node->phase == NodePhase::kRemoving) return;
    node->update = e.update;
    if (!e.reasons.wanted.empty()) node->reasons = e.reasons;
    move(*node, NodePhase::kDraining, e.reason);
  }
  void operator()(const NodeRemoving& e) {
    if (Node* node = node_at(state, e.node)) {
      drop_workers(*node);
      if (!e.reasons.wanted.empty()) node->reasons = e.reasons;
      move(*node, NodePhase::kRemoving, e.reason);
    }
  }
  void operator()(const NodeGone& e) {
    if (!e.unreachable) forget_cut_off(e.node);
    if (Node* node = node_at(state, e.node)) {
      drop_workers(*node);
      Spent& spent = state.spent[node->type];
      ++spent.nodes;
      if (!node->never_was) spent.time += time - node->requested;
      spent.micros += cost_of(*node, time);
      lose_outputs(*node);
      state.nodes.erase(e.node);
      if (!state.old_recipes.empty()) state.old_recipes = still_needed(state, std::move(state.old_recipes));
    }
  }
  void operator()(const StrayFound&) { ++state.strays; }
  void operator()(const ResourcesRequested& e) { state.wanted_bundles = e.bundles; }
  void operator()(const ScaleHeld& e) {
    state.held = e.reasons;
    state.held_digest = digest(e.reasons);
    state.held_at = offset;
    state.held_time = time;
  }

  void operator()(const JobSubmitted& e) {
    Job job;
    job.id = e.job;
    job.spec = e.spec;
    job.request_id = e.request_id;
    job.rerun_of = e.rerun_of;
    job.submitted = job.since = job.queued_since = time;
    if (!e.request_id.empty()) state.requests[e.request_id] = e.job;
    reindex(state, state.jobs[e.job] = std::move(job), {});
  }
  // Its workers are told to end. A round that lived for a while has made an earlier crash at the start forgotten.
  void note_uptime(Job& job) {
    if (job.phase != JobPhase::kRunning) return;
    job.last_uptime = time - job.since;
    if (job.last_uptime >= elastic::kCrashAtStart) job.last_crash.clear();
  }

  void operator()(const JobHeld& e) {
    change(e.job, [&](Job& job) {
      vacate(state, job, {});
      note_uptime(job);
      job.seats.clear();
      job.done.clear();
      if (job.phase != JobPhase::kQueued) {
        job.queued_since = time;
        ++state.scaled.changes;
      }
      enter(job, JobPhase::kQueued, time);
      decided(job, e.reasons);
    });
  }
  void operator()(const JobPlaced& e) {
    change(e.job, [&](Job& job) {
      const int before = job.workers();
      vacate(state, job, e.seats);
      // A round that never started has left the older workers to the one before it.
      if (job.phase == JobPhase::kRunning) job.holding.clear();
      for (const Seat& seat : job.seats) {
        if (job.phase == JobPhase::kRunning && may_hold_workers(state, seat)) job.holding.insert(seat.node);
      }
      note_uptime(job);
      job.seats = e.seats;
      job.done.clear();
      job.generation = e.generation;
      job.reason = e.cause;
      for (const NodeId& node : e.shunned) shun(job, node);
      std::erase_if(job.shunned, [&](const auto& entry) { return entry.second <= time; });
      std::erase_if(job.strikes, [&](const auto& entry) { return !state.nodes.contains(entry.first); });
      if (job.workers() > before) job.rescaled = time;
      // A round that is gathered anew has waited for as long as it has, but its patience begins again.
      job.phase = job.started == WallTime{} ? JobPhase::kStarting : JobPhase::kRestarting;
      job.since = time;
      decided(job, e.reasons);
    });
  }
  void operator()(const RestartCharged& e) {
    note(e.job, [&](Job& job) {
      job.restarts_used = e.used;
      job.quick_crashes = e.quick_crashes;
      job.last_crash = e.crash;
      job.not_before = later(time, e.backoff);
      set_failure_pending(job, false);
    });
  }
  void operator()(const JobStarted& e) {
    change(e.job, [&](Job& job) {
      job.master_addr = e.master_addr;
      job.master_port = e.master_port;
      set_failure_pending(job, false);
      job.ran = e.generation;
      job.round = job.seats;
      job.round_lease = lease_of(state, job);
      forget_cut_off(job);
      job.unfinished.clear();
      for (const Seat& seat : job.seats) job.unfinished.insert(seat.node);
      job.lost_since_failure = false;
      job.failed.clear();
      job.holding.clear();
      for (const Seat& seat : job.seats) job.strikes.erase(seat.node);
      // Ready means that nothing of the older generation is left there.
      for (const Seat& seat : job.seats) job.leaving.erase(seat.node);
      if (job.started == WallTime{}) job.started = time;
      enter(job, JobPhase::kRunning, time);
      begin_outputs(state, job);
    });
  }
  void operator()(const SeatFailed& e) {
    note(e.job, [&](Job& job) {
      // While the next generation gathers, seats of the failed one may still tell what they saw.
      const bool of_this = job.phase == JobPhase::kRunning && job.generation == e.generation;
      const bool of_last = gathering(job.phase) && job.failure_pending && job.generation == e.generation + 1;
      if (!of_this && !of_last) return;
      if (!job.failure_pending) job.failures.clear();
      job.failed.insert(e.node);
      set_failure_pending(job, true);
      job.lost_since_failure = job.lost_since_failure || e.fenced;
      for (const elastic::Failure& failure : e.failures) {
        if (job.failures.size() < kFailuresMax) job.failures.push_back(failure);
      }
    });
  }
  void operator()(const SeatDone& e) {
    note(e.job, [&](Job& job) {
      if (job.generation == e.generation && job.phase == JobPhase::kRunning) job.done.insert(e.node);
      // It may be told later than something else was decided.
      if (job.ran == e.generation) job.unfinished.erase(e.node);
    });
  }
  void operator()(const SeatVacated& e) {
    change(e.job, [&](Job& job) { job.leaving.erase(e.node); });
  }
  void operator()(const CheckpointMissed& e) {
    note(e.job, [&](Job& job) { job.reason = describe(Event(e)); });
  }
  void operator()(const OutputKept& e) {
    Output* output = output_at(e.job, e.node);
    if (!output || output->generation != e.generation) return;  // it has run there again
    output->phase = Output::Phase::kKept;
    output->files = e.files;
    output->bytes = e.bytes;
    output->reason.clear();
    reindex_outputs(state, state.jobs.at(e.job));
  }
  void operator()(const OutputMissing& e) {
    Output* output = output_at(e.job, e.node);
    if (!output || output->phase == Output::Phase::kKept) return;
    output->phase = Output::Phase::kMissing;
    output->reason = e.reason;
  }
  void operator()(const JobProfiled& e) {
    note(e.job, [&](Job& job) {
      const bool first = !job.adaptive();
      job.profile = e.profile;
      job.profiled = time;
      state.has_adaptive = state.has_adaptive || job.adaptive();
      if (job.adaptive()) resize_in(first ? kResizeSoon : kResizeEvery);
    });
  }
  void operator()(const JobSized& e) {
    note(e.job, [&](Job& job) {
      job.sized = e.workers;
      job.worthwhile = e.worthwhile;
      job.size_reason = e.reason;
    });
  }
  void operator()(const JobStopping& e) {
    change(e.job, [&](Job& job) {
      vacate(state, job, {});
      job.seats.clear();
      job.stop_failed = e.failed;
      job.reason = e.reason;
      enter(job, JobPhase::kStopping, time);
    });
  }
  void operator()(const JobEnded& e) {
    change(e.job, [&](Job& job) {
      job.seats.clear();
      job.leaving.clear();
      job.round.clear();
      forget_cut_off(job);
      job.reason = e.reason;
      job.end_cause = e.cause;
      job.ended_at = time;
      enter(job,
            e.result == JobResult::kSucceeded ? JobPhase::kSucceeded
            : e.result == JobResult::kFailed  ? JobPhase::kFailed
                                              : JobPhase::kStopped,
            time);
      state.ended_jobs.push_back(job.id);
      resize_in(kResizeSoon);
      reindex_outputs(state, job);
    });
    forget_oldest(state);
  }

 private:
  Output* output_at(const JobId& id, const NodeId& node) {
    Job* job = job_at(state, id);
    if (!job) return nullptr;
    const auto it = job->outputs.find(node);
    return it == job->outputs.end() ? nullptr : &it->second;
  }

  // What a node had that is no more will not come, but from a machine that is found again.
  void lose_outputs(const Node& node) {
    const auto it = state.outputs_on.find(node.id);
    if (it == state.outputs_on.end()) return;
    for (const JobId& id : it->second) {
      Output* output = output_at(id, node.id);
      if (!output || output->phase != Output::Phase::kHeld) continue;
      output->phase = Output::Phase::kMissing;
      output->reason = node.reason.empty() ? "the node is gone" : "the node is gone: " + node.reason;
    }
    state.outputs_on.erase(it);
  }

  template <class Change>
  void change(const JobId& id, Change change) {
    Job* job = job_at(state, id);
    if (!job || ended(job->phase)) return;
    const Whereabouts before{job->seats, job->leaving};
    change(*job);
    reindex(state, *job, before);
  }

  // The same for what leaves its phase and its seats as they are.
  template <class Change>
  void note(const JobId& id, Change change) {
    Job* job = job_at(state, id);
    if (!job || ended(job->phase)) return;
    change(*job);
    state.index.update_job(state, id);
  }

  void resize_in(Duration wait) {
    const WallTime at = later(time, wait);
    if (!state.has_adaptive) return;
    if (!state.resize_at || at < *state.resize_at) state.resize_at = at;
  }

  // A job whose failure is not settled yet asks for no more workers: what the autoscaler was asked changes with it.
  void set_failure_pending(Job& job, bool pending) {
    if (job.failure_pending != pending) ++state.scaled.changes;
    job.failure_pending = pending;
  }

  void shun(Job& job, const NodeId& node) {
    const int strikes = std::min(++job.strikes[node], 8);
    job.shunned[node] = later(time, std::min<Duration>(kShunnedMax, kShunnedFirst * (1 << (2 * (strikes - 1)))));
  }

  void decided(Job& job, const Reasons& reasons) {
    job.reasons = reasons;
    job.reasons_digest = digest(reasons);
    job.decided = offset;
    job.decided_at = time;
  }

  void move(Node& node, NodePhase phase, const std::string& reason) {
    node.phase = phase;
    node.since = time;
    node.changed = offset;
    node.reason = reason;
    mind_idleness(state, node.id);
    resize_in(kResizeSoon);
  }

  void lose(Node& node, const std::string& reason, bool young) {
    TypeHealth& health = state.health[node.type];
    health.failures = young ? health.failures + 1 : 0;
    if (young) {
      const int doublings = std::min(health.failures - 1, 10);
      health.not_before = later(time, std::min(kTypeBackoffFirst * (1 << doublings), Duration(kTypeBackoffMax)));
    }
    drop_workers(node);
    move(node, NodePhase::kLost, reason);
  }

  // Nobody hears it: what it had of a started round may still run there.
  void note_cut_off(const Node& node) {
    const auto it = state.jobs_on.find(node.id);
    if (it == state.jobs_on.end()) return;
    CutOff cut_off;
    cut_off.agent = node.agent;
    cut_off.address = node.info.address;
    cut_off.port = node.info.peer_port;
    for (const JobId& id : it->second) {
      Job& job = state.jobs.at(id);
      const bool ran = std::ranges::any_of(
          job.round, [&](const Seat& seat) { return seat.node == node.id && seat.agent == node.agent; });
      const bool done = job.phase == JobPhase::kRunning && job.done.contains(node.id);
      if (!ran || done || ended(job.phase)) continue;
      job.cut_off[node.id] = cut_off;
      state.beside_cut_off.insert(id);
    }
  }

  // It is known that no worker lives there.
  void forget_cut_off(const NodeId& node) {
    std::erase_if(state.beside_cut_off, [&](const JobId& id) {
      Job& job = state.jobs.at(id);
      job.cut_off.erase(node);
      return job.cut_off.empty();
    });
  }
  void forget_cut_off(Job& job) {
    job.cut_off.clear();
    state.beside_cut_off.erase(job.id);
  }

  // Its agent is gone, and workers die with their agent.
  void drop_workers(const Node& node) {
    const auto it = state.jobs_on.find(node.id);
    if (it == state.jobs_on.end()) return;
    const std::set<JobId> affected = it->second;
    for (const JobId& id : affected) {
      change(id, [&](Job& job) {
        job.leaving.erase(node.id);
        if (job.seat_on(node.id) && !job.done.contains(node.id)) job.lost_since_failure = true;
      });
    }
  }
};

}  // namespace

// Whether the autoscaler's plan may be another one after it.
bool moves_scale(const Event& event) {
  return !std::holds_alternative<JobHeld>(event) && !std::holds_alternative<JobStarted>(event) &&
         !std::holds_alternative<SeatFailed>(event) && !std::holds_alternative<RestartCharged>(event) &&
         !std::holds_alternative<CheckpointMissed>(event) && !std::holds_alternative<OutputKept>(event) &&
         !std::holds_alternative<OutputMissing>(event) && !std::holds_alternative<ScaleHeld>(event) &&
         !std::holds_alternative<JobProfiled>(event) &&
         !std::holds_alternative<StrayFound>(event) && !std::holds_alternative<NodeStepped>(event);
}

void apply(State& state, const Record& record) {
  state.offset = record.offset;
  state.time = std::max(state.time, record.time);
  if (moves_scale(record.event)) ++state.scaled.changes;
  std::visit(Applier{state, record.offset, state.time}, record.event);
  reindex(state, record.event);
}

}  // namespace rubato::cluster

// A cluster in memory: the head's pure decisions, and agents and a provider that obey them late, in any order, or die.
//
// Agents know the truth: which workers are alive. What the head believes is checked against it after every step.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "cluster/state_testing.h"
#include "core/random.h"
#include "reconcile/autoscale.h"
#include "reconcile/decide.h"
#include "reconcile/observe.h"
#include "reconcile/orders.h"

namespace rubato::reconcile {

using namespace cluster;  // NOLINT: a test header of the same subject

// One agent process: obeys orders, runs "workers" that are numbers and names. Those of a job of this name change in
// place, as those of a script with the training library do.
inline constexpr const char* kLibraryJob = "library";

class FakeAgent {
 public:
  struct Worker {
    std::string id;
    int local_rank = 0;
    bool declared = false;
    bool trained = false;  // has the job's state
    bool met = false;      // trains by the newest plan
    bool planned = false;  // a member of it
    bool leaves = false;
  };
  struct Part {
    elastic::JobOrder asked;
    elastic::JobOrderState state = elastic::JobOrderState::kPreparing;
    Generation live_generation = 0;  // that they were started for, or whose plan they have
    Generation group = 0;            // a generation of the group that they belong to
    Generation finished = 0;         // the last generation, if its workers ended well by themselves
    int live = 0;
    std::vector<elastic::Failure> failures;
    std::vector<std::string> forced;

    std::vector<Worker> workers;  // alive
    std::vector<std::string> fresh;
    Generation planned = 0;
    bool stopped = false, over = false, declined = false;
    bool library() const { return asked.spec.name == kLibraryJob; }
    bool all_declared() const {
      return std::ranges::all_of(workers, [](const Worker& one) { return one.declared || !one.planned; });
    }
  };
  AgentId id;
  std::map<JobId, Part> parts;
  std::deque<elastic::Orders> inbox;
  std::deque<std::vector<elastic::JobOrderReport>> outbox;

  void obey(const elastic::Orders& orders) {
    std::set<JobId> told;
    for (const elastic::JobOrder& job_order : orders.job_orders) {
      told.insert(job_order.job);
      obey_one(job_order);
    }
    std::erase_if(parts, [&](const auto& entry) {
      if (told.contains(entry.first)) return false;
      // Who joined too late to train is ended with the job.
      const bool in_place = entry.second.planned > 0 || entry.second.asked.kept > 0;
      const bool late = in_place && std::ranges::none_of(entry.second.workers, &Worker::trained);
      EXPECT_TRUE(entry.second.live == 0 || late) << entry.first.value << ": the head forgot workers that are alive";
      return true;
    });
    tell();
  }

  // Whether the next progress() of a part may do something, if its work ends.
  bool moves(const Part& part, bool may_end) const {
    using elastic::JobOrderState;
    if (part.asked.phase != elastic::Phase::kRunning && part.state == JobOrderState::kPreparing) return true;
    if (part.asked.kept > 0 && part.state == JobOrderState::kReady) return may_end && part.live > 0;
    if (part.asked.phase != elastic::Phase::kRunning || part.state != JobOrderState::kRunning) return false;
    return may_end || std::ranges::any_of(
                          part.workers, [&](const Worker& one) { return one.leaves || (part.library() && !one.met); });
  }

  // One step of one job's part. `work_ends`: 0 goes on, 1 ends well, 2 fails, 3 some of it fails.
  bool progress(const JobId& job, int work_ends, bool forced) {
    Part& part = parts.at(job);
    using elastic::JobOrderState;
    const bool stop = part.asked.phase != elastic::Phase::kRunning;
    if (stop && part.asked.kept > 0 && keeps(part)) {
      progress_kept(part, work_ends);
    } else if (stop && part.state == JobOrderState::kPreparing) {
      part.forced.clear();
      if (part.live > 0 && forced) part.forced.push_back("rank 0");
      if (part.live > 0 && part.asked.kept > 0) part.stopped = true;
      part.workers.clear();
      part.live = 0;
      const bool waits = part.asked.kept > 0 && part.stopped;  // the head hears it, and starts all anew
      if (waits) tell();
      if (waits) return true;
      part.state = part.asked.phase == elastic::Phase::kEnded ? JobOrderState::kGone : JobOrderState::kReady;
      make_fresh(part);
    } else if (!stop && part.state == JobOrderState::kRunning) {
      if (!progress_running(part, work_ends)) return false;
    } else {
      return false;
    }
    tell();
    return true;
  }

  std::vector<elastic::JobOrderReport> reports() const {
    std::vector<elastic::JobOrderReport> all;
    for (const auto& [job, part] : parts) {
      elastic::JobOrderReport report;
      report.job = job;
      report.generation = part.asked.generation;
      report.state = part.state;
      if (part.state == elastic::JobOrderState::kReady) report.port = 5000;
      if (part.state == elastic::JobOrderState::kFailed || part.live > 0) report.failures = part.failures;
      report.forced = part.forced;
      report.succeeded = part.finished;
      const bool ended = part.asked.phase == elastic::Phase::kEnded && part.asked.kept == 0;
      if (!ended && !no_names) report.in_place = in_place(part);
      all.push_back(std::move(report));
    }
    return all;
  }

  bool no_names = false;  // an agent that does not plan its workers

 private:
  bool keeps(const Part& part) const {
    if (part.stopped || no_names) return false;
    const bool planned = std::ranges::any_of(part.workers, &Worker::planned);
    if (part.asked.phase == elastic::Phase::kEnded)
      return planned && part.planned == part.asked.kept && part.all_declared();
    return !planned || (part.planned == part.asked.kept && part.all_declared());
  }

  void progress_kept(Part& part, int work_ends) {
    using elastic::JobOrderState;
    const bool over = part.over;
    end_some(part, work_ends);
    // What has ended well is told when its last lines are out.
    part.state = over && part.live == 0 ? JobOrderState::kReady : JobOrderState::kPreparing;
    if (part.asked.phase == elastic::Phase::kEnded || part.over) return;
    for (Worker& one : part.workers) one.declared = true;
    if (static_cast<int>(part.workers.size()) >= part.asked.workers) {
      part.state = JobOrderState::kReady;
    } else if (work_ends == 2) {
      part.declined = true;
      part.state = JobOrderState::kFailed;
    } else {
      if (part.workers.empty()) part.live_generation = part.asked.generation;
      part.group = part.asked.kept;
      while (static_cast<int>(part.workers.size()) < part.asked.workers) part.workers.push_back(make_worker(part));
    }
    part.live = static_cast<int>(part.workers.size());
  }

  bool progress_running(Part& part, int work_ends) {
    using elastic::JobOrderState;
    bool moved = std::erase_if(part.workers, [](const Worker& one) { return one.leaves; }) > 0;
    for (Worker& one : part.workers) {
      if (!part.library()) break;
      moved = moved || !one.met;
      one.met = one.declared;
      one.trained = one.trained || (one.met && part.asked.plan);
      one.declared = true;
    }
    part.live = static_cast<int>(part.workers.size());
    if (moved) return true;
    if (work_ends == 0) return false;
    if (part.library() && work_ends == 3 && part.workers.size() > 1 && part.planned == part.asked.generation) {
      end_some(part, 2);
      return true;
    }
    if (work_ends == 3) work_ends = 2;
    part.live = 0;
    part.workers.clear();
    if (work_ends == 1) part.finished = part.live_generation;
    if (work_ends == 1) part.over = true;
    part.state = work_ends == 1 ? JobOrderState::kSucceeded : JobOrderState::kFailed;
    if (work_ends == 2) part.failures.push_back(failure_of(part));
    return true;
  }

  // Of workers that live on: one fails, or all end well.
  void end_some(Part& part, int work_ends) {
    if (part.workers.empty() || !part.workers.front().planned) return;
    if (work_ends == 2) {
      part.failures.push_back(failure_of(part));
      part.workers.erase(part.workers.begin());
    } else if (work_ends == 1 && part.library()) {
      part.workers.clear();
      part.finished = part.live_generation;
      part.over = true;
    }
    part.live = static_cast<int>(part.workers.size());
  }

  elastic::Failure failure_of(const Part& part) const {
    elastic::Failure failure;
    failure.host = id.value;
    failure.rank = part.asked.place.first_rank;
    failure.exit_code = 1;
    failure.generation = part.live_generation;
    return failure;
  }

  Worker make_worker(Part& part) {
    Worker one;
    one.id = fmt::format("{}-{}", id.value, ++names_);
    while (std::ranges::find(part.workers, one.local_rank, &Worker::local_rank) != part.workers.end()) ++one.local_rank;
    return one;
  }

  void make_fresh(Part& part) {
    part.fresh.clear();
    part.stopped = part.over = part.declined = false;
    for (int i = 0; i < part.asked.workers; ++i) part.fresh.push_back(fmt::format("{}-{}", id.value, ++names_));
  }

  elastic::InPlaceReport in_place(const Part& part) const {
    using elastic::WorkerStage;
    elastic::InPlaceReport report;
    report.workers.store = {"", 4711, "token"};
    report.workers.stopped = part.stopped;
    report.workers.finished = part.over;
    report.planned = part.planned;
    report.living = part.live;
    report.settled = true;
    for (const Worker& one : part.workers) {
      report.settled = report.settled && (one.met || !one.planned);
      if (one.leaves) continue;
      const WorkerStage stage = one.trained    ? WorkerStage::kVeteran
                                : one.declared ? WorkerStage::kReady
                                               : WorkerStage::kFresh;
      report.workers.slots.push_back({one.id, one.local_rank, stage});
    }
    for (const std::string& one : part.fresh) {
      const auto rank = static_cast<int>(report.workers.slots.size());
      report.workers.slots.push_back({one, rank, WorkerStage::kFresh});
    }
    return report;
  }

  void obey_one(const elastic::JobOrder& job_order) {
    using elastic::JobOrderState;
    Part& part = parts[job_order.job];
    const bool news = part.asked.generation != job_order.generation || part.asked.phase != job_order.phase;
    part.asked = job_order;
    if (!news) return;
    if (job_order.phase != elastic::Phase::kRunning) {
      part.state = JobOrderState::kPreparing;
      part.declined = false;
      if (job_order.phase == elastic::Phase::kGathering) part.fresh.clear();
      return;
    }
    // Of workers that live on, some may have ended since it was ready.
    EXPECT_TRUE(part.state == JobOrderState::kReady || part.planned > 0)
        << job_order.job.value << " started on a seat that was not ready";
    part.live_generation = job_order.generation;
    part.group = job_order.generation;
    part.finished = 0;
    part.state = JobOrderState::kRunning;
    part.forced.clear();
    const std::vector<elastic::Failure> before = std::exchange(part.failures, {});
    adopt(part);
    if (static_cast<int>(part.live) >= job_order.workers || !part.library()) return;
    part.failures = before;
    if (part.live > 0) return;
    part.state = part.over ? JobOrderState::kSucceeded : JobOrderState::kFailed;
    if (part.over) part.finished = job_order.generation;
  }

  void adopt(Part& part) {
    const elastic::JobOrder& job_order = part.asked;
    const auto is_member = [&](const std::string& one) {
      return job_order.plan && std::ranges::find(job_order.plan->members, one, &elastic::PlannedWorker::id) !=
                                   job_order.plan->members.end();
    };
    for (Worker& one : part.workers) {
      EXPECT_TRUE(job_order.plan) << "workers are alive that nobody planned";
      one.planned = is_member(one.id);
      one.leaves = !one.planned;
      one.met = false;
    }
    for (const std::string& one : part.fresh) {
      if (!is_member(one)) continue;
      Worker worker = make_worker(part);
      worker.id = one;
      worker.planned = true;
      part.workers.push_back(std::move(worker));
    }
    part.fresh.clear();
    while (!job_order.plan && static_cast<int>(part.workers.size()) < job_order.workers)
      part.workers.push_back(make_worker(part));
    const auto members = std::ranges::count_if(part.workers, [](const Worker& one) { return !one.leaves; });
    EXPECT_LE(members, job_order.workers) << job_order.job.value;
    EXPECT_TRUE(members == job_order.workers || part.library()) << job_order.job.value;
    if (job_order.plan) part.planned = job_order.generation;
    part.live = static_cast<int>(part.workers.size());
  }
  void tell() { outbox.push_back(reports()); }

  uint64_t names_ = 0;
};

class FakeCluster {
 public:
  explicit FakeCluster(uint64_t seed) : random{seed}, seed_(seed) {}

  Random random;
  State state;
  PlanMemory memory;
  Observed observed;
  WallTime now = kTestStart;
  Wake wake;
  std::map<NodeId, FakeAgent> agents;
  std::set<NodeId> dead;             // their agents died, the head does not know yet
  std::vector<std::string> journal;  // record i has offset i + 1
  std::function<void(const State& before, const State& after, const Record&)> on_record;
  std::map<JobId, std::map<Generation, Generation>> groups;  // by generation: the first of those that it lives on from
  bool check_idempotence = true;
  double failure_rate = 0;         // of workers that end
  double ends_rate = 0.3;          // of running parts that are looked at
  double create_failure_rate = 0;  // of nodes that are asked for

  void happen(std::vector<Event> events) {
    State shadow = on_record ? state : State{};
    const Decision decision = decide(state, memory, observed, std::move(events), now);
    wake = decision.wake;
    for (const Record& record : decision.records) {
      journal.push_back(encode(record.time, record.event));
      ASSERT_EQ(record.offset, journal.size());
      if (const auto* started = std::get_if<JobStarted>(&record.event)) {
        auto& known = groups[started->job];
        const Generation last = known.empty() ? 0 : known.rbegin()->first;
        known[started->generation] = started->in_place ? known.at(last) : started->generation;
      }
      if (!on_record) continue;
      const State before = shadow;
      apply(shadow, decode(record.offset, journal.back()));
      on_record(before, shadow, record);
    }
    if (check_idempotence) {
      State again = state;
      PlanMemory known = memory;
      const Decision more = decide(again, known, observed, {}, now);
      ASSERT_TRUE(more.records.empty()) << "seed " << seed_ << ": decided again: " << describe(more.records[0].event);
      ASSERT_EQ(more.wake.at, wake.at);
      if (++asked_ % 8 == 0) expect_plan_is_fresh();  // a plan is dear
    }
    if (decision.records.empty()) return;
    for (auto& [node, agent] : agents) {
      if (state.nodes.contains(node) && state.nodes.at(node).agent == agent.id && !dead.contains(node))
        agent.inbox.push_back(orders_for(state, node, "/out"));
    }
  }

  JobId submit(const JobSpec& spec) {
    const JobId id{fmt::format("j-{:06}", ++jobs_)};
    happen({JobSubmitted{id, spec, "", ""}});
    return id;
  }

  // Something that can happen without a fault happens, or time passes. False: nothing can, ever.
  bool step() {
    std::vector<std::function<void()>> choices;
    provider_choices(choices);
    agent_choices(choices);
    if (!choices.empty() && random.chance(0.97)) {
      if (random.chance(0.2)) now = later(now, std::chrono::milliseconds(random.below(1500)));
      choices[random.below(choices.size())]();
      if (wake.at && *wake.at <= now) happen({});
      return true;
    }
    if (!wake.at && choices.empty()) return false;
    now = wake.at && choices.empty() ? std::max(now, *wake.at)
                                     : later(now, std::chrono::milliseconds(random.below(3000)));
    happen({});
    return true;
  }

  // The machine dies: its workers at once, the head hears of it later. By value: callers pass keys of `agents`.
  void kill(NodeId node) {
    agents.erase(node);
    dead.insert(node);
  }
  // The agent process is replaced by another one on the same node, before anybody noticed.
  void replace_agent(NodeId node) {
    agents.erase(node);
    join(node);
  }

  // A new head: all that the old one had in memory is gone; agents connect anew and say what they run.
  void restart_head(State recovered) {
    state = std::move(recovered);
    memory = {};
    observed = {};
    for (const auto& [id, node] : state.nodes) {
      if (node.phase == NodePhase::kUp || node.phase == NodePhase::kDraining) observed.unheard.insert(id);
    }
    happen({HeadStarted{state.epoch + 1, "test", 1}});
    for (auto& [node, agent] : agents) {
      agent.inbox.clear();
      agent.outbox.clear();
      if (!known(node, agent)) continue;
      agent.inbox.push_back(orders_for(state, node, "/out"));
      agent.outbox.push_back(agent.reports());
    }
  }
  State replayed() const {
    State state;
    for (size_t i = 0; i < journal.size(); ++i) apply(state, decode(i + 1, journal[i]));
    return state;
  }

  // Demand that could be met has a decision or a reason, without anything else happening: what the autoscaler remembers
  // to have answered is what it would answer now.
  void expect_plan_is_fresh() const {
    if (!memory.answers(state, now) || any_unheard(state, observed)) return;
    Wake unused;
    for (const Event& event : advance_scale(state, now, unused)) {
      ASSERT_FALSE(std::holds_alternative<NodeRequested>(event))
          << "seed " << seed_ << ": not asked for, though nothing stands against it: " << describe(event);
    }
  }

 private:
  bool known(const NodeId& node, const FakeAgent& agent) const {
    const auto it = state.nodes.find(node);
    return it != state.nodes.end() && it->second.agent == agent.id;
  }

  void join(const NodeId& node) {
    FakeAgent& agent = agents[node];
    agent.id = AgentId{fmt::format("a{}-{}", ++agents_made_, node.value)};
    const Node& known = state.nodes.at(node);
    const auto type = state.spec->types.find(known.type);
    // A machine keeps its size when its agent is replaced.
    const bool first = known.resources.empty() && type != state.spec->types.end();
    forget(observed, node);
    NodeJoined joined = History::joined(node, agent.id.value, first ? type->second.resources : known.resources);
    joined.own_disk = node.value.back() % 2 == 1;
    happen({std::move(joined)});
  }

  void end_agent(const NodeId& node) {
    if (agents.contains(node)) {
      for (const auto& [job, part] : agents.at(node).parts) EXPECT_EQ(part.live, 0) << "ended under workers";
    }
    agents.erase(node);
    dead.erase(node);
    forget(observed, node);
  }

  void provider_choices(std::vector<std::function<void()>>& choices) {
    for (const auto& [id, node] : state.nodes) {
      const NodeId node_id = id;
      if (dead.contains(id) && node.phase != NodePhase::kRemoving) {
        choices.emplace_back([this, node_id] {
          dead.erase(node_id);
          forget(observed, node_id);
          happen({NodeLost{node_id, "silent"}});
        });
      } else if (node.phase == NodePhase::kRequested) {
        choices.emplace_back([this, node_id] {
          if (random.chance(create_failure_rate)) return happen({NodeFailed{node_id, "no machine"}});
          end_agent(node_id);  // of before an update
          happen({NodeStepped{node_id, "agent", ""}, NodeCreated{node_id, state.nodes.at(node_id).runtime}});
        });
      } else if (node.phase == NodePhase::kStarting) {
        choices.emplace_back([this, node_id] { join(node_id); });
      } else if (node.phase == NodePhase::kRemoving) {
        choices.emplace_back([this, node_id] {
          end_agent(node_id);
          happen({NodeGone{node_id}});
        });
      } else if (!node.refreshing.empty()) {
        choices.emplace_back([this, node_id, runtime = node.refreshing] {
          happen({NodeRefreshed{node_id, runtime, random.chance(create_failure_rate) ? "no network" : ""}});
        });
      }
    }
  }

  void agent_choices(std::vector<std::function<void()>>& choices) {
    for (auto& [id, agent] : agents) {
      const NodeId node = id;
      FakeAgent* one = &agent;
      if (!agent.inbox.empty()) {
        choices.emplace_back([one] {
          one->obey(one->inbox.front());
          one->inbox.pop_front();
        });
      }
      if (!agent.outbox.empty()) {
        choices.emplace_back([this, node, one] {
          const std::vector<elastic::JobOrderReport> reports = one->outbox.front();
          one->outbox.pop_front();
          observed.unheard.erase(node);
          happen(observe(state, observed, node, reports));
        });
      }
      for (const auto& [job, part] : agent.parts) {
        if (!agent.moves(part, ends_rate > 0)) continue;
        const JobId id_of_job = job;
        choices.emplace_back([this, one, id_of_job] {
          const int fails = random.chance(0.5) ? 2 : 3;
          const int ends = random.chance(ends_rate) ? (random.chance(failure_rate) ? fails : 1) : 0;
          one->progress(id_of_job, ends, random.chance(0.1));
        });
      }
    }
  }

  uint64_t seed_;
  int jobs_ = 0;
  int agents_made_ = 0;
  int asked_ = 0;
};

}  // namespace rubato::reconcile

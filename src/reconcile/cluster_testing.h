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

// One agent process: obeys orders, runs "workers" that are numbers.
class FakeAgent {
 public:
  struct Part {
    elastic::Errand asked;
    elastic::ErrandState state = elastic::ErrandState::kPreparing;
    Generation live_generation = 0;
    Generation finished = 0;  // the last generation, if its workers ended well by themselves
    int live = 0;
    std::vector<elastic::Failure> failures;
    std::vector<std::string> forced;
  };
  AgentId id;
  std::map<JobId, Part> parts;
  std::deque<elastic::Orders> inbox;
  std::deque<std::vector<elastic::ErrandReport>> outbox;

  void obey(const elastic::Orders& orders) {
    std::set<JobId> told;
    for (const elastic::Errand& errand : orders.errands) {
      told.insert(errand.job);
      obey_one(errand);
    }
    std::erase_if(parts, [&](const auto& entry) {
      if (told.contains(entry.first)) return false;
      EXPECT_EQ(entry.second.live, 0) << entry.first.value << ": the head forgot workers that are alive";
      return true;
    });
    tell();
  }

  // One step of one job's part. `work_ends`: 0 goes on, 1 ends well, 2 fails.
  bool progress(const JobId& job, int work_ends, bool forced) {
    Part& part = parts.at(job);
    using elastic::ErrandState;
    const bool stop = part.asked.phase != elastic::Phase::kRunning;
    if (stop && part.state == ErrandState::kPreparing) {
      part.forced.clear();
      if (part.live > 0 && forced) part.forced.push_back("rank 0");
      part.live = 0;
      part.state = part.asked.phase == elastic::Phase::kEnded ? ErrandState::kGone : ErrandState::kReady;
    } else if (!stop && part.state == ErrandState::kRunning && work_ends > 0) {
      part.live = 0;
      if (work_ends == 1) part.finished = part.live_generation;
      part.state = work_ends == 1 ? ErrandState::kSucceeded : ErrandState::kFailed;
      if (work_ends == 2) {
        elastic::Failure failure;
        failure.host = id.value;
        failure.rank = part.asked.place.first_rank;
        failure.exit_code = 1;
        failure.generation = part.live_generation;
        part.failures = {failure};
      }
    } else {
      return false;
    }
    tell();
    return true;
  }

  std::vector<elastic::ErrandReport> reports() const {
    std::vector<elastic::ErrandReport> all;
    for (const auto& [job, part] : parts) {
      elastic::ErrandReport report;
      report.job = job;
      report.generation = part.asked.generation;
      report.state = part.state;
      if (part.state == elastic::ErrandState::kReady) report.port = 5000;
      if (part.state == elastic::ErrandState::kFailed) report.failures = part.failures;
      report.forced = part.forced;
      report.succeeded = part.finished;
      all.push_back(std::move(report));
    }
    return all;
  }

 private:
  void obey_one(const elastic::Errand& errand) {
    using elastic::ErrandState;
    Part& part = parts[errand.job];
    const bool news = part.asked.generation != errand.generation || part.asked.phase != errand.phase;
    part.asked = errand;
    if (!news) return;
    if (errand.phase != elastic::Phase::kRunning) {
      part.state = ErrandState::kPreparing;
      return;
    }
    EXPECT_EQ(part.state, ErrandState::kReady) << errand.job.value << " started on a seat that was not ready";
    EXPECT_EQ(part.live, 0);
    part.live = errand.workers;
    part.live_generation = errand.generation;
    part.finished = 0;
    part.state = ErrandState::kRunning;
    part.forced.clear();
  }
  void tell() { outbox.push_back(reports()); }
};

class FakeCluster {
 public:
  explicit FakeCluster(uint64_t seed) : random{seed}, seed_(seed) {}

  Random random;
  State state;
  Observed observed;
  WallTime now = kTestStart;
  Wake wake;
  std::map<NodeId, FakeAgent> agents;
  std::set<NodeId> dead;             // their agents died, the head does not know yet
  std::vector<std::string> journal;  // record i has offset i + 1
  std::function<void(const State& before, const State& after, const Record&)> on_record;
  bool check_idempotence = true;
  double failure_rate = 0;         // of workers that end
  double ends_rate = 0.3;          // of running parts that are looked at
  double create_failure_rate = 0;  // of nodes that are asked for

  void happen(std::vector<Event> events) {
    State shadow = on_record ? state : State{};
    const Decision decision = decide(state, observed, std::move(events), now);
    wake = decision.wake;
    for (const Record& record : decision.records) {
      journal.push_back(encode(record.time, record.event));
      ASSERT_EQ(record.offset, journal.size());
      if (!on_record) continue;
      const State before = shadow;
      apply(shadow, decode(record.offset, journal.back()));
      on_record(before, shadow, record);
    }
    if (check_idempotence) {
      State again = state;
      const Decision more = decide(again, observed, {}, now);
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
    const State::Scaled& memory = state.scaled;
    const bool due = memory.seen != memory.changes || (memory.due && now >= *memory.due);
    if (due || any_unheard(state, observed)) return;
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
          const std::vector<elastic::ErrandReport> reports = one->outbox.front();
          one->outbox.pop_front();
          observed.unheard.erase(node);
          happen(observe(state, observed, node, reports));
        });
      }
      for (const auto& [job, part] : agent.parts) {
        const bool stopping = part.asked.phase != elastic::Phase::kRunning;
        const bool moves = part.state == elastic::ErrandState::kPreparing ||
                           (!stopping && part.state == elastic::ErrandState::kRunning && ends_rate > 0);
        if (!moves) continue;
        const JobId id_of_job = job;
        choices.emplace_back([this, one, id_of_job] {
          const int ends = random.chance(ends_rate) ? (random.chance(failure_rate) ? 2 : 1) : 0;
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

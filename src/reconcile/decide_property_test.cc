// Seeded runs of a whole cluster with faults. RUBATO_SEED replays one, RUBATO_RUNS sets how many there are.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "core/text.h"
#include "reconcile/invariants_testing.h"

namespace rubato::reconcile {
namespace {

uint64_t env_number(const char* name, uint64_t otherwise) {
  const char* text = getenv(name);
  return text ? strtoull(text, nullptr, 10) : otherwise;
}

ClusterSpec random_cluster(Random& random) {
  std::vector<NodeType> types = {
      node_type("big", cpus(4 + static_cast<double>(random.below(2)), 0, 2), static_cast<int>(random.below(3)), 4),
      node_type("small", cpus(2), static_cast<int>(1 + random.below(5)), 8)};
  if (random.chance(0.2)) types.pop_back();
  // Half of them are machines, with files and commands that change now and then.
  ClusterSpec spec = cluster_of(types);
  if (random.chance(0.5)) {
    spec.head_type = types.front().name;
    spec.head_runtime = random.chance(0.5) ? "head-a" : "head-b";
    for (auto& [name, type] : spec.types) type.runtime = random.chance(0.5) ? "a" : "b";
  }
  return spec;
}

ClusterConfigured random_configuration(Random& random) {
  return ClusterConfigured{random_cluster(random), "text", random.chance(0.3), random.chance(0.2)};
}

JobSpec random_job(Random& random) {
  const int min = static_cast<int>(1 + random.below(random.chance(0.1) ? 40 : 5));
  const int max = min + static_cast<int>(random.chance(0.5) ? random.below(6) : 0);
  JobSpec spec = job_of(min, max, cpus(random.chance(0.2) ? 2 : 1, 0, random.chance(0.15) ? 1 : 0));
  if (random.chance(0.3)) {
    spec.workers_step = 2 + static_cast<int>(random.below(2));
    spec.workers_min *= spec.workers_step;
    spec.workers_max *= spec.workers_step;
  }
  if (random.chance(0.5)) spec.name = kLibraryJob;
  spec.priority = static_cast<int>(random.below(3));
  if (random.chance(0.3)) spec.weight = 0.01 + 10 * random.unit();
  if (random.chance(0.3)) spec.deadline = seconds(600 * random.unit());
  spec.owner = random.chance(0.5) ? "ann" : "bob";
  spec.max_restarts = static_cast<int>(random.below(4));
  spec.timeout = random.chance(0.1) ? Duration(30s) : Duration(0);
  return spec;
}

NodeId random_node(FakeCluster& cluster) {
  auto it = cluster.agents.begin();
  std::advance(it, static_cast<long>(cluster.random.below(cluster.agents.size())));
  return it->first;
}

bool live_node(const FakeCluster& cluster, const NodeId& node) {
  const auto it = cluster.state.nodes.find(node);
  return it != cluster.state.nodes.end() && !cluster.dead.contains(node) && cluster.agents.contains(node) &&
         it->second.agent == cluster.agents.at(node).id &&
         (it->second.phase == NodePhase::kUp || it->second.phase == NodePhase::kDraining);
}

void stop_some_job(FakeCluster& cluster) {
  std::vector<JobId> open;
  for (const auto& [id, job] : cluster.state.jobs) {
    if (!ended(job.phase) && job.phase != JobPhase::kStopping) open.push_back(id);
  }
  if (!open.empty()) cluster.happen({JobStopping{open[cluster.random.below(open.size())], false, "asked"}});
}

// A new head from the records alone, or from a snapshot and the records after it.
void restart_head(FakeCluster& cluster) {
  const size_t cut = cluster.random.below(cluster.journal.size() + 1);
  State part;
  for (size_t i = 0; i < cut; ++i) apply(part, decode(i + 1, cluster.journal[i]));
  part = decode_snapshot(encode_snapshot(part));
  for (size_t i = cut; i < cluster.journal.size(); ++i) apply(part, decode(i + 1, cluster.journal[i]));
  ASSERT_EQ(encode_snapshot(part), encode_snapshot(cluster.state));
  cluster.restart_head(std::move(part));
  // It was shut down before: who starts a head again says what for.
  if (!cluster.state.spec) cluster.happen({random_configuration(cluster.random)});
}

// Of what some job left on a node: it is brought, or cannot be.
void deliver_some_output(FakeCluster& cluster) {
  const auto& held = cluster.state.outputs_on;
  if (held.empty()) return;
  auto [node, jobs] = *std::next(held.begin(), static_cast<int64_t>(cluster.random.below(held.size())));
  const JobId job = *jobs.begin();
  const Generation generation = cluster.state.jobs.at(job).outputs.at(node).generation;
  if (cluster.random.chance(0.7)) {
    cluster.happen({OutputKept{job, node, generation, 1, 1}});
  } else {
    cluster.happen({OutputMissing{job, node, "no room"}});
  }
}

// A job tells of itself; whether more workers would help it is anybody's guess.
void profile_some_job(FakeCluster& cluster) {
  Random& random = cluster.random;
  if (cluster.state.active.empty()) return;
  auto job = cluster.state.active.begin();
  std::advance(job, static_cast<long>(random.below(cluster.state.active.size())));
  JobProfile profile;
  profile.init_batch_size = static_cast<double>(1 + random.below(256));
  profile.max_batch_size = profile.init_batch_size * static_cast<double>(random.below(64));
  profile.max_profiled_replicas = static_cast<int64_t>(random.below(8));
  if (random.chance(0.8)) profile.gradient = JobProfile::Gradient{random.unit(), random.unit()};
  const double net = random.chance(0.5) ? random.unit() : 100 * random.unit();
  const JobProfile::Perf perf{random.unit(), random.unit(), net, net, net, net, 1 + random.unit()};
  if (random.chance(0.9)) profile.perf = perf;
  if (random.chance(0.5)) profile.done_iters = 1000 * random.unit();
  if (random.chance(0.5)) profile.total_iters = 1000 * random.unit();
  if (random.chance(0.3)) profile.start_s = 100 * random.unit();
  if (random.chance(0.5)) profile.device = random.chance(0.5) ? "fast" : "slow";
  if (random.chance(0.3)) profile.perf_by_device["slow"] = perf;
  cluster.happen({JobProfiled{*job, profile}});
}

// A person wants it empty, at once or by a time, or its machine is to be taken away; or a person changes his mind.
void drain_or_keep(FakeCluster& cluster, const NodeId& id) {
  Random& random = cluster.random;
  const Node& node = cluster.state.nodes.at(id);
  if (node.phase == NodePhase::kDraining) {
    if (!node.noticed) cluster.happen({NodeKept{id, "asked"}});
    return;
  }
  NodeDraining draining;
  draining.node = id;
  draining.reason = "asked";
  if (random.chance(0.5)) {
    draining.deadline = later(cluster.now, std::chrono::seconds(random.below(120)));
    draining.noticed = random.chance(0.5);
  }
  cluster.happen({draining});
}

void fault(FakeCluster& cluster) {
  Random& random = cluster.random;
  const uint64_t dice = random.below(100);
  if (dice < 35) {
    cluster.submit(random_job(random));
  } else if (dice < 45) {
    stop_some_job(cluster);
  } else if (dice < 50) {
    cluster.happen({random_configuration(random)});
  } else if (dice < 51) {
    cluster.happen({ShutdownRequested{}});
  } else if (dice < 56) {
    restart_head(cluster);
  } else if (dice < 57) {
    cluster.happen({StrayFound{NodeId{"stray-1"}}});
  } else if (dice < 59) {
    ResourcesRequested request;
    if (random.chance(0.5)) request.bundles.push_back({cpus(1), static_cast<int64_t>(1 + random.below(20))});
    cluster.happen({request});
  } else if (dice < 61) {
    deliver_some_output(cluster);
  } else if (dice < 64) {
    // Everybody is slow: seats are late, jobs starve, timeouts pass.
    cluster.now = later(cluster.now, std::chrono::seconds(random.below(900)));
    cluster.happen({});
  } else if (!cluster.agents.empty()) {
    const NodeId node = random_node(cluster);
    if (!live_node(cluster, node)) return;
    if (dice < 70) {
      cluster.kill(node);
    } else if (dice < 80) {
      cluster.replace_agent(node);
    } else if (dice < 90) {
      drain_or_keep(cluster, node);
    } else {
      profile_some_job(cluster);
    }
  }
}

// Who has what of a job, as its agents know it.
std::string story(const FakeCluster& cluster, const Job& job) {
  std::string text = fmt::format("; generation {}, ran {}, in place {}", job.generation, job.ran, job.in_place);
  for (const auto& [node, agent] : cluster.agents) {
    const auto it = agent.parts.find(job.id);
    if (it == agent.parts.end()) continue;
    const FakeAgent::Part& part = it->second;
    text += fmt::format("\n  {}{}{}{}{}: asked {} of generation {} (kept {}), {}, {} alive of {}, plan {}{}{}{}",
                        node.value, job.seat_on(node) ? " seat" : "", job.leaving.contains(node) ? " leaving" : "",
                        job.done.contains(node) ? " done" : "", job.unfinished.contains(node) ? " unfinished" : "",
                        elastic::to_string(part.asked.phase), part.asked.generation, part.asked.kept,
                        elastic::to_string(part.state), part.live, part.live_generation, part.planned,
                        part.over ? " over" : "", part.stopped ? " stopped" : "", part.declined ? " declined" : "");
  }
  return text;
}

void expect_no_progress_left(const FakeCluster& cluster) {
  for (const auto& [id, job] : cluster.state.jobs) {
    if (ended(job.phase)) continue;
    ASSERT_EQ(job.phase, JobPhase::kQueued) << id.value << " is stuck " << to_string(job.phase) << story(cluster, job);
    // All that runs has ended, so what waits does not fit at all.
    int64_t fits = 0;
    for (const auto& [node_id, node] : cluster.state.nodes) {
      if (node.usable()) fits += job.spec.per_worker.times_in(node.resources);
    }
    EXPECT_LT(fits, job.spec.workers_min) << id.value << " could run";
    ASSERT_FALSE(job.reasons.against.empty());
    bool named = false;
    for (const Reasons::Obstacle& obstacle : job.reasons.against) named |= obstacle.where.starts_with("cluster.yaml:");
    EXPECT_TRUE(named) << id.value << ": " << job.reasons.against[0].text;
  }
}

// What happened at all: a run without it has proved nothing about it.
std::set<std::string>& seen() {
  static std::set<std::string> marks;
  return marks;
}

void mark(const Record& record) {
  seen().emplace(type_name(record.event));
  const auto* placed = std::get_if<JobPlaced>(&record.event);
  for (const char* cause :
       {"its turn", "room again", "was lost", "drains", "not ready within", "grows", "shrinks", "makes room"}) {
    if (placed && placed->cause.find(cause) != std::string::npos) seen().emplace(cause);
  }
  if (placed && placed->in_place) seen().emplace("in place");
  const auto* started = std::get_if<JobStarted>(&record.event);
  if (started && started->change.starts_with("resized")) seen().emplace("resized in place");
  const auto* held = std::get_if<JobHeld>(&record.event);
  if (held && held->reasons.against.at(0).text.ends_with("nothing passes it any more")) seen().emplace("starved");
}

void run_one(uint64_t seed) {
  SCOPED_TRACE("RUBATO_SEED=" + std::to_string(seed));
  FakeCluster cluster(seed);
  cluster.on_record = [&](const State& before, const State& after, const Record& record) {
    check_record(cluster, before, after, record);
    mark(record);
    if (::testing::Test::HasFailure()) ADD_FAILURE() << "at: " << describe(record.event);
  };
  cluster.failure_rate = cluster.random.chance(0.5) ? 0.3 : 0;
  cluster.create_failure_rate = cluster.random.chance(0.3) ? 0.2 : 0;
  cluster.ends_rate = 0.05;
  cluster.happen({HeadStarted{1, "test", 1}, random_configuration(cluster.random)});
  const double faults = cluster.random.unit() * 0.25;
  for (int i = 0; i < 250 && !::testing::Test::HasFailure(); ++i) {
    if (cluster.random.chance(faults)) fault(cluster);
    cluster.step();
    check_truth(cluster);
  }
  if (::testing::Test::HasFailure()) return;

  // Faults stop: all that can end, ends.
  if (cluster.state.shutting_down) cluster.happen({random_configuration(cluster.random)});
  cluster.failure_rate = cluster.create_failure_rate = 0;
  cluster.ends_rate = 0.5;
  const WallTime end = later(cluster.now, 1h);
  for (int i = 0; i < 20'000 && cluster.now < end && !::testing::Test::HasFailure(); ++i) {
    if (!cluster.step()) break;
    check_truth(cluster);
  }
  if (!::testing::Test::HasFailure()) expect_no_progress_left(cluster);
  ASSERT_EQ(encode_snapshot(cluster.replayed()), encode_snapshot(cluster.state));
}

TEST(Cluster, KeepsItsPromisesUnderFaults) {
  const uint64_t only = env_number("RUBATO_SEED", 0);
  if (only) return run_one(only);
  const uint64_t runs = env_number("RUBATO_RUNS", 200);
  for (uint64_t seed = 1; seed <= runs && !HasFailure(); ++seed) run_one(seed);
  // All but JournalLost, which a person decides; nine causes of JobPlaced; and changes in place.
  EXPECT_EQ(seen().size(), std::variant_size_v<Event> - 1 + 9 + 2)
      << join(std::vector<std::string>(seen().begin(), seen().end()), ", ");
}

}  // namespace
}  // namespace rubato::reconcile

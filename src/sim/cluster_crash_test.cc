// A head that dies at any moment: no job is lost, run twice or forgotten.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cluster/apply.h"
#include "sim/cluster_testing.h"
#include "sim/in_place_testing.h"

namespace rubato::sim {
namespace {

using cluster::JobPhase;

// What agents offer their workers, and what those make of it.
enum class Workers { kAlone, kPlain, kWithLibrary };  // no changes in place; offered, not used; used
constexpr Workers kAllWorkers[] = {Workers::kAlone, Workers::kPlain, Workers::kWithLibrary};

void offer_changes(ClusterSim& cluster, LibraryModel& model, Workers workers) {
  if (workers != Workers::kAlone) cluster.machines.in_place = &model;
  if (workers == Workers::kWithLibrary) model.start();
}

// A small life with everything in it: two jobs that fit and one that waits, growth, a failure, a stop.
void scenario(ClusterSim& cluster, LibraryModel& library, Workers workers) {
  offer_changes(cluster, library, workers);
  library.ends = cluster.sim.now() + 12s;
  cluster.behaviour = [workers](const SpawnSpec& spec, const WorkerRecord& record, Random&) {
    WorkerModel model = workers == Workers::kWithLibrary ? with_library() : WorkerModel{};
    model.start_delay = 300ms;
    if (workers != Workers::kWithLibrary) model.runs = 8s;
    const auto name = std::ranges::find(spec.env, "RUBATO_JOB_NAME=fails");
    if (name != spec.env.end() && record.rank == 0 && record.generation == 1) model.crash_after = 2s;
    return model;
  };
  cluster.start_head();
  cluster.submit(sim_job(1, 3));
  JobSpec fails = sim_job(1, 1);
  fails.name = "fails";
  fails.max_restarts = 1;
  cluster.submit(fails);
  cluster.submit(sim_job(2, 2));
}

void expect_all_well(ClusterSim& cluster, const std::string& what) {
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 600s)) << what << "\n" << cluster.story();
  for (size_t i = 0; i < cluster.wishes.size(); ++i) {
    EXPECT_EQ(cluster.job(i)->phase, JobPhase::kSucceeded) << what << ": job " << i << "\n" << cluster.story();
  }
  EXPECT_EQ(cluster.state().jobs.size(), cluster.wishes.size()) << what << ": a job was taken twice\n"
                                                                << cluster.story();
  EXPECT_TRUE(cluster.broken.empty()) << what << ": " << cluster.broken.front() << "\n" << cluster.story();
  // What the running head holds is what its journal says.
  cluster::State replayed;
  for (const auto& [offset, bytes] : cluster.journal.records()) {
    cluster::apply(replayed, cluster::decode(offset, bytes));
    if (offset == cluster.state().offset) break;
  }
  EXPECT_EQ(cluster::encode_snapshot(replayed), cluster::encode_snapshot(cluster.state())) << what;
}

uint64_t records_without_a_crash(Workers workers) {
  ClusterSim cluster(1, 3, 5);
  LibraryModel library(cluster.sim);
  scenario(cluster, library, workers);
  expect_all_well(cluster, "no crash");
  EXPECT_TRUE(library.broken.empty()) << library.broken.front();
  return cluster.journal.end();
}

// One life for each record, with `strike` called exactly before, or right after, that record is durable.
void strike_at_each_record(const std::function<void(ClusterSim&)>& strike, Workers workers) {
  const uint64_t records = records_without_a_crash(workers);
  ASSERT_GT(records, 20u);
  for (uint64_t offset = 1; offset <= records && !testing::Test::HasFailure(); ++offset) {
    for (const Durable when : {Durable::kBefore, Durable::kAfter}) {
      ClusterSim cluster(1, 3, 5);
      LibraryModel library(cluster.sim);
      bool struck = false;
      cluster.journal.on_commit = [&](uint64_t at, Durable now) {
        if (struck || at != offset || now != when) return;
        struck = true;
        strike(cluster);
      };
      scenario(cluster, library, workers);
      expect_all_well(cluster, fmt::format("{} record {}", when == Durable::kBefore ? "before" : "after", offset));
      EXPECT_TRUE(library.broken.empty()) << offset << ": " << library.broken.front();
      EXPECT_TRUE(struck) << offset;
    }
  }
}

void kill_the_head(ClusterSim& cluster) {
  cluster.kill_head();
  cluster.sim.simulator.at(cluster.sim.now() + 700ms, [&cluster] { cluster.start_head(); });
}

// The agent that has the most to lose: one with workers, if there is one. Not from inside the head's own turn.
void kill_an_agent(ClusterSim& cluster) {
  cluster.sim.simulator.at(cluster.sim.now(), [&cluster] {
    std::optional<rubato::NodeId> victim;
    for (const rubato::NodeId& node : cluster.machines.list()) {
      if (!cluster.machines.agent(node).running()) continue;
      const int machine = cluster.sim.machine(cluster.machines.machine_of(node)).node();
      const bool busy = std::ranges::any_of(cluster.sim.workers.live(),
                                            [&](const auto& entry) { return entry.second.machine == machine; });
      if (busy || !victim) victim = node;
    }
    if (victim) cluster.machines.agent(*victim).kill();
  });
}

TEST(ClusterCrash, TheHeadDiesAtEachRecord) {
  for (const Workers workers : kAllWorkers) strike_at_each_record(kill_the_head, workers);
}

TEST(ClusterCrash, AnAgentDiesAtEachRecord) {
  for (const Workers workers : kAllWorkers) strike_at_each_record(kill_an_agent, workers);
}

TEST(ClusterCrash, BothDieAtEachRecord) {
  const auto kill_both = [](ClusterSim& cluster) {
    kill_an_agent(cluster);
    kill_the_head(cluster);
  };
  for (const Workers workers : kAllWorkers) strike_at_each_record(kill_both, workers);
}

// A head that is killed while a job runs must not cost it a generation.
TEST(ClusterCrash, RunningWorkersAreAdoptedNotRestarted) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterSim cluster(seed, 3);
    cluster.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) {
      WorkerModel model;
      model.runs = 60s;
      return model;
    };
    cluster.start_head();
    cluster.submit(sim_job(3, 3));
    ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 3; }, 60s))
        << cluster.story();
    for (int i = 0; i < 5; ++i) {
      cluster.kill_head();
      cluster.sim.simulator.run_for(seconds(0.1 + static_cast<double>(seed * 7 % 20) / 10));
      cluster.start_head();
      cluster.sim.simulator.run_for(3s);
    }
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 300s)) << cluster.story();
    EXPECT_EQ(cluster.job(0)->generation, 1u) << seed << "\n" << cluster.story();
    EXPECT_EQ(cluster.sim.workers.past().size(), 3u) << seed;
  }
}

// Random lives: heads and agents are killed, machines lose power, cables are cut; then it is left alone.
class Chaos {
 public:
  explicit Chaos(uint64_t seed)
      : cluster_(seed, 4, 6), library_(cluster_.sim), workers_(kAllWorkers[seed % 3]), random_(seed * 977 + 5) {}

  void run() {
    offer_changes(cluster_, library_, workers_);
    library_.ends = cluster_.sim.now() + 5s + up_to(60s);
    cluster_.behaviour = [workers = workers_](const SpawnSpec&, const WorkerRecord&, Random& random) {
      WorkerModel model = workers == Workers::kWithLibrary ? with_library() : WorkerModel{};
      model.start_delay = 200ms + Duration(static_cast<int64_t>(random.below(500'000'000)));
      const Duration runs = 5s + Duration(static_cast<int64_t>(random.below(20'000'000'000)));
      if (workers != Workers::kWithLibrary) model.runs = runs;
      if (random.chance(0.05)) model.crash_after = Duration(static_cast<int64_t>(random.below(5'000'000'000)));
      if (random.chance(0.3)) model.sigterm_delay = Duration(static_cast<int64_t>(random.below(4'000'000'000)));
      if (random.chance(0.1)) model.sigterm_delay = std::nullopt;
      return model;
    };
    // Nobody ends what does not answer.
    cluster_.machines.made.unreachable = [this](const rubato::NodeId& node) { return cut_.contains(node); };
    cluster_.start_head();
    for (int i = 0; i < 3; ++i) {
      const int least = 1 + static_cast<int>(random_.below(3));
      JobSpec spec = sim_job(least, least + static_cast<int>(random_.below(3)));
      spec.checkpoint_timeout = 5s;
      spec.rescale_timeout = 10s;
      spec.max_restarts = 50;  // a cut cable looks like a failure to the workers
      spec.priority = static_cast<int>(random_.below(3));
      cluster_.submit(spec);
    }
    const int faults = 1 + static_cast<int>(random_.below(5));
    for (int i = 0; i < faults; ++i) {
      cluster_.sim.simulator.run_for(Duration(static_cast<int64_t>(random_.below(12'000'000'000))));
      strike();
    }
    cluster_.sim.simulator.run_for(2s);
    cluster_.sim.machine(1).thaw();
    revive();
    heal();
  }

  ClusterSim& cluster() { return cluster_; }
  const LibraryModel& library() const { return library_; }

 private:
  Duration up_to(Duration most) {
    return Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(most.count()))));
  }

  void later(Duration most, std::function<void()> call) {
    cluster_.sim.simulator.at(cluster_.sim.now() + up_to(most), std::move(call));
  }

  void strike() {
    const uint64_t kind = random_.below(12);
    if (kind == 9 || kind == 10) {
      SimProgram& head = cluster_.head_program();
      if (head.running()) head.stop();
      later(20s, [&head] { head.resume(); });
      return;
    }
    if (kind == 11) {
      SimMachine& machine = cluster_.sim.machine(1);
      machine.freeze();
      later(20s, [&machine] { machine.thaw(); });
      return;
    }
    if (kind <= 1 && cluster_.head_program().running()) {
      cluster_.kill_head();
      later(25s, [this] { revive(); });
      return;
    }
    if (kind == 2) cluster_.text = ClusterSim::cluster_text(3 + static_cast<int>(random_.below(3)));
    const std::vector<rubato::NodeId> nodes = cluster_.machines.list();
    if (nodes.empty()) return;
    const rubato::NodeId node = nodes[random_.below(nodes.size())];
    SimMachine& machine = cluster_.sim.machine(cluster_.machines.machine_of(node));
    SimProgram& agent = cluster_.machines.agent(node);
    if (kind == 3 && agent.running()) agent.kill();
    if (kind == 4 && machine.up()) machine.crash();
    if (kind == 5 || kind == 6) cut_.insert(node);
    if (kind == 5) {
      cluster_.sim.network.cut({cluster_.sim.machine(1).node()}, {machine.node()});
      later(10s, [this] { heal(); });
    }
    if (kind == 6) {
      cluster_.sim.network.cut({cluster_.sim.machine(1).node()}, {machine.node()}, SimNetwork::Direction::kOneWay);
      later(10s, [this] { heal(); });
    }
    if (kind == 7 && machine.up()) {
      machine.freeze();
      later(8s, [&machine] { machine.thaw(); });
    }
    if (kind == 8 && agent.running()) {
      agent.stop();
      later(8s, [&agent] {
        if (agent.running()) agent.resume();
      });
    }
  }
  void revive() {
    if (!cluster_.head_program().running() && !cluster_.sim.machine(1).frozen()) cluster_.start_head();
  }
  void heal() {
    cut_.clear();
    cluster_.sim.network.heal();
  }

  ClusterSim cluster_;
  LibraryModel library_;
  const Workers workers_;
  Random random_;
  std::set<rubato::NodeId> cut_;
};

TEST(ClusterChaos, EveryJobEndsWellAfterTheFaults) {
  const char* one = std::getenv("RUBATO_SEED");
  const char* count = std::getenv("RUBATO_SEEDS");
  const uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  const uint64_t last = one ? first : (count ? std::strtoull(count, nullptr, 10) : 400);
  std::set<std::string> seen;
  for (uint64_t seed = first; seed <= last; ++seed) {
    Chaos chaos(seed);
    chaos.run();
    const std::string replay =
        fmt::format("seed {}: RUBATO_SEED={} build/release/sim_test --gtest_filter='ClusterChaos*'", seed, seed);
    ClusterSim& cluster = chaos.cluster();
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 1200s)) << replay << "\n" << cluster.story();
    for (size_t i = 0; i < cluster.wishes.size(); ++i) {
      ASSERT_EQ(cluster.job(i)->phase, JobPhase::kSucceeded) << replay << "\n" << cluster.story();
    }
    ASSERT_EQ(cluster.state().jobs.size(), cluster.wishes.size()) << replay;
    ASSERT_TRUE(cluster.broken.empty()) << replay << "\n" << cluster.broken.front() << "\n" << cluster.story();
    const std::vector<std::string>& broken = chaos.library().broken;
    ASSERT_TRUE(broken.empty()) << replay << "\n" << broken.front() << "\n" << cluster.story();
    for (const auto& [offset, bytes] : cluster.journal.records()) {
      seen.emplace(cluster::type_name(cluster::decode(offset, bytes).event));
    }
  }
  if (one) return;
  // The faults were real: everything that a head can write about losses was written.
  for (const char* type : {"node-lost", "node-draining", "node-removing", "node-gone", "job-held", "restart-charged",
                           "seat-failed", "seat-vacated", "checkpoint-missed"}) {
    EXPECT_TRUE(seen.contains(type)) << type;
  }
}

}  // namespace
}  // namespace rubato::sim

// Jobs of a cluster whose workers change in place: single events, then seeds of random faults. A failing seed is
// replayed with
//   RUBATO_SEED=N build/release/sim_test --gtest_filter='ClusterInPlaceChaos*'
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "sim/cluster_testing.h"
#include "sim/in_place_testing.h"

namespace rubato::sim {
namespace {

using cluster::JobPhase;
using Names = std::set<std::string>;

std::string name_of(const WorkerRecord& record) {
  const auto name = record.env.find("RUBATO_WORKER_ID");
  return name == record.env.end() ? "" : name->second;
}

constexpr const char* kTwoCpus =
    "cluster_name: sim\nprovider: {{type: local}}\nmax_workers: {0}\navailable_node_types:\n  small:\n"
    "    resources: {{CPU: 2}}\n    min_workers: {0}\n    max_workers: {0}\n";

bool includes(const Names& all, const Names& some) { return std::ranges::includes(all, some); }

class InPlaceCluster {
 public:
  InPlaceCluster(uint64_t seed, int nodes, int machines, const JobSpec& spec)
      : cluster(seed, nodes, machines), model(cluster.sim) {
    cluster.machines.in_place = &model;
    cluster.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) { return with_library(); };
    model.start();
    cluster.start_head();
    cluster.submit(spec);
  }
  bool trains(size_t workers, uint64_t after = 0, Duration most = 60s) {
    return cluster.run_until([&] { return model.members_now.size() == workers && model.newest_training > after; },
                             most);
  }
  // They train, and the head has heard that they do.
  bool settles(size_t workers, Duration most = 60s) {
    if (!trains(workers, 0, most)) return false;
    cluster.sim.simulator.run_for(1s);
    return trains(workers, 0, most);
  }
  rubato::NodeId node_of(const std::string& worker) const {
    for (const auto& [id, record] : cluster.sim.workers.live()) {
      if (name_of(record) != worker) continue;
      for (const rubato::NodeId& node : cluster.machines.list()) {
        if (cluster.machines.machine_of(node) == static_cast<int>(record.machine)) return node;
      }
    }
    return {};
  }
  struct Starts {
    int in_place = 0, anew = 0;
  };
  // How the rounds of all jobs were formed.
  Starts starts() {
    Starts starts;
    for (const auto& [offset, bytes] : cluster.journal.records()) {
      const cluster::Record record = cluster::decode(offset, bytes);
      const auto* started = std::get_if<cluster::JobStarted>(&record.event);
      if (started) ++(started->in_place ? starts.in_place : starts.anew);
    }
    return starts;
  }
  Names living() const {
    Names names;
    for (const auto& [id, record] : cluster.sim.workers.live()) names.insert(name_of(record));
    return names;
  }
  // Its peers may hear of it long before its agent does.
  void kill_worker(const std::string& name, Duration known_after) {
    model.dying.insert(name);
    cluster.sim.simulator.at(cluster.sim.now() + known_after, [this, name] {
      for (const auto& [id, record] : cluster.sim.workers.live()) {
        if (name_of(record) != name) continue;
        cluster.sim.workers.end(id, ExitStatus{0, SIGKILL});
        return;
      }
    });
  }
  void expect_safe(const std::string& what = "") {
    ASSERT_TRUE(model.broken.empty()) << what << "\n" << model.broken.front() << "\n" << cluster.story();
    ASSERT_TRUE(cluster.broken.empty()) << what << "\n" << cluster.broken.front() << "\n" << cluster.story();
  }
  void expect_end(int restarts) {
    model.ends = cluster.sim.now();
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 120s)) << cluster.story();
    EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded) << cluster.story();
    EXPECT_EQ(cluster.job(0)->restarts.used, restarts) << cluster.story();
    expect_safe();
  }

  ClusterSim cluster;
  LibraryModel model;
};

TEST(ClusterInPlace, AJobGrowsWhileItTrains) {
  InPlaceCluster one(1, 2, 3, sim_job(1, 3));
  ASSERT_TRUE(one.settles(2)) << one.cluster.story();
  const Names before = one.model.members_now;
  one.cluster.text = ClusterSim::cluster_text(3);
  ASSERT_TRUE(one.trains(3)) << one.cluster.story();
  EXPECT_TRUE(includes(one.model.members_now, before)) << one.cluster.story();
  EXPECT_EQ(one.cluster.sim.workers.past().size(), 0u) << one.cluster.story();
  one.expect_end(0);
}

// The agent hears of the end by the kernel, and of the last line by a pipe: either may come first.
TEST(ClusterInPlace, AFailureIsToldWithItsLastLine) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterSim cluster(seed, 1, 1);
    LibraryModel model(cluster.sim);
    cluster.machines.in_place = &model;
    cluster.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) {
      WorkerModel crashes;
      crashes.start_delay = 100ms;
      crashes.crash_after = 50ms;
      crashes.crash_output = "Traceback\nModuleNotFoundError: No module named 'x'\n";
      crashes.crash_output_delay_max = 150ms;
      return crashes;
    };
    model.start();
    cluster.start_head();
    cluster.submit(sim_job(1, 1));
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 60s)) << cluster.story();
    const cluster::Job& job = *cluster.job(0);
    EXPECT_EQ(job.end_cause, cluster::JobEndCause::kSameCrash) << cluster.story();
    EXPECT_EQ(job.restarts.used, 1) << seed << "\n" << cluster.story();
    EXPECT_NE(job.reason.find("ModuleNotFoundError"), std::string::npos) << job.reason;
  }
}

TEST(ClusterInPlace, ADrainedNodeIsLeftWithoutAStop) {
  InPlaceCluster one(2, 3, 4, sim_job(1, 3));
  ASSERT_TRUE(one.settles(3)) << one.cluster.story();
  const Names before = one.model.members_now;
  const std::string leaver = *before.begin();
  one.cluster.record(cluster::NodeDraining{one.node_of(leaver), "asked"});
  ASSERT_TRUE(one.trains(2)) << one.cluster.story();
  EXPECT_TRUE(includes(before, one.model.members_now));
  EXPECT_FALSE(one.model.members_now.contains(leaver));
  ASSERT_TRUE(one.cluster.run_until([&] { return !one.cluster.sim.workers.past().empty(); }, 20s));
  EXPECT_EQ(one.cluster.sim.workers.past().front().status->code, 143);
  EXPECT_FALSE(one.cluster.sim.workers.past().front().told_to_end) << one.cluster.story();
  one.expect_end(0);
}

TEST(ClusterInPlace, ADeadWorkerIsReplacedBesideTheLiving) {
  InPlaceCluster one(3, 3, 3, sim_job(1, 3));
  ASSERT_TRUE(one.settles(3)) << one.cluster.story();
  const Names before = one.model.members_now;
  one.cluster.sim.workers.end(one.cluster.sim.workers.live().rbegin()->first, ExitStatus{0, SIGSEGV});
  ASSERT_TRUE(one.trains(2)) << one.cluster.story();
  const Names survivors = one.model.members_now;
  EXPECT_TRUE(includes(before, survivors)) << one.cluster.story();
  ASSERT_TRUE(one.trains(3)) << one.cluster.story();
  EXPECT_TRUE(includes(one.model.members_now, survivors)) << one.cluster.story();
  one.expect_end(1);
}

TEST(ClusterInPlace, OfAFixedSizeTheLivingWaitForTheNewWorker) {
  InPlaceCluster one(4, 2, 2, sim_job(2, 2));
  ASSERT_TRUE(one.settles(2)) << one.cluster.story();
  const Names before = one.model.members_now;
  one.cluster.sim.workers.end(one.cluster.sim.workers.live().rbegin()->first, ExitStatus{0, SIGSEGV});
  ASSERT_TRUE(one.trains(2, one.model.newest_training)) << one.cluster.story();
  Names both;
  std::ranges::set_intersection(before, one.model.members_now, std::inserter(both, both.end()));
  EXPECT_EQ(both.size(), 1u) << one.cluster.story();
  one.expect_end(1);
}

TEST(ClusterInPlace, ALostMachineCostsTheOthersNothing) {
  InPlaceCluster one(5, 3, 4, sim_job(1, 3));
  ASSERT_TRUE(one.settles(3)) << one.cluster.story();
  const Names before = one.model.members_now;
  const rubato::NodeId node = one.node_of(*before.rbegin());
  one.cluster.sim.machine(one.cluster.machines.machine_of(node)).crash();
  ASSERT_TRUE(one.trains(2)) << one.cluster.story();
  const Names survivors = one.model.members_now;
  EXPECT_TRUE(includes(before, survivors)) << one.cluster.story();
  ASSERT_TRUE(one.trains(3)) << one.cluster.story();
  EXPECT_TRUE(includes(one.model.members_now, survivors)) << one.cluster.story();
  one.expect_end(0);
}

TEST(ClusterInPlace, ANewHeadKnowsThePlan) {
  InPlaceCluster one(6, 2, 3, sim_job(1, 3));
  ASSERT_TRUE(one.settles(2)) << one.cluster.story();
  const Names before = one.model.members_now;
  one.cluster.kill_head();
  one.cluster.sim.simulator.run_for(5s);
  one.cluster.start_head();
  one.cluster.text = ClusterSim::cluster_text(3);
  ASSERT_TRUE(one.trains(3)) << one.cluster.story();
  EXPECT_TRUE(includes(one.model.members_now, before)) << one.cluster.story();
  one.expect_end(0);
}

TEST(ClusterInPlace, ANewWorkerThatDiesDoesNoHarmToTheOthers) {
  InPlaceCluster one(7, 2, 3, sim_job(1, 3));
  ASSERT_TRUE(one.settles(2)) << one.cluster.story();
  const Names before = one.model.members_now;
  one.cluster.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel dies = with_library();
    dies.start_delay = 100ms;
    dies.runs = 0s;
    dies.exit_code = 1;
    return dies;
  };
  one.cluster.text = ClusterSim::cluster_text(3);
  ASSERT_TRUE(one.cluster.run_until([&] { return !one.cluster.sim.workers.past().empty(); }, 60s));
  ASSERT_TRUE(one.trains(2, one.model.newest_training)) << one.cluster.story();
  EXPECT_EQ(one.model.members_now, before) << one.cluster.story();
  one.expect_end(0);
}

TEST(ClusterInPlace, WorkersWithoutTheLibraryStartAnew) {
  ClusterSim cluster(8, 2, 3);
  LibraryModel model(cluster.sim);  // nobody moves it: no worker declares anything
  cluster.machines.in_place = &model;
  cluster.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel plain;
    plain.start_delay = 300ms;
    plain.runs = 30s;
    return plain;
  };
  cluster.start_head();
  const size_t job = cluster.submit(sim_job(1, 3));
  ASSERT_TRUE(
      cluster.run_until([&] { return cluster.job(job) && cluster.training(*cluster.wishes[job].job) == 2; }, 60s));
  cluster.text = ClusterSim::cluster_text(3);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.training(*cluster.wishes[job].job) == 3; }, 60s))
      << cluster.story();
  EXPECT_EQ(cluster.sim.workers.past().size(), 2u);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 120s)) << cluster.story();
  EXPECT_EQ(cluster.job(job)->phase, JobPhase::kSucceeded) << cluster.story();
  EXPECT_TRUE(cluster.broken.empty()) << cluster.broken.front();
}

// They may be no training at all: one is done long before the other.
TEST(ClusterInPlace, WorkersWithoutTheLibraryEndEachByItself) {
  ClusterSim cluster(9, 1, 2);
  LibraryModel model(cluster.sim);
  cluster.machines.in_place = &model;
  cluster.text = fmt::format(fmt::runtime(kTwoCpus), 1);
  cluster.behaviour = [](const SpawnSpec&, const WorkerRecord& record, Random&) {
    WorkerModel plain;
    plain.start_delay = 300ms;
    plain.runs = 1s + record.rank * 20s;
    return plain;
  };
  cluster.start_head();
  cluster.submit(sim_job(2, 2));
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.wishes.empty() && cluster.all_ended(); }, 120s))
      << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded) << cluster.story();
  ASSERT_EQ(cluster.sim.workers.past().size(), 2u) << cluster.story();
  for (const WorkerRecord& ended : cluster.sim.workers.past()) EXPECT_FALSE(ended.told_to_end) << ended.rank;
}

class InPlaceChaos {
 public:
  explicit InPlaceChaos(uint64_t seed) : one(seed, 3, 6, spec_of(seed)), random_{seed + 1000} {}

  static JobSpec spec_of(uint64_t seed) {
    JobSpec spec = sim_job(1 + static_cast<int>(seed % 3), 3 + static_cast<int>(seed % 2));
    spec.checkpoint_timeout = 8s;
    spec.rescale_timeout = 10s;
    spec.max_restarts = 50;
    return spec;
  }

  void run() {
    const int faults = 2 + static_cast<int>(random_.below(6));
    for (int i = 0; i < faults; ++i) {
      one.cluster.sim.simulator.run_for(Duration(static_cast<int64_t>(random_.below(9'000'000'000))));
      strike();
    }
    one.cluster.sim.simulator.run_for(2s);
    one.cluster.sim.machine(1).thaw();
    revive();
    one.cluster.sim.network.heal();
    one.cluster.text = ClusterSim::cluster_text(4);
    one.cluster.sim.simulator.run_for(Duration(static_cast<int64_t>(random_.below(20'000'000'000))));
    one.model.ends = one.cluster.sim.now();
  }

  InPlaceCluster one;

 private:
  void later(Duration most, std::function<void()> call) {
    const auto wait = Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(most.count()))));
    one.cluster.sim.simulator.at(one.cluster.sim.now() + wait, std::move(call));
  }

  void revive() {
    ClusterSim& cluster = one.cluster;
    if (!cluster.head_program().running() && !cluster.sim.machine(1).frozen()) cluster.start_head();
  }

  void strike() {
    ClusterSim& cluster = one.cluster;
    const uint64_t kind = random_.below(13);
    if (kind == 0 && cluster.head_program().running()) {
      cluster.kill_head();
      later(15s, [this] { revive(); });
      return;
    }
    if (kind == 10 || kind == 11) {
      SimProgram& head = cluster.head_program();
      if (head.running()) head.stop();
      later(20s, [&head] { head.resume(); });
      return;
    }
    if (kind == 12) {
      SimMachine& machine = cluster.sim.machine(1);
      machine.freeze();
      later(20s, [&machine] { machine.thaw(); });
      return;
    }
    if (kind == 1) cluster.text = ClusterSim::cluster_text(2 + static_cast<int>(random_.below(4)));
    if (kind == 2 && !cluster.sim.workers.live().empty()) {
      auto worker = cluster.sim.workers.live().begin();
      std::advance(worker, static_cast<long>(random_.below(cluster.sim.workers.live().size())));
      cluster.sim.workers.end(worker->first, ExitStatus{0, SIGKILL});
    }
    const std::vector<rubato::NodeId> nodes = cluster.machines.list();
    if (nodes.empty()) return;
    const rubato::NodeId node = nodes[random_.below(nodes.size())];
    SimMachine& machine = cluster.sim.machine(cluster.machines.machine_of(node));
    SimProgram& agent = cluster.machines.agent(node);
    if (kind == 3 && agent.running()) agent.kill();
    if (kind == 4 && machine.up()) machine.crash();
    if (kind == 5) {
      cluster.sim.network.cut({cluster.sim.machine(1).node()}, {machine.node()});
      later(10s, [&cluster] { cluster.sim.network.heal(); });
    }
    if (kind == 6 && machine.up()) {
      cluster.sim.network.isolate(machine.node());
      later(10s, [&cluster] { cluster.sim.network.heal(); });
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
    if (kind == 9 && cluster.head_up() && cluster.state().nodes.contains(node))
      cluster.record(cluster::NodeDraining{node, "asked"});
  }

  Random random_;
};

TEST(ClusterInPlaceChaos, TheJobEndsWellAfterTheFaults) {
  const char* only = std::getenv("RUBATO_SEED");
  const char* count = std::getenv("RUBATO_SEEDS");
  const uint64_t first = only ? std::strtoull(only, nullptr, 10) : 1;
  const uint64_t last = only ? first : (count ? std::strtoull(count, nullptr, 10) : 100);
  InPlaceCluster::Starts sum;
  for (uint64_t seed = first; seed <= last; ++seed) {
    InPlaceChaos chaos(seed);
    chaos.run();
    ClusterSim& cluster = chaos.one.cluster;
    const std::string replay = fmt::format("RUBATO_SEED={} sim_test --gtest_filter='ClusterInPlaceChaos*'", seed);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 1200s)) << replay << "\n" << cluster.story();
    ASSERT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded) << replay << "\n" << cluster.story();
    chaos.one.expect_safe(replay);
    if (testing::Test::HasFatalFailure()) return;
    const InPlaceCluster::Starts starts = chaos.one.starts();
    sum.in_place += starts.in_place;
    sum.anew += starts.anew;
  }
  if (only) return;
  EXPECT_GT(sum.in_place, static_cast<int>(last)) << sum.anew;
  EXPECT_GT(sum.anew, static_cast<int>(last));
}

// One or two of three workers end, with or without their agent, at any moment of what the first one caused; or a whole
// machine: of two that fall silent nobody knows which side has more.
void strike_some(InPlaceCluster& one, Random& random) {
  Names struck;
  const uint64_t count = 1 + random.below(2);
  for (uint64_t strikes = count; strikes > 0; --strikes) {
    Names left;
    std::ranges::set_difference(one.living(), struck, std::inserter(left, left.end()));
    if (left.size() < 2) break;
    const std::string& victim = *std::next(left.begin(), static_cast<long>(random.below(left.size())));
    struck.insert(victim);
    const rubato::NodeId node = one.node_of(victim);
    const uint64_t kind = random.below(count == 1 ? 3 : 2);
    if (kind == 0) one.kill_worker(victim, Duration(static_cast<int64_t>(random.below(500'000'000))));
    if (kind == 1) one.cluster.machines.agent(node).kill();
    if (kind == 2) one.cluster.sim.machine(one.cluster.machines.machine_of(node)).crash();
    one.cluster.sim.simulator.run_for(Duration(static_cast<int64_t>(random.below(3'000'000'000))));
  }
}

TEST(ClusterInPlaceChaos, WhoLivesIsNotStartedAnew) {
  const char* only = std::getenv("RUBATO_SEED");
  const uint64_t first = only ? std::strtoull(only, nullptr, 10) : 1;
  const uint64_t last = only ? first : 200;
  for (uint64_t seed = first; seed <= last; ++seed) {
    JobSpec spec = sim_job(1, 3);
    spec.max_restarts = 50;
    InPlaceCluster one(seed, 3, 6, spec);
    ASSERT_TRUE(one.settles(3)) << one.cluster.story();
    Random random{seed};
    if (seed % 4 > 1) one.cluster.sim.simulator.run_for(spec.checkpoint_timeout + 10s);
    // What nodes say may be older than what the head has decided since.
    one.cluster.sim.network.faults.stall = seed % 2 == 0 ? 0.3 : 0;
    one.cluster.sim.network.faults.stall_max = 400ms;
    strike_some(one, random);
    one.cluster.sim.simulator.run_for(1s);
    ASSERT_TRUE(one.trains(3)) << "RUBATO_SEED=" << seed << "\n" << one.cluster.story();
    EXPECT_EQ(one.starts().anew, 1) << "RUBATO_SEED=" << seed << "\n" << one.cluster.story();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace rubato::sim

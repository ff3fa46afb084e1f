// Agents whose workers change in place: single events, then seeds of random faults. A failing seed is replayed with
//   RUBATO_SEED=N build/release/sim_test --gtest_filter='InPlaceChaos.*'
// RUBATO_SEEDS=N runs that many, RUBATO_TRACE=1 prints what the agents said.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "sim/agents_testing.h"
#include "sim/in_place_testing.h"

namespace rubato::sim {
namespace {

class InPlaceGroup {
 public:
  InPlaceGroup(uint64_t seed, int machines, const LaunchSpec& spec) : agents(seed, machines, spec), model(agents.sim) {
    agents.in_place = &model;
    agents.sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) { return with_library(); };
    model.start();
  }
  bool trains(size_t workers, uint64_t after = 0, Duration most = 20s) {
    return agents.sim.simulator.run_until(
        [&] { return model.members_now.size() == workers && model.newest_training > after; }, agents.sim.now() + most);
  }
  void expect_safe() { EXPECT_TRUE(model.broken.empty()) << model.broken.front() << "\n" << agents.output(); }
  void expect_end() {
    model.ends = agents.sim.now();
    EXPECT_TRUE(agents.sim.simulator.run_until([&] { return agents.all_ended(); }, agents.sim.now() + 60s))
        << agents.output();
    expect_safe();
  }

  AgentGroup agents;
  LibraryModel model;
};

using Names = std::set<std::string>;

bool includes(const Names& all, const Names& some) { return std::ranges::includes(all, some); }

TEST(InPlaceAgents, TakeInALateJoinerWhileTheOthersTrainOn) {
  InPlaceGroup group(1, 3, elastic_spec(1, 3));
  group.agents.start(1);
  group.agents.start(2);
  ASSERT_TRUE(group.trains(2)) << group.agents.output();
  const Names before = group.model.members_now;
  group.agents.start(3);
  ASSERT_TRUE(group.trains(3)) << group.agents.output();
  EXPECT_TRUE(includes(group.model.members_now, before));
  EXPECT_EQ(group.agents.sim.workers.past().size(), 0u);
  group.expect_end();
}

TEST(InPlaceAgents, GoOnWithoutALostAgent) {
  InPlaceGroup group(2, 3, elastic_spec(1, 3));
  group.agents.start_all();
  ASSERT_TRUE(group.trains(3)) << group.agents.output();
  const Names before = group.model.members_now;
  const Instant killed = group.agents.sim.now();
  group.agents.agent(2).kill();
  ASSERT_TRUE(group.trains(2)) << group.agents.output();
  EXPECT_LT(group.agents.sim.now() - killed, 500ms);
  EXPECT_TRUE(includes(before, group.model.members_now));
  group.expect_end();
}

TEST(InPlaceAgents, GoOnUnderASuccessorOfTheHost) {
  InPlaceGroup group(3, 3, elastic_spec(1, 3));
  group.agents.start_all();
  ASSERT_TRUE(group.trains(3)) << group.agents.output();
  const Names before = group.model.members_now;
  group.agents.agent(0).kill();
  ASSERT_TRUE(group.trains(2)) << group.agents.output();
  EXPECT_TRUE(includes(before, group.model.members_now)) << group.agents.output();
  group.expect_end();
}

TEST(InPlaceAgents, ReplaceADeadWorkerAndKeepTheOthers) {
  LaunchSpec spec = elastic_spec(1, 2);
  spec.max_restarts = 1;
  spec.nproc = 2;
  InPlaceGroup group(4, 2, spec);
  group.agents.start_all();
  ASSERT_TRUE(group.trains(4)) << group.agents.output();
  const Names before = group.model.members_now;
  group.agents.sim.workers.end(group.agents.sim.workers.live().rbegin()->first, ExitStatus{0, SIGSEGV});
  ASSERT_TRUE(group.trains(3)) << group.agents.output();
  const Names survivors = group.model.members_now;
  EXPECT_TRUE(includes(before, survivors));
  ASSERT_TRUE(group.trains(4)) << group.agents.output();
  EXPECT_TRUE(includes(group.model.members_now, survivors));
  group.expect_end();
}

TEST(InPlaceAgents, StopWorkersOfAnAgentThatIsCutOffWithinTheLease) {
  InPlaceGroup group(5, 3, elastic_spec(1, 3));
  group.agents.start_all();
  ASSERT_TRUE(group.trains(3)) << group.agents.output();
  const uint64_t generation = group.model.newest_training;
  const auto cut = group.agents.sim.network.isolate(3);
  ASSERT_TRUE(group.trains(2, generation, 8s)) << group.agents.output();
  for (const auto& [id, worker] : group.agents.sim.workers.live()) EXPECT_NE(worker.machine, 3);
  group.agents.sim.network.heal(cut);
  ASSERT_TRUE(group.trains(3, generation)) << group.agents.output();
  group.expect_end();
}

TEST(InPlaceAgents, LeaveInPeaceOnSigterm) {
  InPlaceGroup group(6, 3, elastic_spec(1, 3));
  group.agents.start_all();
  ASSERT_TRUE(group.trains(3)) << group.agents.output();
  group.agents.signal(2, SIGTERM);
  ASSERT_TRUE(group.trains(2)) << group.agents.output();
  group.agents.sim.simulator.run_for(1s);
  EXPECT_EQ(group.agents.agent(2).exit_code(), 128 + SIGTERM) << group.agents.output();
  EXPECT_EQ(group.agents.sim.workers.past().back().status, (ExitStatus{143, 0}));
  EXPECT_FALSE(group.agents.sim.workers.past().back().told_to_end);
  group.expect_end();
}

TEST(InPlaceAgents, OneThatCannotWriteThePlanLeavesAndItsWorkerMaySave) {
  InPlaceGroup group(9, 3, elastic_spec(1, 3));
  group.agents.start(1);
  const size_t full = group.agents.start(2);
  ASSERT_TRUE(group.trains(2)) << group.agents.output();
  const uint64_t before = group.model.newest_training;
  group.model.full.insert("/plans/2");
  group.agents.start(3);
  const auto has_left = [&] { return !group.agents.running(full); };
  ASSERT_TRUE(group.agents.sim.simulator.run_until(has_left, group.agents.sim.now() + 60s)) << group.agents.output();
  EXPECT_NE(group.agents.output().find("no space left"), std::string::npos);
  for (const WorkerRecord& worker : group.agents.sim.workers.past()) {
    if (worker.machine != 2) continue;
    EXPECT_EQ(worker.status->code, 143) << "not told to save";
  }
  ASSERT_TRUE(group.trains(2, before, 60s)) << group.agents.output();
  group.expect_end();
}

TEST(InPlaceAgents, ASpareStepsInAtOnce) {
  LaunchSpec spec = elastic_spec(1, 2);
  spec.spares = 1;
  InPlaceGroup group(7, 3, spec);
  group.agents.start_all();
  ASSERT_TRUE(group.trains(2)) << group.agents.output();
  group.agents.sim.simulator.run_for(3s);  // it is imported meanwhile
  ASSERT_EQ(group.agents.sim.workers.live().size(), 3u) << group.agents.output();
  const Instant killed = group.agents.sim.now();
  const uint64_t generation = group.model.newest_training;
  const bool second = group.agents.agent(1).console().err_text().find("spare") == std::string::npos;
  group.agents.agent(second ? 1 : 2).kill();
  ASSERT_TRUE(group.trains(2, generation)) << group.agents.output();
  EXPECT_LT(group.agents.sim.now() - killed, 500ms);
  group.expect_end();
}

TEST(InPlaceAgents, AMixedGroupRestarts) {
  LaunchSpec spec = elastic_spec(1, 3);
  InPlaceGroup group(8, 3, spec);
  group.agents.sim.workers.behaviour = [](const SpawnSpec&, const WorkerRecord& worker, Random&) {
    WorkerModel model = with_library();
    if (worker.machine == 2) model.start_delay = 1h;  // it never declares that it can
    return model;
  };
  group.agents.start(1);
  group.agents.start(2);
  group.agents.sim.simulator.run_for(5s);
  ASSERT_EQ(group.agents.sim.workers.live().size(), 2u);
  group.agents.start(3);
  group.agents.sim.simulator.run_for(5s);
  EXPECT_EQ(group.agents.sim.workers.live().size(), 3u) << group.agents.output();
  EXPECT_EQ(group.agents.sim.workers.past().size(), 2u) << group.agents.output();
}

constexpr Instant kCalm = Instant{} + 60s;

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

class InPlaceChaosRun {
 public:
  InPlaceChaosRun(uint64_t seed, Backend backend)
      : random_(seed), size_(1 + static_cast<int>(random_.below(5))), group_(seed, size_, draw_spec(backend)) {
    group_.model.ends = kCalm + 30s;
    const bool crashes = random_.chance(0.5);
    group_.agents.sim.workers.behaviour = [this, crashes](const SpawnSpec&, const WorkerRecord&, Random& random) {
      WorkerModel model = with_library();
      model.start_delay = 200ms + seconds(2 * random.unit());
      if (crashes && group_.agents.sim.now() < kCalm && random.chance(0.2)) {
        model.crash_after = seconds(10 * random.unit());
      }
      return model;
    };
    for (int i = 1; i <= size_; ++i) {
      at(pick(6s), [this, i] { group_.agents.start(i); });
    }
    const int faults = static_cast<int>(random_.below(8));
    for (int i = 0; i < faults; ++i) draw_fault(4s + pick(50s));
    at(kCalm - Instant{}, [this] { calm(); });
  }

  std::string run() {
    auto& agents = group_.agents;
    const auto over = [&] { return agents.sim.now() > kCalm + 30s && agents.all_ended(); };
    const bool ended = agents.sim.simulator.run_until(over, Instant{} + 20min);
    std::string wrong;
    for (const std::string& rule : group_.model.broken) wrong += rule + "\n";
    if (!ended) wrong += "the agents have not ended after 20 minutes\n";
    for (size_t i = 0; i < agents.started(); ++i) {
      const auto code = agents.agent(i).exit_code();
      if (code && *code != 0 && *code != 128 + SIGTERM) wrong += fmt::format("agent {} ended with {}\n", i, *code);
    }
    if (!wrong.empty()) wrong += story_ + agents.output();
    if (std::getenv("RUBATO_TRACE")) fmt::print("{}{}", story_, agents.output());
    for (const auto& [id, groups] : group_.model.groups_of) changes += groups > 1 ? 1 : 0;
    return wrong;
  }
  int changes = 0;  // workers that trained in several generations

 private:
  LaunchSpec draw_spec(Backend backend) {
    const int least = 1 + static_cast<int>(random_.below(static_cast<uint64_t>(size_)));
    LaunchSpec spec = elastic_spec(least, size_);
    if (std::getenv("RUBATO_TRACE")) spec.events_file = "-";
    spec.backend = backend;
    spec.max_restarts = 100;
    spec.nproc = 1 + static_cast<int>(random_.below(3));
    spec.spares = static_cast<int>(random_.below(2));
    return spec;
  }

  void draw_fault(Duration when) {
    const int machine = 1 + static_cast<int>(random_.below(static_cast<uint64_t>(size_)));
    const Duration lasting = 200ms + pick(10s);
    auto& agents = group_.agents;
    switch (random_.below(7)) {
      case 0:
        at(when, [=, this] { each_agent(machine, "kill -9", [this](size_t i) { group_.agents.agent(i).kill(); }); });
        break;
      case 1:
        at(when, [=, this] {
          say("crash", machine);
          group_.agents.crash(machine);
          crashed_.insert(machine);
        });
        break;
      case 2:
        at(when, [=, this] {
          say("isolate", machine);
          const auto cut = group_.agents.sim.network.isolate(machine);
          at(group_.agents.sim.now() - Instant{} + lasting, [=, this] { group_.agents.sim.network.heal(cut); });
        });
        break;
      case 3:
        at(when, [=, this] {
          each_agent(machine, "SIGTERM", [this](size_t i) {
            leaving_.insert(i);
            group_.agents.signal(i, SIGTERM);
          });
        });
        break;
      case 4:
        at(when, [=, this] {
          each_agent(machine, "stop", [this, lasting](size_t i) {
            group_.agents.agent(i).stop();
            at(group_.agents.sim.now() - Instant{} + lasting, [this, i] {
              if (group_.agents.running(i)) group_.agents.agent(i).resume();
            });
          });
        });
        break;
      case 5:
        at(when, [=, this] {
          for (const auto& [id, worker] : group_.agents.sim.workers.live()) {
            if (worker.machine != static_cast<NodeId>(machine)) continue;
            say("kill -9 of a worker", machine);
            group_.agents.sim.workers.end(id, ExitStatus{0, SIGKILL});
            return;
          }
        });
        break;
      case 6:
        at(when, [=, this] {
          if (!group_.agents.sim.machine(machine).up()) return;
          say("freeze", machine);
          group_.agents.sim.machine(machine).freeze();
          at(group_.agents.sim.now() - Instant{} + lasting, [=, this] { group_.agents.sim.machine(machine).thaw(); });
        });
        break;
    }
    (void)agents;
  }

  void each_agent(int machine, const char* what, const std::function<void(size_t)>& call) {
    for (size_t i = 0; i < group_.agents.started(); ++i) {
      if (group_.agents.machine_of(i) != machine || !group_.agents.running(i)) continue;
      say(what, machine);
      call(i);
    }
  }

  void calm() {
    say("calm", 0);
    group_.agents.sim.network.heal();
    for (const int machine : crashed_) group_.agents.sim.machine(machine).reboot();
    at(group_.agents.sim.now() - Instant{} + 12s, [this] {
      for (int machine = 1; machine <= size_; ++machine) {
        bool lives = false;
        for (size_t i = 0; i < group_.agents.started(); ++i) {
          lives |= group_.agents.machine_of(i) == machine && group_.agents.running(i) && !leaving_.contains(i);
        }
        if (!lives) group_.agents.start(machine);
      }
    });
  }

  Duration pick(Duration most) {
    return Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(most.count()))));
  }
  void at(Duration since_start, std::function<void()> call) {
    group_.agents.sim.simulator.at(Instant{} + since_start, std::move(call));
  }
  void say(const char* what, int machine) {
    story_ += fmt::format("{} {} node{}\n", format_duration(group_.agents.sim.now() - Instant{}), what, machine);
  }

  Random random_;
  int size_;
  InPlaceGroup group_;
  std::set<int> crashed_;
  std::set<size_t> leaving_;
  std::string story_;
};

void run_seeds(Backend backend, uint64_t count) {
  const uint64_t only = number_from("RUBATO_SEED", 0);
  const uint64_t seeds = number_from("RUBATO_SEEDS", count);
  int changes = 0;
  for (uint64_t seed = only ? only : 1; seed <= (only ? only : seeds); ++seed) {
    InPlaceChaosRun chaos(seed, backend);
    ASSERT_EQ(chaos.run(), "") << "seed " << seed << ": RUBATO_SEED=" << seed
                               << " build/release/sim_test --gtest_filter='InPlaceChaos.*'";
    changes += chaos.changes;
  }
  if (only) return;
  EXPECT_GT(changes, static_cast<int>(seeds) / 4);
}

TEST(InPlaceChaos, EmbeddedGroupsAreSafeAndEndWell) { run_seeds(Backend::kEmbedded, 300); }

TEST(InPlaceChaos, EtcdGroupsAreSafeAndEndWell) { run_seeds(Backend::kEtcd, 150); }

}  // namespace
}  // namespace rubato::sim

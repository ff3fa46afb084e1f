// Seeds of random faults against whole groups of agents. A failing seed is replayed with
//   RUBATO_SEED=N build/release/sim_test --gtest_filter='AgentsChaos.*'
// and RUBATO_SEEDS=N runs that many. RUBATO_TRACE=1 prints what the agents said.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <set>

#include "core/hash.h"
#include "sim/agents_testing.h"

namespace rubato::sim {
namespace {

// All faults happen before this instant; the workers train beyond it, so that the job cannot end before.
constexpr Instant kCalm = Instant{} + 60s;

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// One random life of a group: what happens is drawn from the seed before it starts.
class Chaos {
 public:
  Chaos(uint64_t seed, Backend backend)
      : random_(seed * 2 + (backend == Backend::kEtcd ? 1 : 0)),
        saves_at_sigterm_(Random(seed * 7 + 5).chance(0.3)),
        size_(1 + static_cast<int>(random_.below(8))),
        group_(seed, size_, draw_spec(backend)) {
    draw_network();
    draw_workers();
    for (int i = 1; i <= group_.sim.machines(); ++i) {
      at(pick(3s), [this, i] { group_.start(i); });
    }
    const int faults = static_cast<int>(random_.below(7));
    for (int i = 0; i < faults; ++i) draw_fault(Instant{} + 4s + pick(50s));
    at(kCalm - Instant{}, [this] { calm(); });
  }

  // The words of what went wrong, or nothing.
  std::string run() {
    const auto over = [this] { return group_.sim.now() > kCalm && group_.all_ended(); };
    const bool ended = group_.sim.simulator.run_until(over, Instant{} + 20min);
    std::string wrong;
    for (const std::string& message : group_.broken) wrong += message + "\n";
    for (const std::string& message : group_.sim.workers.mix_ups()) wrong += message + "\n";
    if (!ended) wrong += "the agents have not ended after 20 minutes\n";
    for (size_t i = 0; i < group_.started(); ++i) {
      const auto code = group_.agent(i).exit_code();
      if (code && *code != 0 && *code != 128 + SIGTERM) wrong += fmt::format("agent {} ended with {}\n", i, *code);
    }
    if (!wrong.empty()) wrong += story_ + group_.output();
    if (std::getenv("RUBATO_TRACE")) fmt::print("{}{}", story_, group_.output());
    return wrong;
  }

  uint64_t hash() const { return group_.sim.simulator.hash(); }
  const auto& marks() const { return group_.sim.simulator.marks(); }

 private:
  LaunchSpec draw_spec(Backend backend) {
    const int least = 1 + static_cast<int>(random_.below(static_cast<uint64_t>(size_)));
    LaunchSpec spec =
        elastic_spec(least, least + static_cast<int>(random_.below(static_cast<uint64_t>(size_ - least) + 1)));
    spec.backend = backend;
    if (std::getenv("RUBATO_TRACE")) spec.events_file = "-";
    spec.max_restarts = 50;
    spec.nproc = 1 + static_cast<int>(random_.below(2));
    return spec;
  }

  void draw_network() {
    NetworkFaults& faults = group_.sim.network.faults;
    if (random_.chance(0.3)) faults.loss = 0.05 * random_.unit();
    if (random_.chance(0.3)) faults.stall = 0.02;
    if (random_.chance(0.2)) faults.latency_max = 200ms;
  }

  void draw_workers() {
    const bool talks = random_.chance(0.7);
    const bool stubborn = random_.chance(0.2);
    const bool crashes = random_.chance(0.4);
    group_.sim.workers.behaviour = [this, talks, stubborn, crashes](const SpawnSpec&, const WorkerRecord&,
                                                                    Random& random) {
      WorkerModel model;
      model.start_delay = 500ms;
      model.talks = talks;
      if (saves_at_sigterm_) model.sigterm_status = ExitStatus{0, 0};
      const Duration until_calm = kCalm + 30s - group_.sim.now();
      model.runs = std::max<Duration>(until_calm, 5s);
      if (stubborn && random.chance(0.3)) model.sigterm_delay = std::nullopt;
      if (crashes && group_.sim.now() < kCalm && random.chance(0.1)) model.crash_after = seconds(10 * random.unit());
      return model;
    };
  }

  void draw_fault(Instant when) {
    const int machine = 1 + static_cast<int>(random_.below(static_cast<uint64_t>(size_)));
    const Duration lasting = 500ms + pick(12s);
    switch (random_.below(7)) {
      case 0:
        at(when - Instant{}, [=, this] { kill(machine); });
        break;
      case 1:
        at(when - Instant{}, [=, this] {
          say("crash", machine);
          group_.crash(machine);
          crashed_.insert(machine);
        });
        break;
      case 2:
        during(when, lasting, "isolate", machine, [=, this] { return group_.sim.network.isolate(machine); });
        break;
      case 3:
        during(when, lasting, "cut behind", machine, [=, this] { return cut_behind(machine); });
        break;
      case 4:
        during(when, lasting, "one-way cut of", machine, [=, this] {
          return group_.sim.network.cut({machine}, others(machine), SimNetwork::Direction::kOneWay);
        });
        break;
      case 5:
        at(when - Instant{}, [=, this] { terminate(machine); });
        break;
      case 6:
        at(when - Instant{}, [=, this] {
          say("store down", 0);
          group_.sim.store.set_up(false);
        });
        at(when - Instant{} + lasting, [this] { group_.sim.store.set_up(true); });
        break;
    }
  }

  std::vector<NodeId> others(int machine) const {
    std::vector<NodeId> rest;
    for (int i = 1; i <= size_; ++i) {
      if (i != machine) rest.push_back(i);
    }
    return rest;
  }
  SimNetwork::CutId cut_behind(int machine) {
    std::vector<NodeId> left, right;
    for (int i = 1; i <= size_; ++i) (i <= machine ? left : right).push_back(i);
    return group_.sim.network.cut(left, right);
  }

  void during(Instant when, Duration lasting, const char* what, int machine, std::function<SimNetwork::CutId()> begin) {
    at(when - Instant{}, [=, this] {
      say(what, machine);
      const auto id = begin();
      at(group_.sim.now() - Instant{} + lasting, [=, this] {
        say("end of", machine);
        group_.sim.network.heal(id);
      });
    });
  }

  void kill(int machine) {
    for (size_t i = 0; i < group_.started(); ++i) {
      if (group_.machine_of(i) != machine || !group_.running(i)) continue;
      say("kill -9", machine);
      group_.agent(i).kill();
    }
  }
  void terminate(int machine) {
    for (size_t i = 0; i < group_.started(); ++i) {
      if (group_.machine_of(i) != machine || !group_.running(i)) continue;
      say("SIGTERM", machine);
      leaving_.insert(i);
      group_.signal(i, SIGTERM);
    }
  }

  // The faults are over: the network heals, and every machine has an agent again.
  void calm() {
    say("calm", 0);
    for (size_t i = 0; i < group_.started(); ++i) {
      if (group_.agent(i).exit_code() == 0) group_.broken.push_back(fmt::format("agent {} has ended too early", i));
    }
    group_.sim.network.heal();
    group_.sim.network.faults = NetworkFaults{};
    group_.sim.store.set_up(true);
    for (const int machine : crashed_) group_.sim.machine(machine).reboot();
    // A moment for what is left of the group to find itself, as a person would need.
    at(group_.sim.now() - Instant{} + 8s, [this] {
      for (int machine = 1; machine <= size_; ++machine) {
        bool lives = false;
        for (size_t i = 0; i < group_.started(); ++i) {
          lives |= group_.machine_of(i) == machine && group_.running(i) && !leaving_.contains(i);
        }
        if (!lives) group_.start(machine);
      }
    });
  }

  Duration pick(Duration most) {
    return Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(most.count()))));
  }
  void at(Duration since_start, std::function<void()> call) {
    group_.sim.simulator.at(Instant{} + since_start, std::move(call));
  }
  void say(const char* what, int machine) {
    story_ += fmt::format("{} {} node{}\n", format_duration(group_.sim.now() - Instant{}), what, machine);
  }

  Random random_;
  bool saves_at_sigterm_;  // and exits with 0
  int size_;
  AgentGroup group_;
  std::set<int> crashed_;
  std::set<size_t> leaving_;
  std::string story_;
};

void run_seeds(Backend backend, uint64_t count) {
  const uint64_t only = number_from("RUBATO_SEED", 0);
  const uint64_t seeds = number_from("RUBATO_SEEDS", count);
  std::set<std::string> marks;
  for (uint64_t seed = only ? only : 1; seed <= (only ? only : seeds); ++seed) {
    Chaos chaos(seed, backend);
    const std::string wrong = chaos.run();
    ASSERT_EQ(wrong, "") << "seed " << seed << ": RUBATO_SEED=" << seed
                         << " build/release/sim_test --gtest_filter='AgentsChaos.*'";
    for (const auto& [name, hits] : chaos.marks()) marks.insert(name);
  }
  if (only) return;
  for (const char* name : {"network.cut", "network.cut_one_way", "network.silent", "machine.crash", "machine.reboot",
                           "program.kill", "worker.crash", "worker.peer_lost", "worker.ignores_sigterm"}) {
    EXPECT_TRUE(marks.contains(name)) << "no seed hit " << name;
  }
}

TEST(AgentsChaos, EmbeddedGroupsAreSafeAndEndWell) { run_seeds(Backend::kEmbedded, 1500); }

TEST(AgentsChaos, EtcdGroupsAreSafeAndEndWell) { run_seeds(Backend::kEtcd, 1000); }

// Beyond the range above; each showed a bug of its own.
TEST(AgentsChaos, SeedsThatOnceFailed) {
  for (const uint64_t seed : {1619, 2026, 2829, 4104, 4407, 4441, 5083})
    EXPECT_EQ(Chaos(seed, Backend::kEmbedded).run(), "") << "seed " << seed;
  for (const uint64_t seed : {3131}) EXPECT_EQ(Chaos(seed, Backend::kEtcd).run(), "") << "seed " << seed;
}

TEST(AgentsChaos, TheSameSeedGivesTheSameHash) {
  std::set<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Chaos first(seed, Backend::kEmbedded), second(seed, Backend::kEmbedded);
    first.run();
    second.run();
    EXPECT_EQ(first.hash(), second.hash()) << "seed " << seed;
    hashes.insert(first.hash());
  }
  EXPECT_EQ(hashes.size(), 20u);
}

}  // namespace
}  // namespace rubato::sim

// Seeds of random losses against groups whose machines vanish with their agents, as pods do: their addresses answer
// nobody, so that no kernel proves a death, and others with the same identities take their places.
//   RUBATO_SEED=N build/release/sim_test --gtest_filter='PodsChaos.*'
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "sim/agents_testing.h"

namespace rubato::sim {
namespace {

// All losses happen before this instant; the workers train beyond it.
constexpr Instant kCalm = Instant{} + 60s;
constexpr int kMachines = 48;

// One random life of a group of pods, and of the operator that replaces them.
class PodsLife {
 public:
  explicit PodsLife(uint64_t seed)
      : random_(seed * 3 + 1), pods_(1 + random_.below(5)), group_(seed, kMachines, draw_spec()) {
    if (random_.chance(0.3)) group_.sim.network.faults.loss = 0.03 * random_.unit();
    draw_workers();
    for (size_t slot = 0; slot < pods_.size(); ++slot) {
      at(Instant{} + 10ms + pick(2s), [this, slot] { make(slot); });
    }
    rescue_stranded();
    const int faults = static_cast<int>(random_.below(8));
    for (int i = 0; i < faults; ++i) draw_fault(Instant{} + 5s + pick(50s));
    at(kCalm, [this] {
      tell("calm", 0);
      group_.sim.network.heal();
      group_.sim.network.faults = NetworkFaults{};
    });
  }

  // What went wrong, or nothing.
  std::string run() {
    const auto over = [this] { return group_.sim.now() > kCalm + 10s && group_.all_ended(); };
    const bool ended = group_.sim.simulator.run_until(over, Instant{} + 20min);
    std::string wrong;
    for (const std::string& message : group_.broken) wrong += message + "\n";
    if (!ended) wrong += "the pods have not ended after 20 minutes\n";
    for (size_t i = 0; i < group_.started(); ++i) {
      const auto code = group_.agent(i).exit_code();
      if (code && *code != 0 && *code != 128 + SIGTERM) wrong += fmt::format("agent {} ended with {}\n", i, *code);
    }
    if (!wrong.empty() || std::getenv("RUBATO_TRACE")) wrong = wrong + story_ + group_.output();
    return wrong;
  }

 private:
  struct Pod {
    std::optional<size_t> agent;  // none: it is to be made
    int machine = 0;
    bool going = false;
    Instant made{};
  };

  LaunchSpec draw_spec() {
    const int most = static_cast<int>(pods_.size());
    LaunchSpec spec = elastic_spec(1 + static_cast<int>(random_.below(pods_.size())), most);
    spec.endpoint = "*every-node:29400";
    spec.max_restarts = 50;
    return spec;
  }

  void draw_workers() {
    const Duration ending = pick(1500ms);
    const bool saves = random_.chance(0.3);  // and exits with 0
    group_.sim.workers.behaviour = [this, ending, saves](const SpawnSpec&, const WorkerRecord&, Random&) {
      WorkerModel model;
      model.start_delay = 300ms;
      model.sigterm_delay = ending;
      if (saves) model.sigterm_status = ExitStatus{0, 0};
      model.runs = std::max<Duration>(kCalm + 30s - group_.sim.now(), 5s);
      return model;
    };
  }

  void draw_fault(Instant when) {
    const size_t slot = random_.below(pods_.size());
    const Duration lasting = 500ms + pick(10s);
    switch (random_.below(4)) {
      case 0:  // the machine under it is gone
        at(when, [=, this] { vanish(slot, "vanishes"); });
        break;
      case 1:  // deleted, evicted, drained: it is told, and its address goes with it
        at(when, [=, this] { remove(slot); });
        break;
      case 2:  // killed for its memory: the pod's address stays for a moment
        at(when, [=, this] { kill(slot, lasting / 10); });
        break;
      case 3:
        at(when, [=, this] { isolate(slot, lasting); });
        break;
    }
  }

  // As the operator: the rendezvous is opened by one pod only when no pod of the job can be in a group.
  void make(size_t slot) {
    Pod& pod = pods_[slot];
    if (pod.agent || ended_ || next_machine_ > kMachines) return;
    bool alone = true;
    for (const Pod& other : pods_) alone = alone && !other.agent;
    group_.spec.is_host = alone;
    group_.spec.identity = fmt::format("worker-{}", slot);
    pod.machine = next_machine_++;
    pod.going = false;
    pod.made = group_.sim.now();
    pod.agent = group_.start(pod.machine);
    tell(alone ? "made as host on" : "made on", pod.machine);
    watch(slot, *pod.agent);
  }

  // As the operator: where no pod has joined a group, nobody is left whom they could join, and all start anew.
  void rescue_stranded() {
    at(group_.sim.now() + 1s, [this] {
      bool any = false, joined = false;
      for (const Pod& pod : pods_) {
        any = any || pod.agent;
        joined = joined || (pod.agent && (pod.going || has_joined(*pod.agent) || group_.sim.now() < pod.made + 10s));
      }
      for (size_t slot = 0; any && !joined && slot < pods_.size(); ++slot) vanish(slot, "stranded:");
      if (!ended_) rescue_stranded();
    });
  }

  bool has_joined(size_t agent) {
    const std::string text = group_.agent(agent).console().err_text();
    // The word of a would-be host is none: a pod is ready when its group is real.
    return text.find("agents here") != std::string::npos || text.find("agent here") != std::string::npos ||
           text.find("generation") != std::string::npos;
  }

  // Looks after a pod whose agent has ended by itself.
  void watch(size_t slot, size_t agent) {
    at(group_.sim.now() + 100ms, [=, this] {
      if (pods_[slot].agent != agent) return;
      if (group_.running(agent)) return watch(slot, agent);
      if (group_.agent(agent).exit_code() == 0) ended_ = true;
      if (ended_ && group_.sim.now() < kCalm) group_.broken.push_back("the job has ended too early");
      if (pods_[slot].going || ended_) return;
      vanish(slot, "ended on");
    });
  }

  // Its place is free as soon as it is surely dead.
  void vanish(size_t slot, const char* how) {
    Pod& pod = pods_[slot];
    if (!pod.agent || ended_) return;
    tell(how, pod.machine);
    group_.crash(pod.machine);
    pod.agent.reset();
    at(group_.sim.now() + pick(4s), [=, this] { make(slot); });
  }

  void remove(size_t slot) {
    Pod& pod = pods_[slot];
    if (!pod.agent || pod.going || !group_.running(*pod.agent)) return;
    tell("SIGTERM on", pod.machine);
    pod.going = true;
    group_.signal(*pod.agent, SIGTERM);
    await_end(slot, *pod.agent);
  }

  void await_end(size_t slot, size_t agent) {
    at(group_.sim.now() + 20ms, [=, this] {
      if (pods_[slot].agent != agent) return;
      if (group_.running(agent)) return await_end(slot, agent);
      vanish(slot, "has left");
    });
  }

  void kill(size_t slot, Duration address_stays) {
    Pod& pod = pods_[slot];
    if (!pod.agent || pod.going) return;
    tell("kill -9 on", pod.machine);
    pod.going = true;
    group_.agent(*pod.agent).kill();
    const size_t agent = *pod.agent;
    at(group_.sim.now() + address_stays, [=, this] {
      if (pods_[slot].agent == agent) vanish(slot, "its address goes with");
    });
  }

  void isolate(size_t slot, Duration lasting) {
    if (!pods_[slot].agent) return;
    const int machine = pods_[slot].machine;
    tell("isolate", machine);
    const auto cut = group_.sim.network.isolate(machine);
    at(group_.sim.now() + lasting, [=, this] {
      tell("end of isolation of", machine);
      group_.sim.network.heal(cut);
    });
  }

  Duration pick(Duration most) {
    return Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(most.count()))));
  }
  void at(Instant when, std::function<void()> call) { group_.sim.simulator.at(when, std::move(call)); }
  void tell(const char* what, int machine) {
    story_ += fmt::format("{} {} node{}\n", format_duration(group_.sim.now() - Instant{}), what, machine);
  }

  Random random_;
  std::vector<Pod> pods_;
  AgentGroup group_;
  int next_machine_ = 1;
  bool ended_ = false;
  std::string story_;
};

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(PodsChaos, LostPodsAreReplacedAndTheJobEndsWell) {
  const uint64_t only = number_from("RUBATO_SEED", 0);
  const uint64_t seeds = number_from("RUBATO_SEEDS", 500);
  for (uint64_t seed = only ? only : 1; seed <= (only ? only : seeds); ++seed) {
    PodsLife life(seed);
    const std::string wrong = life.run();
    ASSERT_EQ(wrong, "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace rubato::sim

// A group of real agents (src/agent) on simulated machines, for tests.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "agent/launcher.h"
#include "sim/simulation.h"

namespace rubato::sim {

inline Task<int> agent_main(SimProgram& self, LaunchSpec spec, std::shared_ptr<Channel<int>>& signals,
                            InPlaceHost* in_place = nullptr) {
  signals = std::make_shared<Channel<int>>(self.loop());
  const std::shared_ptr<Channel<int>> mine = signals;
  agent::LaunchContext context{self.world(), spec};
  context.key.secret = "the test's secret";
  context.python = "python3";
  context.store = &self.store();
  context.signals = mine.get();
  context.in_place = in_place;
  try {
    const agent::Outcome outcome = co_await agent::launch(std::move(context));
    co_return outcome.signal ? 128 + outcome.signal : outcome.exit_code;
  } catch (const Error& error) {
    self.world().console.err(render(error));
    co_return rubato::exit_code(error);
  }
}

class AgentGroup {
 public:
  AgentGroup(uint64_t seed, int machines, LaunchSpec spec_in) : sim(seed, machines), spec(std::move(spec_in)) {
    if (spec.endpoint.empty()) spec.endpoint = "node1:29400";
    spec.run_id = "job";
    spec.program = "train.py";
    sim.simulator.after_each_event([this] { check(); });
  }

  // Starts an agent on the machine; returns its number among all ever started.
  size_t start(int machine) {
    agents_.push_back(std::make_unique<Agent>());
    Agent* agent = agents_.back().get();
    agent->machine = machine;
    const LaunchSpec mine = spec;
    InPlaceHost* host = in_place;
    agent->program = &sim.machine(machine).start(
        "agent", [agent, mine, host](SimProgram& self) { return agent_main(self, mine, agent->signals, host); });
    return agents_.size() - 1;
  }
  void start_all() {
    for (int i = 1; i <= sim.machines(); ++i) start(i);
  }

  SimProgram& agent(size_t number) { return *agents_.at(number)->program; }
  int machine_of(size_t number) const { return agents_.at(number)->machine; }
  void signal(size_t number, int value) { agents_.at(number)->signals->push(value); }
  size_t started() const { return agents_.size(); }
  bool running(size_t number) const { return agents_.at(number)->program->running(); }

  // Agents of a machine that lost power are gone, with their programs.
  void crash(int machine) { sim.machine(machine).crash(); }

  bool all_ended() const {
    for (const auto& agent : agents_) {
      if (agent->program->running()) return false;
    }
    return true;
  }

  // Live workers that train together now: the newest generation's count, or 0.
  int training() const {
    int count = 0;
    for (const auto& [id, worker] : sim.workers.live()) count += worker.trained_from ? 1 : 0;
    return count;
  }
  int64_t generation() const {
    int64_t newest = 0;
    for (const auto& [id, worker] : sim.workers.live()) newest = std::max(newest, worker.generation);
    return newest;
  }

  bool run_until_training(int workers, int64_t generation_min, Duration most) {
    return sim.simulator.run_until([=, this] { return training() == workers && generation() >= generation_min; },
                                   sim.now() + most);
  }

  std::string output() const {
    std::string all;
    for (size_t i = 0; i < agents_.size(); ++i) {
      const SimProgram& program = *agents_[i]->program;
      all += fmt::format("--- agent {} on node{}: {}\n{}", i, agents_[i]->machine,
                         program.running()     ? "running"
                         : program.exit_code() ? fmt::format("exit {}", *program.exit_code())
                                               : "killed",
                         program.console().out_text() + program.console().err_text());
    }
    return all;
  }

  Simulation sim;
  LaunchSpec spec;
  InPlaceHost* in_place = nullptr;  // set: its model checks the rules, not this
  std::vector<std::string> broken;  // rules that were broken, in words

 private:
  struct Agent {
    int machine = 0;
    SimProgram* program = nullptr;
    std::shared_ptr<Channel<int>> signals;
  };

  // The safety rules, after every event: workers of two generations are never alive at once, ranks are within their
  // world and nobody has the rank of another.
  void check() {
    if (sim.workers.version() == checked_ || in_place) return;
    checked_ = sim.workers.version();
    int64_t first = -1;
    std::map<int, uint64_t> by_rank;
    for (const auto& [id, worker] : sim.workers.live()) {
      if (first < 0) first = worker.generation;
      if (worker.generation != first) {
        add_broken(fmt::format("{}: generations {} and {} run at once (node{}, rank {})", at(), first,
                               worker.generation, worker.machine, worker.rank));
      }
      if (!by_rank.emplace(worker.rank, id).second) {
        add_broken(fmt::format("{}: rank {} runs twice", at(), worker.rank));
      }
      if (worker.rank < 0 || worker.rank >= worker.world_size) {
        add_broken(fmt::format("{}: rank {} of {}", at(), worker.rank, worker.world_size));
      }
    }
  }
  void add_broken(std::string text) {
    if (broken.size() < 5) broken.push_back(std::move(text));
  }
  std::string at() const { return format_duration(sim.now() - Instant{}); }

  uint64_t checked_ = 0;
  std::vector<std::unique_ptr<Agent>> agents_;
};

inline LaunchSpec elastic_spec(int min_nodes, int max_nodes) {
  LaunchSpec spec;
  spec.min_nodes = min_nodes;
  spec.max_nodes = max_nodes;
  return spec;
}

}  // namespace rubato::sim

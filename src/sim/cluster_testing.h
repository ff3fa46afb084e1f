// A real head and real agents on simulated machines, for tests. Machine 1 has the head; the others become nodes.
#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "head/controller.h"
#include "node/delivery.h"
#include "node/last_lines.h"
#include "node/node_agent.h"
#include "provider/fake_provider.h"
#include "reconcile/admit.h"
#include "sim/journal.h"
#include "sim/simulation.h"

namespace rubato::sim {

inline constexpr uint16_t kHeadPort = 7000;

inline ChannelKey cluster_key(const std::string& name) {
  ChannelKey key;
  key.identity.use_tls = true;
  key.identity.ca = "cluster";
  key.identity.certificate = name;
  return key;
}

// Which machine is which node, and the agents there. It outlives heads, as machines do.
class SimMachines {
 public:
  explicit SimMachines(Simulation& sim) : sim_(sim) {
    made.create_delay = 200ms;
    made.started = [this](const provider::NodeOrder& order) { start(order); };
    made.stopped = [this](const rubato::NodeId& node) { stop(node); };
    made.removed = [this](const rubato::NodeId& node) { remove(node); };
  }

  provider::FakeProvider::Machines made;
  bool own_disk = false;            // of nodes that start from now on: outputs are delivered
  InPlaceHost* in_place = nullptr;  // the same: their workers may change in place

  std::vector<rubato::NodeId> list() const {
    std::vector<rubato::NodeId> ids;
    for (const auto& [id, agent] : agents_) ids.push_back(id);
    return ids;
  }
  bool contains(const rubato::NodeId& node) const { return agents_.contains(node); }
  int machine_of(const rubato::NodeId& node) const { return agents_.at(node).machine; }
  SimProgram& agent(const rubato::NodeId& node) const { return *agents_.at(node).program; }

  // As `rubato agent --deliver` over SSH, when the agent is dead.
  Task<void> salvage(rubato::NodeId node, Clock& clock) {
    const auto it = agents_.find(node);
    if (it == agents_.end() || !sim_.machine(it->second.machine).up()) co_return;
    const provider::NodeOrder order = made.nodes.at(node);
    SimProgram& program = sim_.machine(it->second.machine).start("deliver", [order](SimProgram& self) {
      return deliver_main(self, order);
    });
    while (program.running()) co_await Sleep(clock.loop(), clock.now() + 50ms);
  }

 private:
  struct Agent {
    int machine = 0;
    SimProgram* program = nullptr;
  };

  void start(const provider::NodeOrder& order) {
    // What did not answer when it was removed has ended by itself meanwhile.
    std::erase_if(agents_, [this](const auto& entry) {
      if (made.nodes.contains(entry.first) || entry.second.program->running()) return false;
      taken_.erase(entry.second.machine);
      return true;
    });
    for (int number = 2; number <= sim_.machines(); ++number) {
      const SimMachine& machine = sim_.machine(number);
      if (taken_.contains(number) || !machine.up() || machine.frozen()) continue;
      taken_.insert(number);
      const std::string address = sim_.machine(number).address();
      SimProgram& program =
          sim_.machine(number).start("agent", [order, address, own = own_disk, host = in_place](SimProgram& self) {
            return agent_main(self, order, address, own, host);
          });
      agents_[order.node] = Agent{number, &program};
      return;
    }
    made.nodes.erase(order.node);
    throw Error(ErrorCode::kUnavailable, "no machine is left");
  }

  void stop(const rubato::NodeId& node) {
    const auto it = agents_.find(node);
    if (it == agents_.end()) return;
    SimProgram* program = it->second.program;
    sim_.simulator.at(sim_.now(), [program] {
      if (program->running()) program->kill();
    });
  }

  // Killing from inside another program's turn would be too early: it is planned for this instant.
  void remove(const rubato::NodeId& node) {
    const auto it = agents_.find(node);
    if (it == agents_.end()) return;
    const Agent agent = it->second;
    agents_.erase(it);
    sim_.simulator.at(sim_.now(), [this, agent] {
      if (agent.program->running()) agent.program->kill();
      if (!sim_.machine(agent.machine).up()) sim_.machine(agent.machine).reboot();
      taken_.erase(agent.machine);
    });
  }

  static node::NodeSettings link_settings(const provider::NodeOrder& order) {
    node::NodeSettings settings;
    settings.node = order.node;
    settings.head = order.head;
    settings.folder = "/node/" + order.node.value;
    settings.key = cluster_key("node/" + order.node.value);
    return settings;
  }

  static Task<int> deliver_main(SimProgram& self, provider::NodeOrder order) {
    node::NodeSettings settings = link_settings(order);
    const bool all = co_await node::deliver_all(self.world(), std::move(settings));
    co_return all ? 0 : 1;
  }

  static Task<int> agent_main(SimProgram& self, provider::NodeOrder order, std::string address, bool own_disk,
                              InPlaceHost* in_place) {
    node::NodeSettings settings = link_settings(order);
    settings.address = address;
    settings.resources = order.type.resources;
    settings.own_disk = own_disk;
    settings.in_place = in_place;
    settings.python = "python3";
    settings.version = "test";
    node::NodeAgent agent(self.world(), std::move(settings), nullptr);
    co_return co_await agent.run();
  }

  Simulation& sim_;
  std::map<rubato::NodeId, Agent> agents_;
  std::set<int> taken_;
};

// What a person wants: repeated with the same request id until a head has it, as the command line does.
struct Wish {
  JobSpec spec;
  std::string request_id;
  std::optional<JobId> job;  // once it is durable
};

class ClusterSim {
 public:
  ClusterSim(uint64_t seed, int nodes, int machines = 0)
      : sim(seed, 1 + std::max(nodes, machines)), machines(sim), journal(sim.simulator, sim.machine(1)) {
    sim.workers.behaviour = [this](const SpawnSpec& spec, const WorkerRecord& record, Random& random) {
      return behaviour ? behaviour(spec, record, random) : WorkerModel{};
    };
    this->machines.made.last_output = [this](rubato::NodeId node) { return save_last_lines(*this, std::move(node)); };
    text = cluster_text(nodes);
    sim.simulator.after_each_event([this] { check(); });
    plan_client();
  }

  static std::string cluster_text(int nodes) {
    return fmt::format(
        "cluster_name: sim\nprovider: {{type: local}}\nmax_workers: {0}\navailable_node_types:\n  small:\n"
        "    resources: {{CPU: 1}}\n    min_workers: {0}\n    max_workers: {0}\n",
        nodes);
  }

  void start_head() {
    head_program_ = &sim.machine(1).start("head", [this](SimProgram& self) { return head_main(self, *this); });
  }
  void kill_head() {
    controller_ = nullptr;
    head_program_->kill();
  }
  bool head_up() const { return controller_ != nullptr && head_program_->running(); }
  SimProgram& head_program() { return *head_program_; }
  const cluster::State& state() const { return controller_->state(); }
  head::Controller& controller() { return *controller_; }

  size_t submit(JobSpec spec) {
    Wish wish;
    wish.spec = std::move(spec);
    wish.request_id = fmt::format("request-{}", wishes.size());
    wishes.push_back(std::move(wish));
    return wishes.size() - 1;
  }
  void record(cluster::Event event) { controller_->submit_later(std::move(event)); }
  void ask(const reconcile::Request& request) {
    reconcile::Admission admission = reconcile::admit(state(), request, controller_->now());
    reconcile::Admitted* const admitted = std::get_if<reconcile::Admitted>(&admission);
    for (size_t at = 0; admitted && at < admitted->events.size(); ++at) record(std::move(admitted->events[at]));
  }

  const cluster::Job* job(size_t wish) const {
    if (!head_up() || !wishes.at(wish).job) return nullptr;
    const auto it = state().jobs.find(*wishes.at(wish).job);
    return it == state().jobs.end() ? nullptr : &it->second;
  }
  // And durably so.
  bool all_ended() const {
    if (!head_up() || state().offset > journal.end()) return false;
    for (size_t i = 0; i < wishes.size(); ++i) {
      const cluster::Job* found = job(i);
      if (!found || !cluster::ended(found->phase)) return false;
    }
    return true;
  }
  bool run_until(const std::function<bool()>& condition, Duration most) {
    return sim.simulator.run_until(condition, sim.now() + most);
  }
  int training(const JobId& id) const {
    int count = 0;
    for (const auto& [number, worker] : sim.workers.live())
      count += worker.run_id == id.value && worker.trained_from ? 1 : 0;
    return count;
  }

  // The journal, read back, in words: for a failing test.
  std::string story() const {
    std::string all;
    for (const auto& [offset, bytes] : journal.records()) {
      const cluster::Record record = cluster::decode(offset, bytes);
      all += fmt::format("{} {} {}\n", offset, format_time(record.time), cluster::describe(record.event));
    }
    return all;
  }

  Simulation sim;
  SimMachines machines;
  SimJournal journal;
  WorkerBehaviour behaviour;
  std::string text;  // the cluster file
  std::vector<Wish> wishes;
  std::vector<std::string> broken;  // rules that were broken, in words

 private:
  // As on one machine, where a head reads its nodes' folders.
  static Task<void> save_last_lines(ClusterSim& cluster, rubato::NodeId node) {
    if (!cluster.machines.contains(node)) co_return;
    const ProgramLife life;
    ProgramFiles files(cluster.sim.machine(cluster.machines.machine_of(node)).disk(), life);
    World& here = cluster.head_program_->world();
    World world{here.clock, here.network, here.processes, files, here.console, here.random, here.machine};
    head::Controller& controller = *cluster.controller_;
    node::KeepLines keep = [&controller, node](elastic::LogLines lines) {
      return controller.keep_last_lines(node, std::move(lines));
    };
    std::string folder = "/node/" + node.value;
    co_await node::send_last_lines(world, std::move(folder), std::move(keep));
  }

  static Task<int> head_main(SimProgram& self, ClusterSim& cluster) {
    World& world = self.world();
    const std::unique_ptr<Journal> journal = co_await cluster.journal.open(self);
    provider::FakeProvider provider(world.clock, cluster.machines.made);
    Metrics metrics;
    head::HeadSettings settings;
    settings.folder = "/cluster";
    settings.version = "test";
    settings.agents = Endpoint{cluster.sim.machine(1).address(), kHeadPort};
    const ChannelKey key = cluster_key("head");
    settings.key = key;
    settings.stays_here = true;
    const std::unique_ptr<Listener> listener = world.network.listen(settings.agents, key, settings.heartbeat);
    head::Controller controller(world, *journal, provider, settings, metrics, Log());
    int code = 0;
    try {
      co_await controller.recover();
      cluster.controller_ = &controller;
      co_await controller.run(*listener);
    } catch (const Error& error) {
      world.console.err(render(error));
      code = exit_code(error);
    }
    cluster.controller_ = nullptr;
    co_return code;
  }

  // Ten times a second, what was not taken yet is said again.
  void plan_client() {
    sim.simulator.at(sim.now() + 100ms, [this] {
      press();
      plan_client();
    });
  }
  void press() {
    if (!head_up()) return;
    const std::string current = state().spec_text;
    if (current != text && pressed_text_ != std::pair(state().epoch, text)) {
      pressed_text_ = {state().epoch, text};
      reconcile::ConfigureCluster configure;
      configure.spec = read_cluster_spec(text, "sim.yaml");
      configure.text = text;
      ask(configure);
    }
    for (Wish& wish : wishes) {
      if (wish.job) continue;
      const auto known = state().requests.find(wish.request_id);
      if (known != state().requests.end()) {
        if (state().offset <= journal.end()) wish.job = known->second;
        continue;
      }
      reconcile::SubmitJob submit;
      submit.pending = controller_->pending_request(wish.request_id);
      if (submit.pending) continue;
      submit.id = JobId{"j-" + sim.simulator.random().hex(8)};
      submit.spec = wish.spec;
      submit.request_id = wish.request_id;
      ask(submit);
    }
  }

  // By generation of a job: the first of those that live on from each other. A round is placed before it has workers.
  int64_t group_of(const std::string& job, int64_t generation) {
    const auto& records = journal.records();
    for (auto it = records.upper_bound(groups_seen_); it != records.end(); ++it) {
      groups_seen_ = it->first;
      const cluster::Record record = cluster::decode(it->first, it->second);
      const auto* placed = std::get_if<cluster::JobPlaced>(&record.event);
      const auto* started = std::get_if<cluster::JobStarted>(&record.event);
      if (started) ran_[started->job.value] = static_cast<int64_t>(started->generation);
      if (!placed) continue;
      const auto number = static_cast<int64_t>(placed->generation);
      auto& known = groups_[placed->job.value];
      known[number] = placed->in_place ? known[ran_[placed->job.value]] : number;
    }
    const auto& known = groups_[job];
    const auto it = known.find(generation);
    return it == known.end() ? generation : it->second;
  }

  // After every event: no rank of a job runs twice in one generation, and two generations of a job never live at once,
  // unless one lives on from the other (LibraryModel sees that only one of these trains), on whatever machine. A
  // machine that is frozen as a whole does not live; when it thaws, its guards end what is overdue in that instant.
  void check() {
    if (sim.workers.version() == checked_ && overlapping_.empty()) return;
    checked_ = sim.workers.version();
    std::map<std::string, int64_t> generations;
    std::set<std::tuple<std::string, int64_t, int>> ranks;
    std::map<std::string, Instant> overlapping;
    for (const auto& [id, worker] : sim.workers.live()) {
      if (sim.machine(static_cast<int>(worker.machine)).frozen()) continue;
      const int64_t group = group_of(worker.run_id, worker.generation);
      const auto [it, fresh] = generations.emplace(worker.run_id, group);
      if (!fresh && it->second != group) {
        const auto since = overlapping_.find(worker.run_id);
        overlapping[worker.run_id] = since == overlapping_.end() ? sim.now() : since->second;
        if (since != overlapping_.end() && since->second < sim.now())
          add_broken(fmt::format("{}: generations {} and {} at once", worker.run_id, it->second, worker.generation));
        continue;
      }
      if (!ranks.emplace(worker.run_id, worker.generation, worker.rank).second)
        add_broken(fmt::format("{}: rank {} twice", worker.run_id, worker.rank));
      if (worker.rank < 0 || worker.rank >= worker.world_size)
        add_broken(fmt::format("{}: rank {} of {}", worker.run_id, worker.rank, worker.world_size));
    }
    overlapping_ = std::move(overlapping);
  }
  void add_broken(std::string message) {
    if (broken.size() < 5) broken.push_back(fmt::format("{}: {}", format_duration(sim.now() - Instant{}), message));
  }

  SimProgram* head_program_ = nullptr;
  head::Controller* controller_ = nullptr;
  std::pair<uint64_t, std::string> pressed_text_;
  uint64_t checked_ = 0;
  std::map<std::string, std::map<int64_t, int64_t>> groups_;
  std::map<std::string, int64_t> ran_;
  uint64_t groups_seen_ = 0;
  std::map<std::string, Instant> overlapping_;  // jobs of which two generations live, since when
};

inline JobSpec sim_job(int workers_min, int workers_max) {
  JobSpec spec;
  spec.name = "train";
  spec.program = "train.py";
  spec.workers_min = workers_min;
  spec.workers_max = workers_max;
  spec.per_worker.set(kCpu, 1000);
  spec.owner = "ann";
  return spec;
}

}  // namespace rubato::sim

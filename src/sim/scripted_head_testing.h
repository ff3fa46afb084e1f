// A head that does what a test says: it speaks node_wire.h to real agents (src/node) and remembers all that it hears.
#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "elastic/node_wire.h"
#include "node/node_agent.h"
#include "sim/simulation.h"

namespace rubato::sim {

// What outlives a head: a test's script and its memory. The program that serves it may be killed and started again.
class ScriptedHead {
 public:
  using Job = std::pair<std::string, std::string>;  // node, job

  explicit ScriptedHead(Simulation& sim_in) : sim(sim_in) {}

  void start(uint64_t epoch_in, uint16_t port = 9000) {
    epoch = epoch_in;
    program = &sim.machine(1).start("head", [this, port](SimProgram& self) { return serve(self, *this, port); });
  }
  void kill() { program->kill(); }

  void order(const std::string& node, const elastic::JobOrder& job_order) {
    job_orders[node][job_order.job.value] = job_order;
    send_orders(node);
  }
  void forget(const std::string& node, const std::string& job) {
    job_orders[node].erase(job);
    send_orders(node);
  }
  void send(const std::string& node, const elastic::ToAgent& message) {
    const auto found = connections.find(node);
    if (found != connections.end()) found->second->send(encode(message));
  }
  // From now on, and what came before.
  void acknowledge_all() {
    acknowledges = true;
    for (const auto& [job, sequence] : durable) {
      const elastic::ToAgent ack = elastic::LogAck{JobId{job.second}, sequence};
      send(job.first, ack);
    }
  }
  void send_orders(const std::string& node) {
    elastic::Orders orders;
    orders.revision = ++revision;
    for (const auto& [job, job_order] : job_orders[node]) orders.job_orders.push_back(job_order);
    const elastic::ToAgent message = orders;
    send(node, message);
  }

  const elastic::JobOrderReport& report(const std::string& node, const std::string& job = "j-1") {
    return reports[{node, job}];
  }
  bool reported(const std::string& node, elastic::JobOrderState state, Generation generation,
                const std::string& job = "j-1") {
    const auto found = reports.find({node, job});
    return found != reports.end() && found->second.state == state && found->second.generation == generation;
  }
  bool await(const std::string& node, elastic::JobOrderState state, Generation generation, Duration most = 60s,
             const std::string& job = "j-1") {
    return sim.simulator.run_until([&] { return reported(node, state, generation, job); }, sim.now() + most);
  }

  Simulation& sim;
  SimProgram* program = nullptr;
  uint64_t epoch = 0;
  uint64_t revision = 0;
  bool acknowledges = true;
  Duration heartbeat = 3s;
  std::map<std::string, std::string> packages;
  std::map<std::string, std::map<std::string, elastic::JobOrder>> job_orders;  // by node and job

  std::map<Job, elastic::JobOrderReport> reports;
  std::map<Job, std::vector<std::string>> states;      // each change, in words
  std::map<Job, std::vector<elastic::LogLine>> lines;  // without duplicates
  std::map<Job, uint64_t> durable;                     // highest sequence
  uint64_t duplicates = 0;
  std::map<std::string, uint64_t> beats, acted_on;  // by node
  std::vector<elastic::Hello> hellos;
  std::vector<elastic::Leaving> leavings;
  std::vector<elastic::PackageWanted> wanted;
  std::map<std::string, Connection*> connections;

 private:
  static Task<int> serve(SimProgram& self, ScriptedHead& head, uint16_t port) {
    head.connections.clear();
    ChannelKey key;
    key.secret = "cluster";
    Endpoint endpoint{"node1", port};
    std::unique_ptr<Listener> listener = self.world().network.listen(endpoint, key, 3s);
    Scope scope(self.loop());
    while (true) {
      std::unique_ptr<Connection> connection = co_await listener->accept();
      scope.spawn(talk(self, head, std::move(connection)));
    }
  }

  static Task<void> talk(SimProgram& self, ScriptedHead& head, std::unique_ptr<Connection> connection) {
    std::string node;
    while (true) {
      const std::optional<std::string> text = co_await connection->receive();
      if (!text) break;
      head.hear(self, *connection, node, elastic::decode_to_head(*text, self.world().clock.now()));
    }
    if (!node.empty() && head.connections[node] == connection.get()) head.connections.erase(node);
  }

  void hear(SimProgram& self, Connection& connection, std::string& node, const elastic::ToHead& message) {
    if (const auto* hello = std::get_if<elastic::Hello>(&message)) {
      node = hello->node.value;
      hellos.push_back(*hello);
      connections[node] = &connection;
      take(node, hello->job_orders);
      elastic::Welcome welcome;
      welcome.head_epoch = epoch;
      welcome.heartbeat = heartbeat;
      send(node, welcome);
      send_orders(node);
    }
    if (const auto* all = std::get_if<elastic::Reports>(&message)) take(node, all->job_orders);
    if (const auto* beat = std::get_if<elastic::NodeBeat>(&message)) {
      ++beats[node];
      acted_on[node] = beat->orders;
    }
    if (const auto* leaving = std::get_if<elastic::Leaving>(&message)) leavings.push_back(*leaving);
    if (const auto* more = std::get_if<elastic::LogLines>(&message)) take(node, *more);
    if (const auto* ask = std::get_if<elastic::PackageWanted>(&message)) give(node, *ask);
    (void)self;
  }

  void take(const std::string& node, const std::vector<elastic::JobOrderReport>& all) {
    std::erase_if(reports, [&](const auto& entry) { return entry.first.first == node; });
    for (const elastic::JobOrderReport& report : all) {
      const Job key{node, report.job.value};
      const std::string sentence = fmt::format("{}@{}", to_string(report.state), report.generation);
      if (states[key].empty() || states[key].back() != sentence) {
        states[key].push_back(sentence);
        lines_at[key][sentence] = lines[key].size();
      }
      reports[key] = report;
    }
  }

  void take(const std::string& node, const elastic::LogLines& more) {
    const Job key{node, more.job.value};
    for (const elastic::LogLine& line : more.lines) {
      if (line.sequence <= durable[key]) {
        ++duplicates;
        continue;
      }
      durable[key] = line.sequence;
      lines[key].push_back(line);
    }
    if (!acknowledges) return;
    const elastic::ToAgent ack = elastic::LogAck{more.job, durable[key]};
    send(node, ack);
  }

  void give(const std::string& node, const elastic::PackageWanted& ask) {
    wanted.push_back(ask);
    const std::string& all = packages[ask.hash];
    elastic::PackagePart part;
    part.hash = ask.hash;
    part.offset = ask.offset;
    part.size = all.size();
    part.bytes = all.substr(ask.offset, 1000);
    const elastic::ToAgent message = part;
    send(node, message);
  }

 public:
  std::map<Job, std::map<std::string, size_t>> lines_at;  // how many lines had come when a state was first told
};

inline Task<int> node_main(SimProgram& self, node::NodeSettings settings, std::shared_ptr<Channel<int>>& signals) {
  signals = std::make_shared<Channel<int>>(self.loop());
  const std::shared_ptr<Channel<int>> mine = signals;
  node::NodeAgent agent(self.world(), std::move(settings), mine.get());
  co_return co_await agent.run();
}

// A cluster: the head on machine 1, node N's agent on machine N + 1.
class SimCluster {
 public:
  SimCluster(uint64_t seed, int nodes) : sim(seed, nodes + 1), head(sim) {}

  static std::string name(int node) { return fmt::format("n-{}", node); }
  node::NodeSettings settings(int node) {
    node::NodeSettings settings;
    settings.node.value = name(node);
    settings.head = Endpoint{"node1", 9000};
    settings.address = sim.machine(node + 1).address();
    settings.folder = "/node";
    settings.resources.set(kCpu, 4000);
    settings.key.secret = "cluster";
    settings.python = "python3";
    settings.version = "test";
    // A "package" of a test is the text of its one file.
    settings.unpack = [](Files& files, const std::string& file, const std::string& hash, const std::string& target) {
      const std::string text = files.read(file).value_or("");
      if (text.find("damaged") != std::string::npos) {
        throw Error(ErrorCode::kUsage, "package " + hash.substr(0, 4) + " is damaged");
      }
      files.make_folders(target + "/data");
      files.write_atomically(target + "/train.py", text);
      files.write_atomically(target + "/data/run.sh", "#!/bin/sh\n");
      files.set_mode(target + "/data/run.sh", 0755);
      files.make_link("train.py", target + "/link.py");
    };
    return settings;
  }
  SimProgram& start(int node) { return start(node, settings(node)); }
  SimProgram& start(int node, const node::NodeSettings& settings) {
    std::shared_ptr<Channel<int>>& channel = signals[node];
    agents[node] = &sim.machine(node + 1).start(
        "agent", [settings, &channel](SimProgram& self) { return node_main(self, settings, channel); });
    return *agents[node];
  }
  void signal(int node, int number) { signals[node]->push(number); }

  elastic::JobOrder job_order(elastic::Phase phase, Generation generation, int workers = 1) {
    elastic::JobOrder job_order;
    job_order.job.value = "j-1";
    job_order.phase = phase;
    job_order.generation = generation;
    job_order.workers = workers;
    job_order.grace = 5s;
    job_order.spec.name = "train";
    job_order.spec.program = "train.py";
    job_order.spec.workers_max = 8;
    job_order.spec.per_worker.set(kCpu, 1000);
    job_order.output = "/output";
    return job_order;
  }
  // The same for one node of a round that has `workers` on each of `nodes` nodes.
  elastic::JobOrder running(int node, Generation generation, int nodes = 1, int workers = 1) {
    elastic::JobOrder one = job_order(elastic::Phase::kRunning, generation, workers);
    one.place = elastic::Assignment{node - 1,       nodes, (node - 1) * workers, nodes * workers, (node - 1) * workers,
                                    nodes * workers};
    one.master_addr = sim.machine(2).address();
    one.master_port = head.report(name(1)).port;
    return one;
  }
  // Gathers and runs a generation on nodes 1..nodes.
  bool run_generation(Generation generation, int nodes = 1, int workers = 1) {
    for (int i = 1; i <= nodes; ++i) {
      head.order(name(i), job_order(elastic::Phase::kGathering, generation, workers));
    }
    for (int i = 1; i <= nodes; ++i) {
      if (!head.await(name(i), elastic::JobOrderState::kReady, generation)) return false;
    }
    std::vector<elastic::JobOrder> round;
    for (int i = 1; i <= nodes; ++i) round.push_back(running(i, generation, nodes, workers));
    for (int i = 1; i <= nodes; ++i) head.order(name(i), round[static_cast<size_t>(i - 1)]);
    for (int i = 1; i <= nodes; ++i) {
      if (!head.await(name(i), elastic::JobOrderState::kRunning, generation)) return false;
    }
    return true;
  }
  std::string output() const {
    std::string all;
    for (const auto& [node, agent] : agents) all += agent->console().err_text();
    return all;
  }

  std::map<int, std::shared_ptr<Channel<int>>> signals;  // outlive the simulation, whose frames use them
  Simulation sim;
  ScriptedHead head;
  std::map<int, SimProgram*> agents;
};

}  // namespace rubato::sim

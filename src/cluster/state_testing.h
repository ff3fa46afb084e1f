// Small words to build a state by events, for the tests of everything that reads one.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "cluster/apply.h"
#include "cluster/observed.h"

namespace rubato::cluster {

inline constexpr WallTime kTestStart = WallTime(std::chrono::microseconds(1'700'000'000'000'000));

inline Resources cpus(double count, int64_t memory = 0, double gpus = 0) {
  Resources resources;
  resources.set(kCpu, static_cast<int64_t>(count * 1000));
  resources.set(kGpu, static_cast<int64_t>(gpus * 1000));
  resources.set(kMemory, memory);
  return resources;
}

inline NodeType node_type(const std::string& name, const Resources& resources, int min, int max) {
  NodeType type;
  type.name = name;
  type.resources = resources;
  type.min_workers = min;
  type.max_workers = max;
  type.resources_where = "cluster.yaml:5:16";
  type.min_where = "cluster.yaml:6:18";
  type.max_where = "cluster.yaml:7:18";
  return type;
}

inline ClusterSpec cluster_of(const std::vector<NodeType>& types) {
  ClusterSpec spec;
  spec.name = "test";
  for (const NodeType& type : types) {
    spec.types[type.name] = type;
    spec.max_workers += type.max_workers;
  }
  spec.max_where = "cluster.yaml:3:14";
  return spec;
}

inline JobSpec job_of(int min, int max, const Resources& each = cpus(1)) {
  JobSpec spec;
  spec.name = "train";
  spec.program = "train.py";
  spec.workers_min = min;
  spec.workers_max = max;
  spec.per_worker = each;
  spec.owner = "ann";
  return spec;
}

// A state that grows by events, each a record of its own.
class History {
 public:
  State state;
  WallTime now = kTestStart;

  void add(Event event) {
    Record record;
    record.offset = state.offset + 1;
    record.time = now;
    record.event = std::move(event);
    apply(state, record);
  }
  void pass(Duration d) { now = later(now, d); }

  void configure(const std::vector<NodeType>& types) { add(ClusterConfigured{cluster_of(types), "text"}); }

  static NodeJoined joined(const NodeId& node, const std::string& agent, const Resources& resources) {
    NodeJoined event;
    event.node = node;
    event.agent = AgentId{agent};
    event.info.id = event.agent;
    event.info.host = "here";
    event.info.machine = "here";
    event.info.address = "127.0.1." + std::to_string(node.value.back() - '0');
    event.resources = resources;
    return event;
  }
  // A node of a type of the cluster that is up; its id is the type's next.
  NodeId node_up(const std::string& type) {
    const NodeType& known = state.spec->types.at(type);
    const NodeId id{fmt::format("{}-{}", type, state.next_node[type] + 1)};
    add(NodeRequested{id, type, launch_hash(*state.spec, known), "test"});
    add(NodeCreated{id});
    add(joined(id, "agent-" + id.value, known.resources));
    return id;
  }
  void nodes_up(const std::string& type, int count) {
    for (int i = 0; i < count; ++i) node_up(type);
  }
  JobId submit(const JobSpec& spec) {
    const JobId id{fmt::format("j-{:08}", ++jobs_)};
    add(JobSubmitted{id, spec, "", ""});
    return id;
  }
  JobId submit(int min, int max, const Resources& each = cpus(1)) { return submit(job_of(min, max, each)); }

  // Gathers the next generation on these nodes.
  void place(const JobId& job, const std::vector<std::pair<std::string, int>>& seats) {
    JobPlaced placed;
    placed.job = job;
    placed.generation = state.jobs.at(job).generation + 1;
    for (const auto& [node, workers] : seats)
      placed.seats.push_back(Seat{NodeId{node}, state.nodes.at(NodeId{node}).agent, workers});
    add(placed);
  }
  void start(const JobId& job) { add(JobStarted{job, state.jobs.at(job).generation, "127.0.1.1", 5000}); }
  void run(const JobId& job, const std::vector<std::pair<std::string, int>>& seats) {
    place(job, seats);
    start(job);
  }
  // A job that runs on these nodes now.
  JobId running(const JobSpec& spec, const std::vector<std::pair<std::string, int>>& seats) {
    const JobId job = submit(spec);
    run(job, seats);
    return job;
  }
  void fail(const JobId& job, const std::string& node, const std::string& message = "") {
    elastic::Failure failure;
    failure.host = node;
    failure.exit_code = 1;
    failure.message = message;
    add(SeatFailed{job, state.jobs.at(job).generation, NodeId{node}, {failure}});
  }
  const Job& job(const JobId& id) const { return state.jobs.at(id); }

 private:
  int jobs_ = 0;
};

}  // namespace rubato::cluster

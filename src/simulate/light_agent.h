// LightAgent: an agent that speaks the real protocol over the simulated network, with workers that are only counted.
// LightGroups: those workers' generations: they train when all are there, and fail when one goes.
//
// What it leaves out, against a real agent: heartbeats (a dead machine is noticed by its connection), packages, logs,
// and the processes themselves. So thousands of nodes can be simulated for a day in a minute.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "elastic/node_wire.h"
#include "sim/program.h"
#include "sim/simulator.h"
#include "simulate/progress.h"

namespace rubato::simulate {

class LightGroups {
 public:
  LightGroups(sim::Simulator& simulator, Progress& progress) : simulator_(simulator), progress_(progress) {}

  using Done = std::function<void(bool well)>;
  // A seat's workers are there. `done` is called from a timer when they have ended by themselves.
  void join(const elastic::JobOrder& job_order, const rubato::NodeId& node, Done done);
  // They were told to end (and saved), or vanished with their machine.
  void leave(const JobId& job, Generation generation, const rubato::NodeId& node, bool saved);

  std::function<void(std::string)> on_broken;
  // Workers of a job are about to run beside those of an older generation on this node.
  std::function<void(const JobId&, const rubato::NodeId& older)> on_mixed;
  int running() const { return running_; }  // workers that train
  bool on(const rubato::NodeId& node) const { return seats_on_.contains(node); }

 private:
  struct Seat {
    int first_rank = 0, workers = 0;
    Done done;
  };
  struct Group {
    int world_size = 0;
    int workers = 0;  // there
    bool training = false;
    Instant since{};
    uint64_t token = 0;
    std::map<rubato::NodeId, Seat> seats;
  };
  using Key = std::pair<JobId, Generation>;
  void begin(const Key& key, Group& group);
  void finish(const Key& key, uint64_t token, bool well);
  void check_ranks(const Key& key, const Group& group);
  void forget_seat(const rubato::NodeId& node);

  sim::Simulator& simulator_;
  Progress& progress_;
  std::map<Key, Group> groups_;
  std::map<rubato::NodeId, int> seats_on_;
  uint64_t next_token_ = 1;
  int running_ = 0;
};

struct LightSettings {
  rubato::NodeId node;
  Endpoint head;
  Resources resources;
  ChannelKey key;
  Duration start_delay = 2s;  // `import torch`
  Duration stop_delay = 1s;   // to save
};

class LightAgent {
 public:
  LightAgent(sim::SimProgram& program, LightSettings settings, LightGroups& groups);
  ~LightAgent();  // its workers vanish

  Task<int> run();
  void notice(Duration in);  // its machine goes away

 private:
  struct Part {
    elastic::JobOrder job_order;
    elastic::JobOrderReport report;
    Generation workers_of = 0;  // the generation whose workers are there; 0: none
    Generation finished = 0;    // the last one, if its workers all ended well
    bool joined = false;
    uint64_t step = 0;  // what a timer was set for is old when this has changed
  };
  Task<bool> session(Connection& connection);
  Task<void> later(JobId job, uint64_t step, Duration delay, void (LightAgent::*call)(Part&));
  void obey(elastic::Orders orders);
  void follow(Part& part);
  void stop_workers(Part& part, bool saved);
  void started(Part& part);
  void stopped(Part& part);
  void report();
  std::vector<elastic::JobOrderReport> reports() const;

  sim::SimProgram& program_;
  World& world_;
  const LightSettings settings_;
  LightGroups& groups_;
  const AgentId self_;
  const WallTime started_;
  uint64_t head_epoch_ = 0;
  Connection* connection_ = nullptr;
  std::map<JobId, Part> parts_;
  std::vector<AgentId> fenced_;
  bool ended_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  Scope scope_;
};

}  // namespace rubato::simulate
